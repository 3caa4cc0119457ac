"""Who was controller from when to when, and for how long nobody was; which brokers lived when."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from sparkjobs.rules.facts import Facts, Term, how_it_went
from sparkjobs.tables.gold import BrokerLife, ControllerTenure


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
    """Earliest, likeliest, latest. What it said after its successor's claim was said by a zombie."""
    if after is None:
        is_over = term.goodbye_ms is not None
        return (term.goodbye_ms, term.goodbye_ms, None) if is_over else (None, None, None)
    hi_ms = after.from_ms
    # who lost the seat but lives on still says things, though no longer as the controller; nor does who lost it to a
    # controller that these logs do not know
    is_deposed = term.why_ended == "deposed" or after.controller_epoch > term.controller_epoch + 1
    heard_ms = min(term.last_ms, hi_ms) if is_deposed else facts.voices.get((term.broker, hi_ms))
    lo_ms = min(max(heard_ms if heard_ms is not None else term.from_ms, term.from_ms), hi_ms)
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
    """When a life of it begins: with its start, or, where no line tells of one, with its first sign after it went. Who
    only lost its session lived on."""
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
    """What it said last as the controller."""
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
                how = "stopped"  # and nobody missed it meanwhile
            heard_ms = facts.voices.get((broker, to_ms), last_heard[broker])
            if lost is not None and how != "expired":
                # what is written while it boots is of the next life; its last words may come after it was missed
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
