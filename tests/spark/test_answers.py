"""Each answer by itself: a few events, and the rows they come to, written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sparkjobs.answers.local import Answers, answers_for
from sparkjobs.gold import GOLD
from sparkjobs.schemas import SilverEvent, columns_of

T0 = 1_794_988_800_000
_DEFAULTS = {"cluster": "c", "dt": "", "ts_raw": "", "level": "INFO", "shape_id": "", "line": "", "file_id": "f"}


class Log:
    """Events as one writes them down; each is a line further on."""

    def __init__(self) -> None:
        self.events: list[SilverEvent] = []

    def say(self, at: int, event: str, broker: int = 1, role: str = "controller", **columns: Any) -> None:
        number = len(self.events) + 1
        given = {"event_id": f"e{number}", "line_no": number, "ts_utc": T0 + at, "ts_adj": T0 + at, "controller": 1}
        known = {**_DEFAULTS, **given, "event": event, "broker": broker, "role": role, **columns}
        self.events.append(SilverEvent(**known))

    def partition(self, at: int, before: str, after: str, **columns: Any) -> None:
        states = {"from_state": f"{before}Partition", "to_state": f"{after}Partition"}
        known = {"topic": "orders", "partition": 0, "controller_epoch": 1, **states, **columns}
        self.say(at, "partition_changed", **known)

    def answers(self, target: float = 99.95) -> Answers:
        return answers_for(self.events, target)


def shown(rows: Sequence[msgspec.Struct], *names: str) -> list[tuple[Any, ...]]:
    """The columns by these names; moments as they were written down."""
    return [tuple(_short(name, getattr(row, name)) for name in names) for row in rows]


def _short(name: str, value: Any) -> Any:
    return value - T0 if name.endswith("_ms") and value is not None and value >= T0 else value


def with_a_led_partition(isr: tuple[int, ...] = (2, 1)) -> Log:
    log = Log()
    log.say(0, "controller_elected", controller_epoch=1)
    log.say(50, "controller_ready", controller_epoch=1)
    log.partition(100, "NonExistent", "New")
    log.partition(110, "New", "Online", leader=2, leader_epoch=0, version=0, isr=isr)
    log.say(5_000, "other", broker=2, role="server")
    return log


def test_the_tables_are_these_and_each_column_has_a_type() -> None:
    assert list(GOLD) == [
        *("partition_outages", "leader_changes", "leader_churn", "failovers", "controller_tenures", "broker_lives"),
        *("isr_timeline", "unclean_elections", "flapping", "illegal_transitions", "stuck_ops", "zombies"),
        *("rpc_latency", "slo_daily", "coverage"),
    ]
    assert columns_of(GOLD["unclean_elections"]) == {
        **{"cluster": "string", "topic": "string", "partition": "int", "at_ms": "bigint", "controller_epoch": "int"},
        **{"leader": "int", "leader_epoch": "int", "isr_before": "array<int>", "proof": "string"},
        **{"file_id": "string", "line_no": "bigint"},
    }


def test_at_trace_an_outage_is_what_the_controller_says_and_names_who_began_it() -> None:
    log = with_a_led_partition()
    log.say(12_000, "brokers_changed", removed=(2,), replicas=(1,))
    log.partition(12_002, "Online", "Offline")
    log.partition(12_009, "Offline", "Online", leader=1, leader_epoch=1, version=1, isr=(1,))
    names = ("start_ms", "end_ms", "start_lo_ms", "start_hi_ms", "evidence", "cause", "first_broker", "leader")
    assert shown(log.answers()["partition_outages"], *names, "leader_last_seen_ms", "unclean", "open") == [
        (12_002, 12_009, 12_002, 12_002, "exact", "broker_lost", 2, 1, 5_000, False, False)
    ]


def test_at_info_its_start_lies_between_the_leaders_last_word_and_the_election() -> None:
    log = with_a_led_partition()
    log.say(12_000, "brokers_changed", removed=(2,), replicas=(1,))
    log.partition(12_009, "Offline", "Online", leader=1, leader_epoch=1, version=1, isr=(1,))
    names = ("start_lo_ms", "start_ms", "start_hi_ms", "end_ms", "evidence")
    assert shown(log.answers()["partition_outages"], *names) == [(5_000, 12_000, 12_009, 12_009, "inferred")]


def test_without_anybody_in_sync_it_stays_open_and_every_attempt_counts() -> None:
    log = with_a_led_partition(isr=(2,))
    log.say(12_000, "brokers_changed", removed=(2,))
    log.partition(12_002, "Online", "Offline")
    for at in (12_005, 13_000):
        states = {"from_state": "OfflinePartition", "to_state": "OnlinePartition", "controller_epoch": 1}
        log.say(at, "partition_change_failed", topic="orders", partition=0, **states)
    names = ("start_ms", "end_ms", "ended_by", "election_attempts", "open")
    assert shown(log.answers()["partition_outages"], *names) == [(12_002, None, None, 2, True)]


def test_a_topic_on_its_way_to_deletion_is_no_outage() -> None:
    log = with_a_led_partition()
    log.partition(9_000, "Online", "Offline")
    log.partition(9_001, "Offline", "NonExistent")
    assert log.answers()["partition_outages"] == []


def test_what_only_a_deposed_controller_saw_is_no_outage() -> None:
    log = with_a_led_partition()
    log.say(20_000, "controller_elected", broker=3, controller_epoch=2)
    log.say(20_100, "controller_ready", broker=3, controller_epoch=2)
    log.partition(25_000, "Online", "Offline")  # epoch 1: a zombie
    log.partition(30_000, "Online", "Online", broker=3, controller_epoch=2, leader=1, leader_epoch=1, version=1)
    assert log.answers()["partition_outages"] == []


def test_a_clock_that_lies_does_not_change_the_order_of_controllers() -> None:
    log = with_a_led_partition()
    log.say(-90_000, "controller_elected", broker=3, controller_epoch=2)  # five minutes behind
    log.partition(-89_000, "Online", "Online", broker=3, controller_epoch=2, leader=1, leader_epoch=1, version=1)
    tenures = shown(log.answers()["controller_tenures"], "controller_epoch", "broker")
    assert tenures == [(1, 1), (2, 3)]
    changes = shown(log.answers()["leader_changes"], "leader_before", "leader", "leader_epoch")
    assert sorted(changes, key=lambda one: one[2]) == [(None, 2, 0), (2, 1, 1)]


def test_a_leader_change_names_who_followed_and_when() -> None:
    log = with_a_led_partition()
    log.partition(8_000, "Online", "Online", leader=1, leader_epoch=1, version=1, isr=(2, 1))
    log.say(8_020, "leader_started", broker=1, role="broker", topic="orders", partition=0, leader_epoch=1)
    log.say(8_031, "follower_started", broker=2, role="broker", topic="orders", partition=0, leader_epoch=1)
    names = ("at_ms", "leader_before", "leader", "leader_epoch", "why", "acked", "unclean")
    assert shown(log.answers()["leader_changes"], *names) == [
        (110, None, 2, 0, "created", (), False),
        (8_000, 2, 1, 1, "election", (1, 2), False),
    ]
    assert shown(log.answers()["leader_churn"], "topic", "changes", "most_changes") == [("orders", 1, 1)]


def test_a_failover_has_its_phases_and_its_slowest_broker() -> None:
    log = with_a_led_partition(isr=(2, 1, 3))
    log.say(12_000, "brokers_changed", removed=(2,))
    log.partition(12_009, "Offline", "Online", leader=1, leader_epoch=1, version=1, isr=(1, 3))
    log.say(12_020, "leader_started", broker=1, role="broker", topic="orders", partition=0, leader_epoch=1)
    log.say(12_090, "follower_started", broker=3, role="broker", topic="orders", partition=0, leader_epoch=1)
    log.say(40_000, "brokers_changed", added=(2,))
    names = ("broker", "last_seen_ms", "detected_ms", "last_elected_ms", "last_acked_ms", "moved", "expected", "acked")
    assert shown(log.answers()["failovers"], *names, "slowest", "slowest_ms", "returned_ms", "how") == [
        (2, 5_000, 12_000, 12_009, 12_090, 1, (1, 3), (1, 3), 3, 81, 40_000, "lost")
    ]


def test_a_tenure_ends_between_its_holders_last_word_and_the_next_claim() -> None:
    log = with_a_led_partition()
    log.say(30_000, "controller_elected", broker=3, controller_epoch=2)
    names = ("controller_epoch", "broker", "from_ms", "to_lo_ms", "to_hi_ms", "why_ended", "gap_before_ms", "ready_ms")
    assert shown(log.answers()["controller_tenures"], *names) == [
        (1, 1, 0, 110, 30_000, "lost", None, 50),
        (2, 3, 30_000, None, None, None, 29_890, None),
    ]


def test_the_isr_timeline_orders_by_version_and_a_leaders_own_line_counts() -> None:
    log = with_a_led_partition()
    log.say(7_000, "isr_changed", broker=2, role="server", topic="orders", partition=0, version=1, isr=(2,))
    names = ("version", "from_ms", "from_lo_ms", "to_ms", "leader", "leader_epoch", "isr", "said_by")
    assert shown(log.answers()["isr_timeline"], *names) == [
        (0, 110, 110, 7_000, 2, 0, (2, 1), "controller"),
        (1, 7_000, 110, None, 2, 0, (2,), "leader"),
    ]


def test_an_election_outside_the_isr_is_unclean_if_the_version_before_is_known() -> None:
    log = with_a_led_partition(isr=(2,))
    log.partition(9_000, "Offline", "Online", leader=1, leader_epoch=1, version=1, isr=(1,))
    names = ("at_ms", "leader", "isr_before", "proof")
    assert shown(log.answers()["unclean_elections"], *names) == [(9_000, 1, (2,), "derived")]
    gap = with_a_led_partition(isr=(2,))
    gap.partition(9_000, "Offline", "Online", leader=1, leader_epoch=1, version=5, isr=(1,))
    assert gap.answers()["unclean_elections"] == []


def test_a_broker_that_comes_and_goes_is_flapping() -> None:
    log = with_a_led_partition()
    for minute in range(1, 4):
        log.say(minute * 60_000, "brokers_changed", removed=(2,))
        log.say(minute * 60_000 + 20_000, "brokers_changed", added=(2,))
    names = ("what", "broker", "from_ms", "to_ms", "transitions", "most_in_window")
    assert shown(log.answers()["flapping"], *names) == [("broker", 2, 60_000, 200_000, 6, 6)]


def test_moves_outside_the_tables_are_told_and_those_that_were_refused() -> None:
    log = with_a_led_partition()
    log.partition(9_000, "New", "NonExistent")
    states = {
        "from_state": "NonExistentReplica",
        "to_state": "OnlineReplica",
        "trace": "java.lang.IllegalStateException: x",
    }
    log.say(9_500, "replica_change_failed", topic="orders", partition=0, peer_broker=3, controller_epoch=1, **states)
    names = ("at_ms", "machine", "replica", "from_state", "to_state", "how")
    assert shown(log.answers()["illegal_transitions"], *names) == [
        (9_000, "partition", None, "NewPartition", "NonExistentPartition", "done"),
        (9_500, "replica", 3, "NonExistentReplica", "OnlineReplica", "refused"),
    ]


def test_a_reassignment_without_an_end_is_stuck_and_one_with_an_end_is_not() -> None:
    log = with_a_led_partition()
    log.say(1_000, "reassignment_started", topic="orders", partition=0)
    log.say(2_000, "reassignment_step", topic="orders", partition=0, reason="1/2 caught up")
    log.say(3_000, "reassignment_started", topic="orders", partition=1)
    log.say(4_000, "reassignment_done", topic="orders", partition=1)
    names = ("kind", "topic", "partition", "started_ms", "last_step_ms", "last_step", "age_ms")
    assert shown(log.answers()["stuck_ops"], *names) == [
        ("reassignment", "orders", 0, 1_000, 2_000, "1/2 caught up", 4_000)
    ]


def test_zombies_are_refused_or_obeyed_by_a_brokers_own_clock() -> None:
    log = with_a_led_partition()
    asked = {"role": "broker", "api": "LeaderAndIsr"}
    log.say(10_000, "request_done", broker=2, controller=3, controller_epoch=2, **asked)
    log.say(10_500, "request_done", broker=2, controller=1, controller_epoch=1, **asked)
    log.say(11_000, "request_ignored", broker=3, controller_epoch=1, error="stale_controller_epoch", **asked)
    names = ("kind", "stale", "witness", "controller_epoch", "first_ms", "times")
    assert shown(log.answers()["zombies"], *names) == [
        ("controller_obeyed", 1, 2, 1, 10_500, 1),
        ("controller_refused", 1, 3, 1, 11_000, 1),
    ]


def test_latencies_are_nearest_ranks() -> None:
    log = Log()
    for took in range(1, 101):
        log.say(took, "request_done", broker=2, role="broker", api="LeaderAndIsr", elapsed_ms=float(took))
    names = ("broker", "api", "requests", "p50_ms", "p95_ms", "p99_ms", "max_ms")
    assert shown(log.answers()["rpc_latency"], *names) == [(2, "LeaderAndIsr", 100, 50.0, 95.0, 99.0, 100.0)]


def test_the_error_budget_counts_from_the_topics_first_line_to_the_end_of_the_logs() -> None:
    log = with_a_led_partition()
    log.partition(20_100, "Online", "Offline")
    log.partition(30_100, "Offline", "Online", leader=1, leader_epoch=1, version=1, isr=(1,))
    log.say(100_100, "other", broker=1, role="server")
    names = ("topic", "partitions", "observed_ms", "unavailable_ms", "availability", "budget_ms", "is_met")
    assert shown(log.answers(target=90.0)["slo_daily"], *names) == [
        (None, 1, 100_000, 10_000, 90.0, 10_000, True),
        ("orders", 1, 100_000, 10_000, 90.0, 10_000, True),
    ]
    assert not log.answers(target=99.0)["slo_daily"][0].is_met  # type: ignore[attr-defined]


def test_what_the_logs_cannot_answer_is_said() -> None:
    log = Log()
    log.partition(0, "Offline", "Online", leader=1, leader_epoch=1, version=1, isr=(1,))
    log.partition(5, "Online", "Online", controller_epoch=4, leader=1, leader_epoch=2, version=2, isr=(1,))
    grades = dict(shown(log.answers()["coverage"], "question", "grade"))
    assert grades["start of an outage"] == "partial"
    assert grades["crash or clean stop"] == "none"
    assert grades["all controllers"] == "partial"
