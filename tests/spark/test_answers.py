"""Each answer about a partition by itself: a few events, and the rows they come to, written out."""

from __future__ import annotations

from typing import Any

from sparkjobs.report.findings import findings_for
from sparkjobs.report.verdict import summary_for, verdict_for
from tests.spark.written import Log, shown, with_a_led_partition


def test_at_trace_an_outage_is_the_controllers_line_and_names_its_first_broker() -> None:
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


def test_an_outage_that_only_a_deposed_controller_saw_is_none() -> None:
    log = with_a_led_partition()
    log.say(20_000, "controller_elected", broker=3, controller_epoch=2)
    log.say(20_100, "controller_ready", broker=3, controller_epoch=2)
    log.partition(25_000, "Online", "Offline")  # epoch 1: a zombie
    log.partition(30_000, "Online", "Online", broker=3, controller_epoch=2, leader=1, leader_epoch=1, version=1)
    assert log.answers()["partition_outages"] == []


def test_a_leader_change_names_the_followers_and_their_times() -> None:
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


def test_a_warning_is_an_unclean_election_where_no_line_has_the_version_of_a_state() -> None:
    """So print 0.8 and 0.9; the election before, of the same broker, is none of the warning's."""
    log = Log()
    log.say(0, "controller_elected", controller_epoch=1)
    log.partition(100, "New", "Online", leader=1)
    log.partition(200, "Online", "Offline")
    log.say(9_000, "unclean_elected", topic="orders", partition=0, leader=1, level="WARN")
    log.partition(9_010, "Offline", "Online", leader=1)
    names = ("at_ms", "controller_epoch", "leader", "leader_epoch", "isr_before", "proof", "line_no")
    answers = log.answers()
    assert shown(answers["unclean_elections"], *names) == [(9_000, 1, 1, None, None, "said", 4)]
    assert dict(summary_for(answers))["Was data lost?"].startswith("It may be: 1 leader elected")


def test_a_warning_is_told_once_with_the_state_that_it_led_to() -> None:
    log = with_a_led_partition(isr=(2,))
    log.say(8_000, "unclean_elected", topic="orders", partition=0, leader=1)
    log.partition(8_010, "Offline", "Online", leader=1, leader_epoch=1, version=1, isr=(1,))
    log.partition(9_000, "Online", "Online", leader=1, leader_epoch=2, version=5, isr=(1,))
    names = ("at_ms", "leader_epoch", "isr_before", "proof")
    assert shown(log.answers()["unclean_elections"], *names) == [(8_010, 1, (2,), "said")]


def test_a_leader_and_an_isr_that_will_not_stay_are_flapping_and_a_quiet_one_is_not() -> None:
    log = with_a_led_partition()
    for turn in range(1, 10):
        leader = 1 + turn % 2
        states = {"leader": leader, "leader_epoch": turn, "version": turn, "isr": (leader, 3)}
        log.partition(10_000 * turn, "Online", "Online", **states)
    log.partition(110, "New", "Online", topic="calm", leader=2, leader_epoch=0, version=0, isr=(2, 1))
    log.partition(9_000, "Online", "Online", topic="calm", leader=1, leader_epoch=1, version=1, isr=(2, 1))
    names = ("what", "broker", "topic", "partition", "from_ms", "to_ms", "transitions", "most_in_window")
    assert shown(log.answers()["flapping"], *names) == [
        ("isr", None, "orders", 0, 10_000, 90_000, 9, 9),
        ("leader", None, "orders", 0, 20_000, 90_000, 8, 8),
    ]


def test_a_broker_that_goes_back_to_a_leader_epoch_below_its_last_obeyed_a_stale_one() -> None:
    """Not a broker that is behind another, nor one of a topic that was made anew; its own clock orders its lines."""
    log = with_a_led_partition()
    one = {"role": "broker", "topic": "orders", "partition": 0, "controller": None}
    log.say(5_000, "follower_started", broker=3, leader=2, leader_epoch=7, **one)
    log.say(6_000, "leader_started", broker=2, leader_epoch=5, **one)
    log.say(7_000, "leader_started", broker=2, leader_epoch=4, **one)
    log.say(8_000, "follower_started", broker=3, leader=2, leader_epoch=6, **one)
    log.say(9_000, "leader_started", broker=2, leader_epoch=0, **one)
    log.say(9_500, "leader_started", broker=2, leader_epoch=1, **one)
    names = ("kind", "stale", "witness", "topic", "partition", "first_ms", "times", "line_no")
    assert shown(log.answers()["zombies"], *names) == [
        ("leader_obeyed", 2, 2, "orders", 0, 7_000, 1, 8),
        ("leader_obeyed", 2, 3, "orders", 0, 8_000, 1, 9),
    ]


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


def test_a_reassignment_at_info_begins_with_its_first_written_assignment() -> None:
    log = with_a_led_partition()
    written = {"topic": "orders", "reason": "assignment written", "replicas": (1, 2, 3)}
    for partition in (0, 1):
        log.say(1_000, "reassignment_step", partition=partition, added=(3,), removed=(2,), **written)
    log.say(2_000, "reassignment_step", partition=1, **written)
    names = ("kind", "topic", "partition", "started_ms", "last_step")
    assert shown(log.answers()["stuck_ops"], *names) == [("reassignment", "orders", 0, 1_000, "assignment written")]


def test_requested_changes_have_their_ends_and_results() -> None:
    log = with_a_led_partition()
    move = {"topic": "orders", "partition": 0}
    log.say(1_000, "reassignment_started", added=(3,), **move)
    log.say(1_500, "reassignment_done", **move)
    log.say(1_600, "reassignment_step", reason="assignment written", **move)  # the same end, told again
    log.say(30_000, "reassignment_step", reason="assignment written", **move)  # only another order of replicas
    log.say(40_000, "reassignment_started", added=(1,), **move)
    log.say(41_000, "reassignment_failed", **move)
    log.say(50_000, "preferred_election_asked", reason="AdminClientTriggered")
    log.say(50_010, "preferred_election_done", leader=1, **move)
    log.say(60_000, "reassignment_started", added=(2,), **move)
    log.say(61_000, "topic_deletion_started", topic="orders")
    log.say(62_000, "topic_deleted", topic="orders")
    answers = log.answers()
    names = ("kind", "topic", "partition", "started_ms", "ended_ms", "outcome", "why")
    assert sorted(shown(answers["operations"], *names), key=lambda row: row[3]) == [
        ("reassignment", "orders", 0, 1_000, 1_600, "done", None),
        ("reassignment", "orders", 0, 30_000, 30_000, "done", None),
        ("reassignment", "orders", 0, 40_000, 41_000, "failed", None),
        ("preferred election", None, None, 50_000, 50_000, "asked", "AdminClientTriggered"),
        ("preferred election", "orders", 0, 50_010, 50_010, "done", None),
        ("reassignment", "orders", 0, 60_000, 62_000, "dropped", None),
        ("deletion", "orders", None, 61_000, 62_000, "done", None),
    ]
    assert answers["stuck_ops"] == []


def test_a_deletion_that_waits_for_a_broker_is_stuck_until_it_is_done() -> None:
    log = with_a_led_partition()
    log.say(1_000, "topic_deletion_started", topic="orders")
    log.say(2_000, "topic_deletion_halted", topic="orders", reason="replica 2 is not alive")
    names = ("kind", "topic", "partition", "started_ms", "last_step_ms", "last_step", "age_ms")
    expected = [("deletion", "orders", None, 1_000, 2_000, "replica 2 is not alive", 4_000)]
    assert shown(log.answers()["stuck_ops"], *names) == expected
    log.say(4_500, "topic_deleted", topic="orders")
    assert log.answers()["stuck_ops"] == []


def a_truncation(at: int, broker: int, *, first: int, records: int, lost: int) -> dict[str, Any]:
    said = {"topic": "orders", "partition": 0, "leader": 1, "leader_epoch": 1, "records_epoch": 0}
    return {"at": at, "broker": broker, **said, "offset": first, "records": records, "records_lost": lost}


def test_records_that_replicas_removed_are_lost_where_they_were_committed_each_once() -> None:
    log = with_a_led_partition(isr=(2,))
    log.partition(9_000, "Offline", "Online", leader=1, leader_epoch=1, version=1, isr=(1,))
    for said in (
        a_truncation(10_000, 2, first=10, records=5, lost=4),
        a_truncation(11_000, 3, first=12, records=3, lost=3),
        a_truncation(12_000, 4, first=90, records=1, lost=0),
    ):
        log.say(**said, event="records_truncated", role="broker")
    log.say(**{**a_truncation(13_000, 5, first=1, records=1, lost=1), "offset": None}, event="records_truncated")
    answers = log.answers()
    names = ("at_ms", "broker", "leader", "leader_epoch", "from_offset", "to_offset", "records", "committed")
    assert shown(answers["truncations"], *names) == [
        (10_000, 2, 1, 1, 10, 14, 5, 4),
        (11_000, 3, 1, 1, 12, 14, 3, 3),
        (12_000, 4, 1, 1, 90, 90, 1, 0),
    ]
    assert verdict_for(answers).sentence == "Over, but data was lost: at least 5 committed records."
    assert dict(summary_for(answers))["Was data lost?"] == "Yes: at least 5 committed records, of orders-0 (5)"
    told = [(one.weight, one.kind, one.words) for one in findings_for(answers) if one.kind.startswith("records")]
    words = "orders-0: broker {} removed {} from its log ({}), which leader 1 does not have{}"
    lost = "; {} of them had been committed and are lost"
    assert told == [
        (0, "records lost", words.format(2, "offsets 10 to 14", "5 records", lost.format(4))),
        (0, "records lost", words.format(3, "offsets 12 to 14", "3 records", lost.format(3))),
        (4, "records removed", words.format(4, "offset 90", "1 record", "")),
    ]
