"""The brokers that went, and when a controller noticed: from controllers' lines, and from brokers that the next one
missed.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from sparkjobs.rules.facts import (
    MARGIN_MS,
    Loss,
    Place,
    Tally,
    Term,
)
from sparkjobs.tables.silver import SilverEvent

#: a broker's line about a request: its controller takes the broker for alive
_TOLD: Final = frozenset(
    {"request_received", "request_done", "request_started", "leader_started", "follower_started", "metadata_cached"}
)
#: a request is done that long after its controller spoke, or that controller's lines are missing
UNHEARD_MS: Final = 10_000

#: broker: moments at which it obeyed a controller, and that controller's epoch
Signs = Mapping[int, Sequence[tuple[int, int]]]


def signs_in(tallies: Iterable[Tally]) -> Signs:
    """The first and the last of each kind of line are known."""
    found: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for one in tallies:
        if one.role == "broker" and one.event in _TOLD and one.broker is not None and one.controller_epoch:
            found[one.broker] |= {(one.first_ms, one.controller_epoch), (one.last_ms, one.controller_epoch)}
    return {broker: sorted(moments) for broker, moments in found.items()}


def sign_after(loss: Loss, signs: Signs, before_ms: int) -> int | None:
    """Returns when the broker is known to have been back, by its work for the controller that missed it or for a later
    one."""
    for at_ms, epoch in signs.get(loss.broker, ()):
        if loss.detected_ms + MARGIN_MS < at_ms < before_ms and epoch >= (loss.controller_epoch or 0):
            return at_ms
    return None


def losses_in(tallies: Sequence[Tally], terms: Sequence[Term], events: Sequence[SilverEvent]) -> list[Loss]:
    """One for each time that a broker went, the first that was said of it."""
    said, signs = [*_losses_said(events, terms), *_losses_found_at_takeover(tallies, terms, events)], signs_in(tallies)
    said = [loss for loss in said if not _lived_on(loss, signs, terms, events)]
    kept: list[Loss] = []
    for loss in sorted(said, key=lambda loss: (loss.detected_ms, loss.broker, loss.evidence)):
        before = next((one for one in reversed(kept) if one.broker == loss.broker), None)
        if (
            before is None
            or _came_between(loss.broker, before.detected_ms, loss.detected_ms, events)
            or sign_after(before, signs, loss.detected_ms) is not None
        ):
            kept.append(replace(loss, silent_from_ms=_silent_from_ms(loss, events)))
    return kept


def _lived_on(loss: Loss, signs: Signs, terms: Sequence[Term], events: Sequence[SilverEvent]) -> bool:
    """Returns whether a controller that was taken for lost, as another one took over, obeyed its successor without
    having begun or registered anew. It lost the seat alone."""
    if not loss.was_controller or loss.controller_epoch is None:
        return False
    own = [event for event in events if event.broker == loss.broker]
    told_ms = next((at_ms for at_ms, epoch in signs.get(loss.broker, ()) if epoch >= loss.controller_epoch), None)
    held = [term for term in terms if term.broker == loss.broker and term.controller_epoch < loss.controller_epoch]
    if told_ms is None or not held:
        return False
    if not any(event.event == "server_starting" for event in own):
        # nothing tells of starts; no process of Kafka's boots as fast
        return told_ms <= loss.detected_ms + MARGIN_MS and not any(event.event == "broker_changed" for event in events)
    return not any(event.event in _ANEW and held[-1].from_ms < event.ts_adj <= told_ms for event in own)


#: a broker's lines about the beginning of its own life or session
_ANEW: Final = frozenset({"server_starting", "registered", "session_expired"})


def _silent_from_ms(loss: Loss, events: Sequence[SilverEvent]) -> int:
    """A broker that began anew but had not registered yet when its loss was noticed was lost in its life
    before."""
    own = [event for event in events if event.broker == loss.broker and event.ts_adj < loss.detected_ms]
    start_ms = next((event.ts_adj for event in reversed(own) if event.event == "server_starting"), None)
    if start_ms is None or any(event.event == "registered" and event.ts_adj >= start_ms for event in own):
        return loss.detected_ms
    return start_ms


def _came_between(broker: int, after_ms: int, before_ms: int, events: Sequence[SilverEvent]) -> bool:
    """Returns whether any line, of the broker or of another one, says that it was back between the two moments."""
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
    """Returns the brokers that the controller of this term found alive, by its own line."""
    for event in events:
        is_its = event.broker == term.broker and term.from_ms <= event.ts_adj <= term.last_ms
        if event.event == "brokers_met" and is_its:
            return {*(event.replicas or ()), term.broker}
    return None


def _lived_under(term: Term, until_ms: int, events: Iterable[SilverEvent]) -> set[int]:
    """Returns the brokers that the controller took for alive at the end."""
    lived: set[int] = set()
    for event in events:
        is_its = event.broker == term.broker and term.from_ms <= event.ts_adj <= until_ms
        if event.event in ("brokers_met", "brokers_changed") and is_its:
            lived = {*(event.replicas or ())}
    return lived


def _losses_found_at_takeover(
    tallies: Sequence[Tally], terms: Sequence[Term], events: Sequence[SilverEvent]
) -> list[Loss]:
    """Returns the brokers that went while there was no controller. No line says that they are gone: the next controller
    just does not meet them."""
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
            if event.event == "broker_changed" and event.cause == "term_started"
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
