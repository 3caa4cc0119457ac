"""Violations of `checker/rules_lists.py` and `checker/rules_stops.py`, and of the rules about deleted replicas:
requests of a good history that say something else, or that no broker heard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.faults.checker.history import History, Row, Rpc, Stop, Write
from tests.faults.checker.replay import topic_of
from tests.faults.violations import Violation, added

_LEAD, _METADATA = "leader-and-isr", "update-metadata"
LATER_MS = 10_000


def topic_id_of(history: History, name: str) -> str:
    made = next(w for c in history.commits for w in c.writes if w.path == f"/brokers/topics/{name}" and w.data)
    topic = topic_of(made.data, 0)
    assert topic is not None
    return topic.topic_id or ""


def with_heard(is_meant: Callable[[Rpc], bool], change: Callable[[Rpc], Rpc | None]) -> Violation:
    """Such requests say something else; None: they were never made."""

    def violate(history: History) -> None:
        for name in ("rpcs", "heard"):
            before = list(getattr(history, name))
            assert any(map(is_meant, before))
            after = [change(one) if is_meant(one) else one for one in before]
            getattr(history, name)[:] = [one for one in after if one is not None]

    return violate


def _all_rows(**said: Any) -> Callable[[Rpc], Rpc]:
    return lambda rpc: rpc._replace(rows=tuple(row._replace(**said) for row in rpc.rows or ()))


def _is_full(kind: str) -> Callable[[Rpc], bool]:
    return lambda rpc: rpc.is_full and rpc.kind == kind and rpc.controller_epoch == 2


def _is_new(rpc: Rpc) -> bool:
    return any(row.is_new for row in rpc.rows or ())


def _is_added(rpc: Rpc) -> bool:
    """The first word to broker 3 of the partition that it gets, by a controller that did not lead it first."""
    return _is_new(rpc) and rpc.controller_epoch == 2 and rpc.broker_id == 3


def _stops(leader_epoch: int) -> Callable[[Rpc], bool]:
    return lambda rpc: any(stop.leader_epoch == leader_epoch for stop in rpc.stops)


def _is_dropped(rpc: Rpc) -> bool:
    """Broker 1 is told to delete the replica that a reassignment took from it."""
    return any(stop.is_delete and stop.leader_epoch >= 0 for stop in rpc.stops)


def without_a_row(kind: str) -> Violation:
    return with_heard(_is_full(kind), lambda rpc: rpc._replace(rows=(rpc.rows or ())[1:]))


def _refused(rpc: Rpc) -> Rpc:
    return rpc._replace(refused=frozenset((stop.topic_id, stop.partition) for stop in rpc.stops))


def told_to_delete(name: str, leader_epoch: int) -> Violation:
    """Broker 2 is told to delete its replica."""

    def violate(history: History) -> None:
        stop = Stop(topic_id_of(history, name), 0, leader_epoch, is_delete=True)
        history.rpcs.append(history.rpcs[-1]._replace(kind="stop-replica", broker_id=2, rows=(), stops=(stop,)))

    return violate


def told_to_stop(history: History) -> None:
    """Broker 2, which does not shut down, is told to stop its replica."""
    stop = Stop(topic_id_of(history, "orders"), 0, 1, is_delete=False)
    history.rpcs.append(history.rpcs[-1]._replace(kind="stop-replica", broker_id=2, rows=(), stops=(stop,)))


def told_to_follow_what_it_stopped(history: History) -> None:
    """As if each broker had been told to stop, before, the replica that it is told to follow."""
    followed = next(
        one
        for one in history.heard
        if one.kind == _LEAD and not one.is_full and any(row.leader != one.broker_id for row in one.rows or ())
    )
    row = next(row for row in followed.rows or () if row.leader != followed.broker_id)
    stop = Stop(row.topic_id, row.partition, row.leader_epoch, is_delete=False)
    sent_ms = (followed.sent_ms or 0) - 1
    history.heard.append(followed._replace(kind="stop-replica", rows=(), stops=(stop,), sent_ms=sent_ms))


def deleted_after_it_was_wanted(history: History) -> None:
    """Broker 1 gets back its lost replica, and is told to delete it once more."""
    stopped = next(one for one in history.heard if _is_dropped(one))
    _give_back(history, stopped)
    history.heard.append(stopped._replace(sent_ms=(stopped.sent_ms or 0) + 2 * LATER_MS))


def led_again_without_a_word(history: History) -> None:
    """Broker 1 gets back its lost replica, and was never told to delete it."""
    stopped = next(one for one in history.heard if _is_dropped(one))
    history.heard.remove(stopped)
    _give_back(history, stopped)


def _give_back(history: History, stopped: Rpc) -> None:
    stop = stopped.stops[0]
    row = Row(stop.topic_id, 0, 2, stop.leader_epoch + 1, (2, 3), 9, 2, is_new=True)
    sent_ms = (stopped.sent_ms or 0) + LATER_MS
    history.heard.append(stopped._replace(kind=_LEAD, stops=(), rows=(row,), sent_ms=sent_ms))


def led_after_its_deletion(**said: Any) -> Violation:
    """The deleting controller tells a broker that had it to lead it, when it is gone."""

    def violate(history: History) -> None:
        topic_id = topic_id_of(history, "doomed")
        told = next(one for one in history.rpcs for row in one.rows or () if row.topic_id == topic_id)
        row = next(row for row in told.rows or () if row.topic_id == topic_id)
        last = next(one for one in reversed(history.rpcs) if one.broker_id in (1, 3))
        history.rpcs.append(last._replace(kind=_LEAD, rows=(row,), **said))

    return violate


def with_a_state_of_nothing(history: History) -> None:
    folder = "/brokers/topics/orders/partitions/7"
    state = b'{"controller_epoch":2,"leader":1,"leader_epoch":0,"isr":[1],"version":1}'
    added(Write("create", folder), Write("create", f"{folder}/state", state))(history)


BAD_TELLINGS: dict[str, Violation] = {
    "s22_only_replicas_that_were_dropped_are_deleted": told_to_delete("orders", 0),
    "s22_only_leaving_replicas_are_stopped": told_to_stop,
    "s22_a_stopped_replica_follows_no_more": told_to_follow_what_it_stopped,
    "s22_s28_a_dropped_replicas_broker_is_told_to_delete_it": with_heard(_is_dropped, lambda rpc: None),
    "s22_a_replica_wanted_again_is_deleted_first": deleted_after_it_was_wanted,
    "s23_a_topic_goes_when_no_broker_has_it": with_heard(_stops(-2), lambda rpc: None),
    "s24_states_are_made_of_assigned_replicas": with_a_state_of_nothing,
    "s28_full_lists_are_full": without_a_row(_METADATA),
    "s28_full_lists_are_no_older_than_their_sender": with_heard(_is_full(_METADATA), _all_rows(version=0)),
    "s28_new_replicas_are_told_to_be_new": with_heard(_is_new, _all_rows(is_new=False)),
}
MORE_TELLINGS: list[tuple[str, Violation]] = [
    ("s22_only_replicas_that_were_dropped_are_deleted", told_to_delete("orders", -2)),
    ("s22_only_replicas_that_were_dropped_are_deleted", told_to_delete("moving", 2)),  # that another broker lost
    ("s22_a_replica_wanted_again_is_deleted_first", led_again_without_a_word),
    ("s23_a_topic_goes_when_no_broker_has_it", with_heard(_stops(-2), _refused)),
    ("s23_a_topic_goes_when_no_broker_has_it", with_heard(_stops(-2), lambda rpc: rpc._replace(error_code=11))),
    ("s23_a_topic_goes_when_no_broker_has_it", with_heard(_stops(-2), lambda rpc: rpc._replace(controller_epoch=1))),
    ("s24_a_deleted_topic_is_not_led_again", led_after_its_deletion(sent_zxid=1 << 60)),
    ("s24_a_deleted_topic_is_not_led_again", led_after_its_deletion(sent_zxid=None, sent_ms=1 << 60)),
    ("s24_a_deleted_topic_is_not_led_again", led_after_its_deletion(controller_epoch=3, sent_zxid=None, sent_ms=None)),
    ("s28_full_lists_are_full", without_a_row(_LEAD)),
    ("s28_new_replicas_are_told_to_be_new", with_heard(_is_added, _all_rows(is_new=False))),
    ("s29_told_states_stood_in_zookeeper", with_heard(_is_full(_METADATA), lambda rpc: rpc._replace(sent_zxid=1))),
    (
        "s29_told_states_stood_in_zookeeper",
        with_heard(_is_full(_METADATA), lambda rpc: rpc._replace(sent_zxid=None, sent_ms=1)),
    ),
]
