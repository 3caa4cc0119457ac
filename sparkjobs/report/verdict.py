"""What a person should know first: the verdict in one sentence, and the numbers beside it. Pure, no markup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sparkjobs.engine.local.answers import Answers
from sparkjobs.report.drawing import counted, lasting
from sparkjobs.report.moments import end_of
from sparkjobs.rules.coverage import ENDS, KRAFT


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
_BRING: Final = " They are of KRaft: bring `__cluster_metadata-0` of any node, which does."
#: tables that the verdict rests on
OF_VERDICT: Final = (
    "partition_outages",
    "unclean_elections",
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
    unclean = len(answers["unclean_elections"])
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
        mood = "bad" if unclean else "worn"
        count = counted(len(unseen), "partition")
        sentence = f"Not known whether it is over: {count} had no leader when last heard of, "
        sentence += f"and {UNSEEN[unseen[0].unseen]}."
        sentence += f" Data may be lost: {counted(unclean, 'unclean election')}." if unclean else ""
    elif unclean:
        mood = "bad"
        sentence = f"Over, but data may be lost: {counted(unclean, 'unclean election')}."
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


def is_blind(answers: Answers) -> bool:
    """Whether of some cluster no line tells of a partition's state: that nothing is seen there proves nothing."""
    return any(one.grade == "none" for one in _rows(answers, "coverage") if one.question == ENDS)


def is_kraft(answers: Answers) -> bool:
    """Whether that is because partitions are not ZooKeeper's."""
    return any(one.why == KRAFT for one in _rows(answers, "coverage"))


def _rows(answers: Answers, table: str) -> Sequence[Any]:
    return answers[table]
