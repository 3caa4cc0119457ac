"""Which brokers went, and when that was noticed: from what controllers say, and whom the next one did not meet."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sparkjobs.answers.facts import Loss, Place, Tally, Term
from sparkjobs.schemas import SilverEvent


def losses_in(tallies: Sequence[Tally], terms: Sequence[Term], events: Sequence[SilverEvent]) -> list[Loss]:
    """One for each time that a broker went, the first that was said of it."""
    said = [*_losses_said(events, terms), *_losses_found_at_takeover(tallies, terms, events)]
    kept: list[Loss] = []
    for loss in sorted(said, key=lambda loss: (loss.detected_ms, loss.broker, loss.evidence)):
        before = next((one for one in reversed(kept) if one.broker == loss.broker), None)
        if before is None or _came_between(loss.broker, before.detected_ms, loss.detected_ms, events):
            kept.append(replace(loss, silent_from_ms=_silent_from_ms(loss, events)))
    return kept


def _silent_from_ms(loss: Loss, events: Sequence[SilverEvent]) -> int:
    """A broker that began anew but had not registered yet when its loss was noticed was lost in its life before."""
    own = [event for event in events if event.broker == loss.broker and event.ts_adj < loss.detected_ms]
    start_ms = next((event.ts_adj for event in reversed(own) if event.event == "server_starting"), None)
    if start_ms is None or any(event.event == "registered" and event.ts_adj >= start_ms for event in own):
        return loss.detected_ms
    return start_ms


def _came_between(broker: int, after_ms: int, before_ms: int, events: Sequence[SilverEvent]) -> bool:
    """Whether somebody, or the broker itself, says that it was back between the two moments."""
    for event in events:
        if after_ms < event.ts_adj < before_ms:
            if event.event == "brokers_changed" and broker in (event.added or ()):
                return True
            if event.event == "broker_changed" and (event.peer_broker, event.to_state) == (broker, "live"):
                return True
            if event.broker == broker and event.event in ("server_starting", "controller_elected"):
                return True
    return False


def _losses_said(events: Sequence[SilverEvent], terms: Sequence[Term]) -> list[Loss]:
    found = []
    for event in events:
        gone: tuple[int, ...] = ()
        if event.event == "brokers_changed":
            gone = event.removed or ()
        elif event.event == "broker_changed" and event.to_state == "gone" and event.peer_broker is not None:
            gone = (event.peer_broker,)
        holding = next((t for t in reversed(terms) if t.broker == event.broker and t.from_ms <= event.ts_adj), None)
        epoch = event.controller_epoch if holding is None else holding.controller_epoch
        place = Place(event.file_id, event.line_no)
        found += [Loss(broker, event.ts_adj, epoch, event.broker, "exact", place) for broker in gone]
    return found


def _met_by(term: Term, events: Iterable[SilverEvent]) -> set[int] | None:
    """Whom it says that it found alive."""
    for event in events:
        is_its = event.broker == term.broker and term.from_ms <= event.ts_adj <= term.last_ms
        if event.event == "brokers_met" and is_its:
            return {*(event.replicas or ()), term.broker}
    return None


def _lived_under(term: Term, until_ms: int, events: Iterable[SilverEvent]) -> set[int]:
    """Whom it believed to be alive at the end."""
    lived: set[int] = set()
    for event in events:
        is_its = event.broker == term.broker and term.from_ms <= event.ts_adj <= until_ms
        if event.event in ("brokers_met", "brokers_changed") and is_its:
            lived = {*(event.replicas or ())}
    return lived


def _losses_found_at_takeover(
    tallies: Sequence[Tally], terms: Sequence[Term], events: Sequence[SilverEvent]
) -> list[Loss]:
    """Who went while there was no controller is never said to be gone: the next one just does not meet it."""
    found = []
    for before, term in itertools.pairwise(terms):
        taken_out = {
            one.peer_broker: one.first
            for one in tallies
            if one.controller_epoch == term.controller_epoch and one.peer_broker is not None
            if one.first_ms <= (term.ready_ms or term.from_ms)
        }
        met = {
            event.peer_broker
            for event in events
            if event.event == "broker_changed" and event.reason == "term started"
            if event.controller_epoch == term.controller_epoch
        }
        known = {
            event.peer_broker
            for event in events
            if event.event == "broker_changed" and event.controller_epoch == before.controller_epoch
        }
        gone = dict(taken_out) | {broker: term.place for broker in (known - met if met else ()) if broker is not None}
        if before.broker != term.broker and before.why_ended in ("lost", "expired", "stopped"):
            gone.setdefault(before.broker, term.place)
        there = _met_by(term, events)
        if there is not None:
            lived = _lived_under(before, term.from_ms, events)
            gone = {broker: place for broker, place in gone.items() if broker not in there}
            gone |= {broker: gone.get(broker, term.place) for broker in lived - there}
        for broker, place in gone.items():
            if broker is not None and broker != term.broker:
                seat = broker == before.broker and before.why_ended in ("lost", "expired", "stopped")
                epoch, holder = term.controller_epoch, term.broker
                found.append(Loss(broker, term.from_ms, epoch, holder, "inferred", place, was_controller=seat))
    return found
