"""Which broker was controller from when to when, by which phases each took over, which brokers lived, and when none
did. Pure.

Kafka's lines say that a phase of the takeover begins, so it lasts until the next phase, or until the controller is
ready or done. Our own lines say that a phase is over, and how long after the seat was seen to be vacant.

While no broker lived the whole cluster was off, which is not the same as partitions being offline. A quiet broker lives
from its start to its last word before the next start, so hours without a line are no silence. Only the time between the
last word of all brokers and the first start after it is. Our logs have no line that a process begins. There it is a
silence if every broker had been stopped, which is logged, and none of them was killed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from sparkjobs.rules.facts import Facts, Step, Term, how_it_went
from sparkjobs.tables.gold import BrokerLife, ClusterSilence, ControllerPhase, ControllerTenure
from sparkjobs.tables.silver import SilverEvent


def tenures_of(facts: Facts) -> Iterator[ControllerTenure]:
    """One for each controller epoch in the logs, in their order."""
    before: tuple[Term, Term] | None = None
    for index, term in enumerate(facts.terms):
        after = facts.terms[index + 1] if index + 1 < len(facts.terms) else None
        to_lo_ms, to_ms, to_hi_ms = _end_of(term, after, facts)
        gap_ms = None
        if before is not None:
            _, before_to_ms, _ = _end_of(*before, facts)
            gap_ms = None if before_to_ms is None else max(0, term.from_ms - before_to_ms)
        from_lo_ms = min(facts.first_ms, term.from_ms)
        if before is not None:
            from_lo_ms = min(_end_of(*before, facts)[0] or term.from_ms, term.from_ms)
        yield ControllerTenure(
            cluster=facts.cluster,
            controller_epoch=term.controller_epoch,
            broker=term.broker,
            from_ms=term.from_ms,
            from_lo_ms=from_lo_ms,
            evidence=term.evidence,
            ready_ms=term.ready_ms,
            done_ms=term.done_ms,
            to_ms=to_ms,
            to_lo_ms=to_lo_ms,
            to_hi_ms=to_hi_ms,
            why_ended=term.why_ended,
            gap_before_ms=gap_ms,
            file_id=term.place.file_id,
            line_no=term.place.line_no,
        )
        before = (term, after) if after is not None else None


def _end_of(term: Term, after: Term | None, facts: Facts) -> tuple[int | None, int | None, int | None]:
    """Returns the earliest, the likeliest and the latest end of a term. A zombie wrote the lines after its successor's
    claim."""
    if after is None:
        is_over = term.goodbye_ms is not None
        return (term.goodbye_ms, term.goodbye_ms, None) if is_over else (None, None, None)
    hi_ms = after.from_ms
    # a broker that lost the seat but lives on still writes lines, though no longer as the controller; so does one that
    # lost it to a controller that these logs do not know
    is_deposed = term.why_ended == "deposed" or after.controller_epoch > term.controller_epoch + 1
    heard_ms = min(term.last_ms, hi_ms) if is_deposed else facts.voices.get((term.broker, hi_ms))
    lo_ms = min(max(heard_ms if heard_ms is not None else term.from_ms, term.from_ms), hi_ms)
    if any(one.broker == after.broker for one in facts.quorum):
        # KRaft's controller takes the seat from one that lives and works, and learns of it later
        lo_ms = term.ready_ms or term.from_ms
    if term.goodbye_ms is not None and term.goodbye_ms <= hi_ms:
        if term.why_ended == "expired":  # it learns so later than it is so, and may have worked on meanwhile
            lo_ms = term.ready_ms or term.from_ms
        return min(lo_ms, term.goodbye_ms), term.goodbye_ms, hi_ms
    if term.why_ended == "deposed":
        return min(lo_ms, hi_ms), hi_ms, hi_ms
    loss = next((one for one in facts.losses if one.was_controller and one.detected_ms == hi_ms), None)
    about_ms = None if loss is None or loss.broker != term.broker else facts.went_about_ms(loss)
    likely_ms = lo_ms if about_ms is None else min(max(about_ms, lo_ms), hi_ms)
    return lo_ms, likely_ms, hi_ms


def _births_of(broker: int, facts: Facts) -> list[int]:
    """Returns when each life of a broker begins: with its start, or, where no line tells of a start, with its first
    sign after it went. A broker that only lost its session lived on."""
    births = facts.births(broker)
    losses = [loss for loss in facts.losses if loss.broker == broker]
    for loss, following in zip_longest(losses, losses[1:]):
        until_ms = facts.last_ms + 1 if following is None else following.detected_ms
        back_ms = next((ms for ms in facts.back.get(broker, ()) if loss.detected_ms < ms < until_ms), None)
        has_start = any(loss.silent_from_ms <= ms < until_ms for ms in facts.births(broker))
        if back_ms is not None and not has_start and how_it_went(loss, facts) != "expired":
            births.append(back_ms)
    return sorted(births)


def _last_words(broker: int, from_ms: int, to_ms: int, facts: Facts) -> Iterator[int]:
    """Returns the last lines that it wrote as the controller."""
    yield from (
        term.last_ms
        for term in facts.terms
        if term.broker == broker and from_ms <= term.from_ms and term.last_ms < to_ms
    )


def lives_of_brokers(facts: Facts, first_heard: dict[int, int], last_heard: dict[int, int]) -> Iterator[BrokerLife]:
    """Each stretch from a start, or a return, to the last word before the next one."""
    for broker in sorted(first_heard):
        starts = [ms for ms in _births_of(broker, facts) if ms > first_heard[broker]]
        births = [first_heard[broker], *starts]
        for index, from_ms in enumerate(births):
            to_ms = births[index + 1] if index + 1 < len(births) else facts.last_ms + 1
            losses = [loss for loss in facts.losses if loss.broker == broker and from_ms < loss.silent_from_ms <= to_ms]
            lost = losses[-1] if losses else None
            how = "running" if lost is None else how_it_went(lost, facts)
            if lost is None and to_ms in starts and any(from_ms <= ms < to_ms for ms in facts.goodbyes.get(broker, ())):
                how = "stopped"  # and no controller missed it meanwhile
            heard_ms = facts.voices.get((broker, to_ms), last_heard[broker])
            if lost is not None and how != "expired":
                # lines that it writes while it boots are of the next life; its last words may come after it was missed
                heard_ms = facts.last_heard_ms(lost) or heard_ms
                heard_ms = max([heard_ms, *_last_words(broker, from_ms, to_ms, facts)])
            yield BrokerLife(
                cluster=facts.cluster,
                broker=broker,
                from_ms=from_ms,
                last_seen_ms=max(min(heard_ms, to_ms), from_ms),
                started=from_ms in facts.births(broker),
                ended=how,
                gone_ms=None if lost is None else lost.detected_ms,
            )


#: our own lines of the claim, of the readiness, and of the end of the takeover
CLAIMED: Final = "claimed"
READY: Final = "told"
DONE: Final = "acknowledged"
_NO_STEP: Final = "resigning"


class _Stretch(NamedTuple):
    phase: str
    from_ms: int
    to_ms: int | None
    took_ms: float | None
    step: Step


def is_said(event: SilverEvent, phase: str) -> bool:
    """Returns whether our controller says with it that this phase is over."""
    return event.event == "controller_reported" and event.to_state == phase


def steps_in(events: Iterable[SilverEvent]) -> Iterator[Step]:
    """In the order of `events`."""
    for event in events:
        place = (event.file_id, event.line_no)
        if event.broker is None:
            continue
        if event.event in ("failover_started", "failover_step") and event.reason != _NO_STEP:
            yield Step(event.broker, None, event.ts_adj, event.reason or "starting", None, *place)
        elif event.event == "controller_reported" and event.to_state is not None and event.elapsed_ms is not None:
            epoch = event.controller_epoch
            yield Step(event.broker, epoch, event.ts_adj, event.to_state, event.elapsed_ms, *place)


def phases_of(facts: Facts) -> Iterator[ControllerPhase]:
    """Of every takeover that these logs tell of, in the order of the epochs."""
    for index, term in enumerate(facts.terms):
        again_ms = min((one.from_ms for one in facts.terms[index + 1 :] if one.broker == term.broker), default=None)
        ours = [one for one in facts.steps if one.since_ms is not None and _is_of(one, term)]
        begun = [one for one in facts.steps if one.since_ms is None and one.broker == term.broker]
        begun = [one for one in begun if term.from_ms <= one.at_ms and (again_ms is None or one.at_ms < again_ms)]
        for one in _ended(ours) if ours else _begun(begun, term):
            yield ControllerPhase(
                cluster=facts.cluster,
                controller_epoch=term.controller_epoch,
                broker=term.broker,
                from_ms=one.from_ms,
                phase=one.phase,
                to_ms=one.to_ms,
                took_ms=one.took_ms,
                file_id=one.step.file_id,
                line_no=one.step.line_no,
            )


def _is_of(step: Step, term: Term) -> bool:
    return (step.broker, step.controller_epoch) == (term.broker, term.controller_epoch)


def _ended(steps: Sequence[Step]) -> Iterator[_Stretch]:
    """Each from where the one before ended; the last mark of a phase counts."""
    last = {one.name: one for one in sorted(steps, key=lambda one: (one.since_ms, one.at_ms))}
    since_ms = 0.0
    for one in sorted(last.values(), key=lambda one: (one.since_ms, one.at_ms)):
        took_ms = round((one.since_ms or 0.0) - since_ms, 1)
        yield _Stretch(one.name, one.at_ms - round(took_ms), one.at_ms, took_ms, one)
        since_ms = one.since_ms or 0.0


def _begun(steps: Sequence[Step], term: Term) -> Iterator[_Stretch]:
    """Returns the phases, each until the next begins. A phase after "ready" is finished by "done"."""
    ends = [ms for ms in (term.ready_ms, term.done_ms) if ms is not None]
    for step, following in itertools.zip_longest(steps, steps[1:]):
        ends_ms = min((ms for ms in ends if ms >= step.at_ms), default=None)
        to_ms = ends_ms if following is None else following.at_ms
        yield _Stretch(step.name, step.at_ms, to_ms, None if to_ms is None else float(to_ms - step.at_ms), step)
    if steps and term.ready_ms is not None and term.done_ms is not None and steps[-1].at_ms <= term.ready_ms:
        took_ms = float(term.done_ms - term.ready_ms)
        if took_ms >= 0:
            yield _Stretch("finishing", term.ready_ms, term.done_ms, took_ms, steps[-1])


class Stretch(NamedTuple):
    """Some time."""

    from_ms: int
    to_ms: int


def is_goodbye(event: SilverEvent) -> bool:
    """Our controller says that a broker is to be stopped."""
    return (event.event, event.to_state, event.cause) == ("broker_changed", "draining", "controlled_shutdown")


def again_in(events: Iterable[SilverEvent]) -> dict[int, list[int]]:
    """Returns the moments at which brokers began anew. Our logs have no line that a process begins, but a broker that
    had said goodbye and registers anew was started in between. Where it took the seat at once, the claim is its first
    word. `events` are in order of time."""
    left: dict[int, int] = {}  # broker: the registration that it said goodbye with
    claims: dict[tuple[int | None, int | None], int] = {}
    found: dict[int, list[int]] = {}
    for event in events:
        if is_said(event, CLAIMED):
            claims.setdefault((event.broker, event.controller_epoch), event.ts_adj)
        if event.event != "broker_changed" or event.peer_broker is None or event.broker_epoch is None:
            continue
        if is_goodbye(event):
            left[event.peer_broker] = event.broker_epoch
        elif event.to_state == "live" and event.broker_epoch > left.get(event.peer_broker, event.broker_epoch):
            del left[event.peer_broker]
            is_own = event.broker == event.peer_broker
            at_ms = claims.get((event.broker, event.controller_epoch), event.ts_adj) if is_own else event.ts_adj
            found.setdefault(event.peer_broker, []).append(at_ms)
    return found


def silences_of(cluster: str, lives: Iterable[BrokerLife]) -> Iterator[ClusterSilence]:
    """Returns the stretches that no life covers, from the first life to the last."""
    until_ms: int | None = None
    last: int = -1
    for life in sorted(lives, key=lambda life: (life.from_ms, life.broker)):
        if until_ms is not None and life.from_ms > until_ms and life.started:
            yield ClusterSilence(
                cluster=cluster, from_ms=until_ms, to_ms=life.from_ms, last_heard=last, first_back=life.broker
            )
        if until_ms is None or life.last_seen_ms > until_ms:
            until_ms, last = life.last_seen_ms, life.broker


def spoken_of(from_ms: int, to_ms: int, silences: Sequence[Stretch]) -> Iterator[Stretch]:
    """Returns the stretch without its silences. `silences` are in order, and none touches another."""
    for silence in silences:
        if from_ms < silence.to_ms and silence.from_ms < to_ms:
            if from_ms < silence.from_ms:
                yield Stretch(from_ms, silence.from_ms)
            from_ms = silence.to_ms
    if from_ms < to_ms:
        yield Stretch(from_ms, to_ms)
