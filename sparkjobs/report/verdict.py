"""The verdict in one sentence, the numbers beside it, and an answer to each question that people ask after an outage,
in the order in which they ask. Pure, no markup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from sparkjobs.report.markup import Clock, clock, clock_for, counted, end_of, lasting, named
from sparkjobs.rules.coverage import ENDS, KRAFT
from sparkjobs.rules.rules import Answers
from sparkjobs.rules.truncations import records_lost


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer in one sentence, and the numbers beside it."""

    mood: str  # bad: something is wrong now or data may be lost; worn: it was and is over; good
    sentence: str
    numbers: Mapping[str, str]


#: why it may be over though no line says so, and which file would say
UNSEEN: Final = {
    "deletion": "these logs would not say that a topic was deleted; the controller.log of every broker would",
    "controller": "the last lines of the last controller are missing; its state-change.log would say",
}
#: tables that the verdict rests on
OF_VERDICT: Final = (
    "partition_outages",
    "unclean_elections",
    "truncations",
    "controller_tenures",
    "broker_lives",
    "zookeeper_outages",
    "failovers",
    "log_spans",
    "coverage",
)


def verdict_for(answers: Answers) -> Verdict:
    """Worst first: is it over? was data lost? how bad was it?"""
    outages: Sequence[Any] = answers["partition_outages"]
    loss = _loss(answers)
    still = [one for one in outages if one.open and one.unseen is None]
    unseen = [one for one in outages if one.unseen is not None]
    hit = {(one.cluster, one.topic, one.partition) for one in outages}
    end_ms = end_of(answers)
    known = [one for one in outages if one.unseen is None]
    lengths = [(one.end_ms if one.end_ms is not None else max(end_ms, one.start_ms)) - one.start_ms for one in known]
    felt = [one.end_ms - one.leader_last_seen_ms for one in outages if one.end_ms and one.leader_last_seen_ms]
    losses = Counter(one.how for one in _rows(answers, "failovers"))
    if not answers["broker_lives"]:
        mood, sentence = "bad", "Nothing is known: no line of these logs was understood. See `klamm logs doctor`."
    elif still:
        mood = "bad"
        sentence = f"Not over: {counted(len(still), 'partition')} without a leader where the logs end."
    elif unseen:
        mood = "bad" if loss else "worn"
        count = counted(len(unseen), "partition")
        sentence = f"Not known whether it is over: {count} had no leader when last heard of, "
        sentence += f"and {UNSEEN[unseen[0].unseen]}."
        sentence += f" Data {loss}." if loss else ""
    elif loss:
        mood, sentence = "bad", f"Over, but data {loss}."
    elif outages:
        mood = "worn"
        sentence = f"Over. {counted(len(hit), 'partition')} without a leader at some time; none where the logs end."
    elif is_blind(answers):
        mood = "worn"
        sentence = "Not known: no line of these logs says whether a partition had a leader."
        sentence += (
            " They are of KRaft: bring `__cluster_metadata-0` of any node, which does."
            if is_kraft(answers)
            else " See `klamm logs doctor`."
        )
    elif losses:
        mood, sentence = "worn", "Brokers went, and no partition is known to have been without a leader."
    elif answers["zookeeper_outages"]:
        mood, sentence = "worn", "ZooKeeper was away, and no partition is known to have been without a leader."
    else:
        mood, sentence = "good", "Nothing went offline in these logs."
    evidence = Counter(one.evidence for one in outages)
    return Verdict(
        mood,
        sentence,
        {
            "outages": str(len(outages)),
            "without a leader, summed": lasting(sum(lengths)),
            "longest": lasting(max(lengths, default=None)),
            "longest with the silence before it, at most": lasting(max(felt, default=None)),
            "controllers": str(len(answers["controller_tenures"])),
            "brokers lost": ", ".join(f"{count} {how}" for how, count in sorted(losses.items())) or "0",
            "starts known": ", ".join(f"{count} {grade}" for grade, count in sorted(evidence.items())) or "-",
        },
    )


def _loss(answers: Answers) -> str:
    """Returns whether data was lost, as far as it is known; empty where nothing points to it."""
    lost = sum(records_lost(_rows(answers, "truncations")).values())
    if lost:
        return f"was lost: at least {counted(lost, 'committed record')}"
    unclean = len(_rows(answers, "unclean_elections"))
    return f"may be lost: {counted(unclean, 'unclean election')}" if unclean else ""


def is_blind(answers: Answers) -> bool:
    """Returns whether some cluster has no line about a partition's state. Then the absence of findings proves
    nothing."""
    return any(one.grade == "none" for one in _rows(answers, "coverage") if one.question == ENDS)


def is_kraft(answers: Answers) -> bool:
    """Returns whether the cause is that the partitions are not in ZooKeeper."""
    return any(one.why == KRAFT for one in _rows(answers, "coverage"))


def _rows(answers: Answers, table: str) -> Sequence[Any]:
    return answers[table]


_HOW = {"stopped": "was stopped", "lost": "was lost", "expired": "lost its session", "unknown": "was lost"}
#: names that a sentence lists before it says how many more there are
LISTED = 3


def summary_for(answers: Answers) -> list[tuple[str, str]]:
    """Question and answer; nothing where no line was understood."""
    if not _rows(answers, "broker_lives"):
        return []
    at = clock_for(answers)
    end_ms = end_of(answers)
    return [
        ("Is it over?", _over(answers, end_ms, at)),
        ("Which partitions?", _which(answers, end_ms)),
        ("Since when?", _since(answers)),
        ("Was data lost?", _lost(answers)),
        ("Who was controller?", _controller(answers, at)),
        ("Which broker first?", _first(answers, at)),
        ("Did it flap?", _flapped(answers)),
    ]


def _over(answers: Answers, end_ms: int, at: Clock) -> str:
    outages = _rows(answers, "partition_outages")
    still = [one for one in outages if one.open and one.unseen is None]
    unseen = [one for one in outages if one.unseen is not None]
    if still:
        names = _listed(f"{one.topic}-{one.partition}" for one in still)
        return f"No: without a leader where the logs end ({at(end_ms)}): {names}"
    if unseen:
        names = _listed(f"{one.topic}-{one.partition}" for one in unseen)
        return f"Not known: {UNSEEN[unseen[0].unseen]}. Without a leader when last heard of: {names}"
    if not outages and is_blind(answers):
        return "Not known: no line says whether a partition had a leader"
    if not outages:
        return "Nothing to get over: no partition is known to have been without a leader"
    return f"Yes: the last outage ended {at(max(one.end_ms for one in outages))}, the logs end {at(end_ms)}"


def _which(answers: Answers, end_ms: int) -> str:
    length: dict[str, int] = {}  # of its longest outage: the same that the numbers above name the longest
    for one in _rows(answers, "partition_outages"):
        name = f"{one.topic}-{one.partition}"
        lasted_ms = 0 if one.unseen else (end_ms if one.end_ms is None else one.end_ms) - one.start_ms
        length[name] = max(lasted_ms, length.get(name, 0))
    if not length:
        return "Not known" if is_blind(answers) else "None"
    worst = sorted(length, key=lambda name: (-length[name], name))
    return f"{len(worst)}; longest without one {_listed(f'{name} ({lasting(length[name])})' for name in worst)}"


def _since(answers: Answers) -> str:
    outages = _rows(answers, "partition_outages")
    if not outages:
        return "-"
    first = min(outages, key=lambda one: (one.start_ms, one.topic, one.partition))
    exactly = "" if first.evidence == "exact" else f", give or take {lasting(first.start_hi_ms - first.start_lo_ms)}"
    return f"{clock(first.start_ms, with_day=True)} UTC ({first.topic}-{first.partition}{exactly})"


def _lost(answers: Answers) -> str:
    if lost := records_lost(_rows(answers, "truncations")):
        names = _listed(f"{name} ({count})" for name, count in sorted(lost.items(), key=lambda one: (-one[1], one[0])))
        return f"Yes: at least {counted(sum(lost.values()), 'committed record')}, of {names}"
    unclean = _rows(answers, "unclean_elections")
    if not unclean and is_blind(answers):
        return "Not known: no line says who was elected"
    if not unclean:
        return "No sign of it: every elected leader that can be judged was in sync"
    names = _listed(dict.fromkeys(f"{one.topic}-{one.partition}" for one in unclean))
    return f"It may be: {counted(len(unclean), 'leader')} elected that had not been in sync, of {names}"


def _controller(answers: Answers, at: Clock) -> str:
    tenures = _rows(answers, "controller_tenures")
    if not tenures:
        return "These logs do not say"
    last = tenures[-1]
    now = f"broker {last.broker} (epoch {last.controller_epoch}, since {at(last.from_ms)})"
    gaps = sum(one.gap_before_ms or 0 for one in tenures)
    # a controller that was lost had been silent before: how long it worked on in silence is not known
    is_bound = any(one.gap_before_ms and before.to_lo_ms != before.to_hi_ms for before, one in pairwise(tenures))
    nobody = f"nobody for {'at most ' if is_bound else ''}{lasting(gaps)} in all"
    before = f"; {counted(len(tenures) - 1, 'term')} before it, {nobody}" if tenures[1:] else ""
    return f"In the end {now}{before}"


def _first(answers: Answers, at: Clock) -> str:
    lost = _rows(answers, "failovers")
    if not lost:
        return "None went"
    first = min(lost, key=lambda one: (one.last_seen_ms or one.detected_ms, one.broker))
    seat = ", the controller," if first.was_controller else ""
    heard = f"last heard {at(first.last_seen_ms)}" if first.last_seen_ms is not None else "never heard here"
    about = f", gone about {at(first.went_about_ms)}" if first.went_about_ms is not None else ""
    how = _HOW.get(first.how, first.how)
    said = f"Broker {first.broker}{seat} {how}: {heard}{about}, missed {at(first.detected_ms)}"
    if len(lost) == 1:
        return said
    times = ", ".join(f"{count} of broker {b}" for b, count in sorted(Counter(one.broker for one in lost).items()))
    return f"{said}. {len(lost)} losses in all: {times}"


def _flapped(answers: Answers) -> str:
    found = _rows(answers, "flapping")
    brokers = sorted({one.broker for one in found if one.what == "broker"})
    said = [f"{named('broker', brokers)} came and went"] if brokers else []
    for what, name in (("leader", "leader"), ("isr", "ISR")):
        count = sum(one.what == what for one in found)
        said += [f"the {name} of {counted(count, 'partition')} would not stay"] if count else []
    return f"Yes: {'; '.join(said)}" if said else "No"


def _listed(names: Any) -> str:
    known: Sequence[str] = list(names)
    more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
    return ", ".join(known[:LISTED]) + more
