"""Violations of `checker/rules_read.py` and `rules_notifications.py`: a good history in which a node was read late or
never, and notifications went too early."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tests.faults.checker.history import History, Write
from tests.faults.checker.readings import Reading
from tests.faults.violations import Violation, added

LATER_MS = 60_000


def session_in_the_seat(history: History) -> int:
    claims = [one for one in history.commits if any(w.path == "/controller" and w.data for w in one.writes)]
    return claims[-1].session


def unread(kind: str, path: str) -> Violation:
    """The controller of the end never read this."""
    return with_readings(lambda one: None if (one.kind, path in one.paths) == (kind, True) else one)


def with_readings(changed: Callable[[Reading], Reading | None]) -> Violation:
    def violate(history: History) -> None:
        by, read = session_in_the_seat(history), history.readings or []
        kept = [changed(one) if one.session == by else one for one in read]
        history.readings = [one for one in kept if one is not None]

    return violate


def with_an_older_reading(history: History) -> None:
    assert history.readings is not None
    history.readings.append(history.readings[-1]._replace(zxid=1))


def with_states_read_late(history: History) -> None:
    """As their notification was being removed already."""
    with_readings(lambda one: one._replace(at_ms=one.at_ms + 5) if one.paths[-1].endswith("/state") else one)(history)


def with_a_change_at_the_end(*writes: Write, before: Reading | None = None) -> Violation:
    """And then it rests for a minute, in which no session reads it."""

    def violate(history: History) -> None:
        assert history.end is not None
        assert history.readings is not None
        if before is not None:
            history.readings.append(before._replace(session=session_in_the_seat(history)))
        for write in writes:
            added(write)(history)
        history.end = msgspec.structs.replace(history.end, at_ms=history.commits[-1].at_ms + LATER_MS)

    return violate


def with_nobody_told_to_serve(history: History) -> None:
    history.heard = [one for one in history.heard if one.kind != "leader-and-isr" or one.is_full]


def removed_at_once(path: str, data: bytes) -> Violation:
    def violate(history: History) -> None:
        added(Write("create", path, data))(history)
        added(Write("delete", path))(history)

    return violate


RELIES = "s32_controllers_read_every_change_that_they_rely_on"
EFFECT = "s31_notifications_go_after_the_announced_node_was_read"
ISR_CHANGE = "/isr_change_notification/isr_change_0000000077"
CONFIG_CHANGE = "/config/changes/config_change_0000000077"
ELSEWHERE = Reading(0, "stat", ("/elsewhere",), 1, 0.0, is_watched=True)

BAD_READ: dict[str, Violation] = {
    "s32_nothing_is_read_older_than_before": with_an_older_reading,
    RELIES: unread("list", "/brokers/topics"),
    EFFECT: with_states_read_late,
    "s31_configuration_changes_are_kept_for_all_readers": removed_at_once(CONFIG_CHANGE, b"{}"),
    "s31_a_broker_that_announced_a_log_directory_is_asked": with_nobody_told_to_serve,
}
MORE_READ: list[tuple[str, Violation]] = [
    # nothing is known to have been read
    (RELIES, lambda history: (history.readings or []).clear()),
    (RELIES, unread("data", "/controller")),
    (RELIES, unread("data", "/brokers/topics/probe")),
    (RELIES, with_a_change_at_the_end(Write("set", "/brokers/topics/orders", b"{}"))),
    (RELIES, with_a_change_at_the_end(Write("delete", "/brokers/ids/3"))),
    (RELIES, with_a_change_at_the_end(Write("create", "/admin/delete_topics/orders"))),
    # of a node in no list: the session watched it, so it relies on it
    (RELIES, with_a_change_at_the_end(Write("create", "/elsewhere"), before=ELSEWHERE)),
    (RELIES, with_a_change_at_the_end(Write("create", "/elsewhere"), before=ELSEWHERE._replace(kind="watch"))),
    (EFFECT, unread("data", "/brokers/topics/orders/partitions/0/state")),
    (EFFECT, removed_at_once(ISR_CHANGE, b'{"version":1,"partitions":[{"topic":"orders","partition":0}]}')),
    (EFFECT, removed_at_once(CONFIG_CHANGE, b'{"version":2,"entity_path":"topics/orders"}')),
    ("l06_l08_no_intent_is_left", added(Write("create", "/log_dir_event_notification/log_dir_event_0000000077"))),
]
HARMLESS: list[Violation] = [
    removed_at_once(ISR_CHANGE, b"{"),
    removed_at_once(ISR_CHANGE, b'{"version":1,"partitions":[{"topic":7}]}'),
    removed_at_once(ISR_CHANGE, b'{"version":1,"partitions":[]}'),
]
