"""Rules about replicas that are to be deleted: those that a reassignment dropped, and those of a topic that goes.

Of the whole run, as in `rules_tellings.py`. Requests and answers have to be known; where they need not be, a rule says
nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import takewhile
from typing import Final

from controller.core.formats import decode_marker
from controller.core.project.requests import EPOCH_DURING_DELETE
from tests.faults.checker.history import SLACK_MS, History, Rpc, Stop, json_of
from tests.faults.checker.replay_facts import Deleted, Known, RunRule
from tests.faults.checker.rules_lists import LEAD, Who, believed_in, who_of
from tests.faults.checker.rules_tellings import REMOVED
from tests.faults.checker.rules_zookeeper import slack_of
from tests.faults.checker.writers import Wrong

_STOP: Final = "stop-replica"
#: the receiver of a controller's request, and the partition
_Place = tuple[Who, str, int]


def s22_only_replicas_that_were_dropped_are_deleted(history: History, known: Known) -> Iterator[Wrong]:
    """By the decision whose leader epoch the request names, or with their topic, whose marker stood by then."""
    drops: dict[tuple[str, int, int, int], int] = {}
    for one in known.dropped:
        place = one.topic_id, one.key[1], one.broker_id, one.state.leader_epoch
        drops[place] = min(one.zxid, drops.get(place, one.zxid))
    for rpc in history.rpcs:
        until = known.zxid_known_to(rpc)
        for stop in rpc.stops if until is not None else ():
            name = known.names.get(stop.topic_id, "?")
            if stop.leader_epoch == EPOCH_DURING_DELETE:
                marker = known.standing(f"/admin/delete_topics/{name}", 0, until or 0)
                is_meant = any(one.data is not None for one in marker)
            else:
                place = stop.topic_id, stop.partition, rpc.broker_id, stop.leader_epoch
                is_meant = place in drops and drops[place] <= (until or 0)
            if stop.is_delete and not is_meant:
                yield (
                    (name, stop.partition),
                    f"broker {rpc.broker_id} was told to delete {stop}, which nobody had taken from it then",
                )


def s22_only_leaving_replicas_are_stopped(history: History, known: Known) -> Iterator[Wrong]:
    """Stopped and not deleted are replicas of a broker that shuts down, and those of a topic whose deletion begins."""
    for rpc in history.rpcs:
        until = known.zxid_known_to(rpc)
        for stop in rpc.stops if until is not None else ():
            name = known.names.get(stop.topic_id, "?")
            if stop.is_delete:
                continue
            if stop.leader_epoch == EPOCH_DURING_DELETE:
                path, wanted = f"/admin/delete_topics/{name}", dict[str, object]()
            else:
                path, wanted = (
                    f"/klamm/draining/{rpc.broker_id}",
                    {"broker_epoch": rpc.broker_epoch, "by": "shutdown"},
                )
            stood = [one.data for one in known.standing(path, 0, until or 0) if one.data is not None]
            if not any(wanted.items() <= json_of(data or b"{}").items() for data in stood):
                text = "and neither it nor the topic was to go"
                yield (name, stop.partition), f"broker {rpc.broker_id} was told to stop {stop}, {text}"


def s22_a_stopped_replica_follows_no_more(history: History, known: Known) -> Iterator[Wrong]:
    """About replicas that a broker was told to stop as it shuts down, it is told only of their new leaders, or all that
    it has. To one incarnation, by one controller: it has one request on its way at a time."""
    stopped: set[_Place] = set()
    for rpc in sorted(history.heard, key=lambda one: one.sent_ms or 0):
        for row in rpc.rows or () if rpc.kind == LEAD else ():
            place = who_of(rpc), row.topic_id, row.partition
            if place in stopped and not rpc.is_full and row.leader not in (rpc.broker_id, REMOVED):
                key = known.names.get(row.topic_id, "?"), row.partition
                yield key, f"broker {rpc.broker_id} was told to follow by {row} what it was told to stop"
            stopped.discard(place)
        for stop in rpc.stops:
            if not stop.is_delete and stop.leader_epoch != EPOCH_DURING_DELETE:
                stopped.add((who_of(rpc), stop.topic_id, stop.partition))


def s22_a_replica_wanted_again_is_deleted_first(history: History, known: Known) -> Iterator[Wrong]:
    """A replica that a decision took from a broker is deleted before the broker is told of a later one with it, and not
    any more after that. To one incarnation, by one controller: it has one request on its way at a time."""
    led: defaultdict[_Place, list[tuple[int, int]]] = defaultdict(list)
    stopped: defaultdict[_Place, list[tuple[int, int]]] = defaultdict(list)
    for rpc in history.heard:
        for row in rpc.rows or () if rpc.kind == LEAD else ():
            led[who_of(rpc), row.topic_id, row.partition].append((row.leader_epoch, rpc.sent_ms or 0))
        for stop in rpc.stops:
            if stop.is_delete and stop.leader_epoch != EPOCH_DURING_DELETE:
                stopped[who_of(rpc), stop.topic_id, stop.partition].append((stop.leader_epoch, rpc.sent_ms or 0))
    for place, stops in stopped.items():
        for epoch, sent_ms in stops:
            if any(again > epoch and told_ms < sent_ms for again, told_ms in led[place]):
                key = known.names.get(place[1], "?"), place[2]
                yield key, f"broker {place[0][0]} was told to delete what leader epoch {epoch} took, and has it again"
    believed = believed_in(history, known)
    for one in known.dropped:
        for who in believed(one.broker_id, one):
            place, took = (who, one.topic_id, one.key[1]), one.state.leader_epoch
            for again, told_ms in led[place]:
                is_first = any(took <= epoch < again and sent_ms <= told_ms for epoch, sent_ms in stopped[place])
                if again > took and not is_first:
                    yield (
                        one.key,
                        f"broker {one.broker_id} lost it in leader epoch {took}, and was told {again} at once",
                    )


def s22_s28_a_dropped_replicas_broker_is_told_to_delete_it(history: History, known: Known) -> Iterator[Wrong]:
    """If it lived on, and so did the controller that dropped it: a successor sends a list of all instead."""
    if history.end is None or history.end.converged_after_ms is None or not known.claims:
        return
    epoch, controller_id, claimed_zxid, _ = known.claims[-1]
    told = {
        (stop.topic_id, stop.partition, stop.leader_epoch, one.broker_id, one.broker_epoch)
        for one in history.heard
        for stop in one.stops
        if stop.is_delete and one.controller_epoch == epoch and one.error_code == 0
    }
    here = {one.broker_id: one for one in known.registrations if one.until_ms is None}
    for one in known.dropped:
        who = here.get(one.broker_id)
        is_last = one.zxid > claimed_zxid and one.state.controller_epoch == epoch
        if not is_last or who is None or not history.has_seen(controller_id, one.broker_id):
            continue
        is_known = who.epoch < claimed_zxid or who.from_ms < one.at_ms - slack_of(history)
        if is_known and (one.topic_id, one.key[1], one.state.leader_epoch, one.broker_id, who.epoch) not in told:
            yield one.key, f"broker {one.broker_id} lost it at {one.zxid:#x}, and was never told to delete it"


def s23_a_topic_goes_when_no_broker_has_it(history: History, known: Known) -> Iterator[Wrong]:
    """Each replica's broker has said that it deleted it, to the controller that erases the topic; or the marker says
    that the dead are not waited for, and it was one of them. It sets such replicas aside as it returns."""
    confirmed = {
        (one.controller_epoch, stop.topic_id, stop.partition, one.broker_id): one.at_ms
        for one in reversed(history.heard)
        for stop in one.stops
        if _is_confirmed(one, stop)
    }
    for topic_id, gone in known.deleted.items():
        for number, replicas in gone.replicas.items():
            for broker_id in replicas:
                at_ms = confirmed.get((gone.epoch, topic_id, number, broker_id))
                if at_ms is not None and at_ms <= gone.at_ms + SLACK_MS:
                    continue
                if gone.by_id is None or not history.has_seen(gone.by_id, broker_id):
                    continue
                if not _is_abandoned(known, gone, broker_id, history):
                    yield (gone.name, number), f"it went at {gone.zxid:#x} before broker {broker_id} had deleted it"


def _is_confirmed(rpc: Rpc, stop: Stop) -> bool:
    is_refused = bool(rpc.error_code) or (stop.topic_id, stop.partition) in rpc.refused
    return rpc.kind == _STOP and stop.is_delete and not is_refused


def _is_abandoned(known: Known, gone: Deleted, broker_id: int, history: History) -> bool:
    """Returns whether it was away at some moment after a marker said that the dead are not waited for."""
    said = [one for one in known.values.get(f"/admin/delete_topics/{gone.name}", ()) if one.zxid < gone.zxid]
    marker = takewhile(lambda one: one.data is not None, reversed(said))
    told_ms = [one.at_ms for one in marker if decode_marker(one.data or b"")]
    if not told_ms:
        return False
    from_ms = min(told_ms) - slack_of(history)
    return not any(
        one.broker_id == broker_id and one.from_ms <= from_ms and (one.until_ms is None or one.until_ms > gone.at_ms)
        for one in known.registrations
    )


RULES: Final[tuple[RunRule, ...]] = tuple(
    value for name, value in sorted(globals().items()) if re.match(r"s\d\d_", name)
)
