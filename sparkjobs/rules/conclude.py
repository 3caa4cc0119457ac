"""Concludes the facts about a cluster: terms from claims and epochs, times from the brokers' own lines.

Pure. Where an epoch gives an order, no clock is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from sparkjobs.parse.timestamps import LAST_MS
from sparkjobs.rules.facts import (
    CLUSTER_EVENTS,
    GOODBYES,
    ElectionRequest,
    Facts,
    Loss,
    Place,
    Tally,
    Term,
    by_number_in,
    in_order,
    is_answer,
)
from sparkjobs.rules.kraft import QUORUM_EVENTS, STOPS, readers_in
from sparkjobs.rules.losses import UNHEARD_MS, losses_in, sign_after, signs_in
from sparkjobs.rules.tenures import CLAIMED, DONE, READY, again_in, is_goodbye, is_said, steps_in
from sparkjobs.rules.zookeeper_outages import gaps_of
from sparkjobs.tables.silver import SilverEvent


def facts_for(cluster: str, tallies: Sequence[Tally], events: Iterable[SilverEvent]) -> Facts:
    """Returns all but the voices. `events` are those that are `is_of_cluster`, in any order, as are the tallies."""
    tallies = in_order(tallies)
    ordered = sorted(events, key=lambda event: (event.ts_adj, event.event_id))
    known = [event for event in ordered if event.event in CLUSTER_EVENTS]
    terms = _terms(tallies, known)
    times = _times(known)
    losses = losses_in(tallies, terms, known)
    moved_epochs = _moved_epochs(tallies)
    deletions: dict[str, list[int]] = {}
    deleted: dict[str, list[int]] = {}
    for event in known:
        if event.topic is not None and _begins_deletion(event):
            deletions.setdefault(event.topic, []).append(event.ts_adj)
        elif event.topic is not None and _ends_deletion(event):
            deleted.setdefault(event.topic, []).append(event.ts_adj)
    return Facts(
        cluster=cluster,
        first_ms=min((one.first_ms for one in tallies), default=0),
        last_ms=max((one.last_ms for one in tallies), default=0),
        terms=terms,
        losses=losses,
        deletions=deletions,
        deleted=deleted,
        gaps=sorted(gaps_of(known)),
        steps=list(steps_in(known)),
        asked=[
            ElectionRequest(event.ts_adj, event.reason or "", event.file_id, event.line_no)
            for event in known
            if event.event == "preferred_election_asked"
        ],
        clock_err_ms=_clock_errors(known),
        by_number=by_number_in(tallies),
        answered=_answered(event for event in ordered if is_answer(event)),
        starts=times["starts"],
        goodbyes=times["goodbyes"],
        again=again_in(known),
        returns=_with_signs(times["returns"], losses, tallies),
        signs=times["signs"],
        back=_back(losses, times, tallies),
        session_ms=_session_ms(known),
        tell_deletions=_tell_deletions(tallies),
        is_end_told=_is_end_told(tallies, terms),
        moved=[event for event in known if event.event == "states_moved"],
        moved_epochs=moved_epochs,
        quorum=[event for event in known if event.event in QUORUM_EVENTS],
        stopping=[event for event in known if event.event in STOPS],
        metadata_readers=readers_in(tallies),
        told_epochs=moved_epochs | _epochs(one for one in tallies if _is_traced(one)),
    )


def _after(losses: Sequence[Loss]) -> Iterator[tuple[Loss, int]]:
    """Each loss, and when the same broker was lost the next time."""
    following: dict[int, int] = {}
    for loss in reversed(losses):
        yield loss, following.get(loss.broker, LAST_MS)
        following[loss.broker] = loss.detected_ms


def _with_signs(
    returns: Mapping[int, Sequence[int]], losses: Sequence[Loss], tallies: Sequence[Tally]
) -> dict[int, list[int]]:
    """Where no controller says that a broker came back, its own first sign of life does."""
    found, signs = {broker: list(moments) for broker, moments in returns.items()}, signs_in(tallies)
    for loss, until_ms in _after(losses):
        said = found.setdefault(loss.broker, [])
        if not any(loss.detected_ms <= ms < until_ms for ms in said):
            sign_ms = sign_after(loss, signs, until_ms)
            said += [] if sign_ms is None else [sign_ms]
    return {broker: sorted(moments) for broker, moments in found.items() if moments}


def _back(
    losses: Sequence[Loss], times: Mapping[str, Mapping[int, Sequence[int]]], tallies: Sequence[Tally]
) -> dict[int, list[int]]:
    """Returns the first sign of life of brokers after their losses: a controller met them, or they did as it bid."""
    found, signs = dict[int, list[int]](), signs_in(tallies)
    for loss, until_ms in _after(losses):
        known = [ms for ms in times["returns"].get(loss.broker, ()) if loss.detected_ms < ms < until_ms]
        sign_ms = sign_after(loss, signs, until_ms)
        known += [] if sign_ms is None else [sign_ms]
        if known:
            found.setdefault(loss.broker, []).append(min(known))
    return {broker: sorted(moments) for broker, moments in found.items()}


def _session_ms(events: Iterable[SilverEvent]) -> dict[int, int]:
    """Returns the longest time-out that ZooKeeper granted to each broker."""
    found: dict[int, int] = {}
    for event in events:
        if event.event == "session_established" and event.broker is not None and event.elapsed_ms is not None:
            found[event.broker] = max(round(event.elapsed_ms), found.get(event.broker, 0))
    return found


def _is_end_told(tallies: Iterable[Tally], terms: Sequence[Term]) -> bool:
    """Returns whether no broker obeyed the last controller, or a later one, after the last line of that controller."""
    if not terms:
        return True
    last = terms[-1]
    signs = [sign for of_broker in signs_in(tallies).values() for sign in of_broker]
    told = [at_ms for at_ms, epoch in signs if epoch >= last.controller_epoch]
    return max(told, default=last.last_ms) <= last.last_ms + UNHEARD_MS


def _is_traced(one: Tally) -> bool:
    """Returns whether each move of Kafka's controller has a line where there are such lines."""
    is_told = one.event in ("partition_changed", "replica_changed", "request_sent")
    return is_told and one.level == "TRACE" and one.role == "controller"


#: our controller has lines of these in every term
_OURS: Final = frozenset({"controller_reported", "broker_changed"})


def _moved_epochs(tallies: Iterable[Tally]) -> frozenset[int]:
    """Terms of our controller since it tells moves; some have none to tell."""
    tallies = list(tallies)
    telling = _epochs(one for one in tallies if one.event == "states_moved")
    ours = _epochs(one for one in tallies if one.event in _OURS)
    return telling | {epoch for epoch in ours if telling and epoch > min(telling)}


def _epochs(tallies: Iterable[Tally]) -> frozenset[int]:
    return frozenset(one.controller_epoch for one in tallies if one.controller_epoch is not None)


#: lines of Kafka's controller.log
_OF_CONTROLLER_LOG: Final = frozenset({"controller_elected", "controller_epoch_raised", "failover_step", "brokers_met"})


def _tell_deletions(tallies: Iterable[Tally]) -> frozenset[int]:
    """Controllers whose logs would tell of a deletion: their controller.log, all moves at TRACE, or our own lines."""
    return frozenset(
        one.broker
        for one in tallies
        if one.broker is not None
        if one.event in _OF_CONTROLLER_LOG
        or one.event == "controller_reported"
        or (one.event == "replica_changed" and one.role == "controller")
    )


def _times(events: Iterable[SilverEvent]) -> dict[str, dict[int, list[int]]]:
    """Returns when brokers began, said goodbye, came back and gave a sign of life."""
    times: dict[str, dict[int, list[int]]] = {"starts": {}, "goodbyes": {}, "returns": {}, "signs": {}}
    for event in events:
        if event.event == "server_starting" and event.broker is not None:
            times["starts"].setdefault(event.broker, []).append(event.ts_adj)
        elif event.event in ("registered", "session_expired") and event.broker is not None:
            times["signs"].setdefault(event.broker, []).append(event.ts_adj)
        elif event.event in GOODBYES and event.broker is not None:
            times["goodbyes"].setdefault(event.broker, []).append(event.ts_adj)
        elif event.event == "broker_shutdown_requested" and event.peer_broker is not None:
            times["goodbyes"].setdefault(event.peer_broker, []).append(event.ts_adj)
        elif event.event == "broker_changed" and event.peer_broker is not None:
            if is_goodbye(event):
                times["goodbyes"].setdefault(event.peer_broker, []).append(event.ts_adj)
            elif (event.from_state, event.to_state) == ("gone", "live") and event.cause != "term_started":
                times["returns"].setdefault(event.peer_broker, []).append(event.ts_adj)
        elif event.event == "brokers_changed":
            for broker in event.added or ():
                times["returns"].setdefault(broker, []).append(event.ts_adj)
    return times


def _answered(answers: Iterable[SilverEvent]) -> dict[str, dict[int, int]]:
    """By cause; `answers` in order of time."""
    found: dict[str, dict[int, int]] = {}
    for event in answers:
        if event.cause_id is not None and event.broker is not None:
            found.setdefault(event.cause_id, {})[event.broker] = event.ts_adj
    return found


def _clock_errors(events: Iterable[SilverEvent]) -> dict[int, int | None]:
    """Of the brokers whose clocks were compared; `None` where nothing could be said."""
    found: dict[int, int | None] = {}
    for event in events:
        if event.broker is not None and event.skew_ms is not None:
            known = found.get(event.broker, 0)
            err_ms = event.skew_err_ms
            found[event.broker] = None if known is None or err_ms is None else max(err_ms, known)
    return found


def _begins_deletion(event: SilverEvent) -> bool:
    return event.event == "topic_deletion_started" or (event.event == "topic_changed" and event.to_state == "deleting")


def _ends_deletion(event: SilverEvent) -> bool:
    return event.event == "topic_deleted" or (event.event == "topic_changed" and event.to_state == "deleted")


def _terms(tallies: Sequence[Tally], events: Sequence[SilverEvent]) -> list[Term]:
    """By epoch. A claim is a line that says so; without one, the first line under a new epoch has to do."""
    claims: dict[int, SilverEvent] = {}
    for event in events:
        is_claim = event.event in ("controller_elected", "controller_epoch_raised") or is_said(event, CLAIMED)
        if is_claim and event.controller_epoch is not None:
            claims.setdefault(event.controller_epoch, event)
    # epoch: the first speaker under it, first moment, last moment, place of the first line
    spans: dict[int, tuple[int, int, int, Place]] = {}
    for one in tallies:
        if one.role != "controller" or one.is_found or one.broker is None:
            continue
        if not one.controller_epoch:  # 0: a controller that resigned and still writes lines
            continue
        holder, first_ms, last_ms, place = spans.get(
            one.controller_epoch, (one.broker, one.first_ms, one.last_ms, one.first)
        )
        spans[one.controller_epoch] = (holder, first_ms, max(last_ms, one.last_ms), place)
    bare = []
    for epoch in sorted(claims.keys() | spans.keys()):
        if epoch in claims and (claim := claims[epoch]).broker is not None:
            last_ms = max(claim.ts_adj, spans[epoch][2] if epoch in spans else claim.ts_adj)
            place = Place(claim.file_id, claim.line_no)
            bare.append(Term(epoch, claim.broker, claim.ts_adj, "exact", place, last_ms))
        elif epoch in spans:
            holder, first_ms, last_ms, place = spans[epoch]
            bare.append(Term(epoch, holder, first_ms, "inferred", place, last_ms))
    return [_with_its_course(term, bare[index + 1 : index + 2], events) for index, term in enumerate(bare)]


#: lines of a holder about the end of its term, and how the term then ended
_ENDS: Final = {
    "session_expired": "expired",
    "controller_moved": "deposed",
    "controller_resigned": "deposed",
    **dict.fromkeys(GOODBYES, "stopped"),
}


def _with_its_course(term: Term, following: Sequence[Term], events: Sequence[SilverEvent]) -> Term:
    """Returns when it was ready and done, and how it ended. A holder may learn of its end only after the next one
    began."""
    again_ms = next((e.ts_adj for e in events if _is_new_life(e, term)), None)
    own = [e for e in events if e.broker == term.broker and e.ts_adj >= term.from_ms]
    own = [e for e in own if again_ms is None or e.ts_adj < again_ms]

    def first(*names: str) -> int | None:
        return next((e.ts_adj for e in own if e.event in names), None)

    ready_ms, done_ms = _said_ms(own, term, READY), _said_ms(own, term, DONE)
    # the holder itself is the one that is asked to let a broker shut down, be it the holder
    asked_ms = next(
        (e.ts_adj for e in own if (e.event, e.peer_broker) == ("broker_shutdown_requested", term.broker)), None
    )
    goodbye_ms = first(*_ENDS)
    stopped_ms = min((ms for ms in (asked_ms, first(*GOODBYES)) if ms is not None), default=None)
    if stopped_ms is not None and (not following or stopped_ms <= following[0].from_ms):
        why: str | None = "stopped"
    else:  # the first line counts: later ones may be about a broker that is no longer the controller
        ended = next((_ENDS[e.event] for e in own if e.event in _ENDS and e.event not in GOODBYES), None)
        why = ended or ("lost" if following else None)
    return Term(
        term.controller_epoch,
        term.broker,
        term.from_ms,
        term.evidence,
        term.place,
        term.last_ms,
        ready_ms=first("controller_ready") if ready_ms is None else ready_ms,
        done_ms=first("failover_done") if done_ms is None else done_ms,
        goodbye_ms=goodbye_ms,
        why_ended=why,
    )


def _said_ms(events: Iterable[SilverEvent], term: Term, phase: str) -> int | None:
    """Returns when our controller said that this phase of this term was over."""
    said = (e.ts_adj for e in events if is_said(e, phase) and e.controller_epoch == term.controller_epoch)
    return next(said, None)


def _is_new_life(event: SilverEvent, term: Term) -> bool:
    """Returns whether the holder's process began anew, its successor saw it come, or it was elected again. Its lines
    from then on are not of this term."""
    if event.event == "brokers_changed" and term.broker in (event.added or ()):
        return event.ts_adj > term.from_ms and event.broker != term.broker
    is_its = event.broker == term.broker and event.ts_adj > term.from_ms
    is_later = event.controller_epoch is not None and event.controller_epoch > term.controller_epoch
    is_claim = event.event == "controller_elected" or is_said(event, CLAIMED)
    return is_its and (event.event == "server_starting" or (is_claim and is_later))
