"""Each answer about a cluster by itself: a few events, and the rows they come to, written out."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from sparkjobs.rules.slo import Extent, slo_of
from sparkjobs.tables.gold import Outage
from tests.spark.written import T0, Log, shown, with_a_led_partition


def test_a_clock_that_lies_does_not_change_the_order_of_controllers() -> None:
    log = with_a_led_partition()
    log.say(-90_000, "controller_elected", broker=3, controller_epoch=2)  # five minutes behind
    log.partition(-89_000, "Online", "Online", broker=3, controller_epoch=2, leader=1, leader_epoch=1, version=1)
    tenures = shown(log.answers()["controller_tenures"], "controller_epoch", "broker")
    assert tenures == [(1, 1), (2, 3)]
    changes = shown(log.answers()["leader_changes"], "leader_before", "leader", "leader_epoch")
    assert sorted(changes, key=lambda one: one[2]) == [(None, 2, 0), (2, 1, 1)]


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


def test_a_broker_that_comes_and_goes_is_flapping() -> None:
    log = with_a_led_partition()
    for minute in range(1, 4):
        log.say(minute * 60_000, "brokers_changed", removed=(2,))
        log.say(minute * 60_000 + 20_000, "brokers_changed", added=(2,))
    names = ("what", "broker", "from_ms", "to_ms", "transitions", "most_in_window")
    assert shown(log.answers()["flapping"], *names) == [("broker", 2, 60_000, 200_000, 6, 6)]


def test_zookeeper_was_away_when_most_living_brokers_lost_it_at_the_same_time() -> None:
    log = Log()
    for broker in (1, 2, 3):
        log.say(broker, "server_starting", broker=broker, role="server")
        log.say(90_000, "other", broker=broker, role="server")
    log.say(10_000, "zookeeper_lost", broker=3, role="server")  # frozen: its own story
    log.say(12_000, "session_established", broker=3)
    for broker, lost, found in ((1, 20_000, 26_000), (2, 20_004, 26_100), (3, 20_009, 27_000)):
        log.say(lost, "zookeeper_lost", broker=broker, role="server")
        log.say(found, "session_established", broker=broker)
    log.say(26_900, "session_expired", broker=3)
    names = ("from_ms", "to_ms", "brokers", "expired")
    assert shown(log.answers()["zookeeper_outages"], *names) == [(20_004, 26_100, (1, 2, 3), (3,))]


def test_a_cluster_that_was_off_was_not_unavailable() -> None:
    log = with_a_led_partition()
    log.partition(10_000, "Online", "Offline")
    log.say(40_000, "server_starting", broker=1, role="server")
    log.say(40_500, "controller_elected", controller_epoch=2)
    log.partition(40_600, "Offline", "Online", controller_epoch=2, leader=1, leader_epoch=1, version=1, isr=(1,))
    log.say(40_700, "controller_ready", controller_epoch=2)
    log.say(70_110, "other", broker=1, role="server")
    names = ("from_ms", "to_ms", "last_heard", "first_back")
    assert shown(log.answers()["cluster_silences"], *names) == [(10_000, 40_000, 1, 1)]
    names = ("topic", "observed_ms", "unavailable_ms")
    assert shown(log.answers()["slo_daily"], *names)[1] == ("orders", 40_010, 600)


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


def test_leaders_with_a_stale_epoch_or_version_and_deposed_controllers_that_go_on_are_zombies() -> None:
    log = with_a_led_partition()
    stale = {"role": "broker", "api": "LeaderAndIsr", "controller_epoch": 1, "error": "stale_leader_epoch"}
    for at in (10_000, 10_400):  # of the controller in office: it tells a known state again, which is ordinary
        log.say(at, "request_ignored", broker=2, topic="orders", partition=0, **stale)
    for at in (23_000, 23_400):
        log.say(at, "request_ignored", broker=3, topic="orders", partition=0, **stale)
    log.say(11_000, "isr_version_conflict", broker=2, role="server", topic="orders", partition=0, version=4)
    log.say(20_000, "controller_elected", broker=3, controller=3, controller_epoch=2)
    log.partition(21_999, "Online", "Online", leader=2, leader_epoch=1)  # so soon it proves nothing
    log.partition(22_500, "Online", "Online", leader=1, leader_epoch=2)
    names = ("kind", "stale", "witness", "controller_epoch", "last_ms", "times")
    assert shown(log.answers()["zombies"], *names) == [
        ("controller_spoke", 1, 3, 1, 22_500, 4),
        ("isr_refused", 2, None, None, 11_000, 1),
        ("leader_refused", 1, 3, 1, 23_400, 2),
    ]


def test_latencies_are_nearest_ranks() -> None:
    log = Log()
    for took in range(1, 101):
        log.say(took, "request_done", broker=2, role="broker", api="LeaderAndIsr", elapsed_ms=float(took))
    names = ("broker", "api", "requests", "p50_ms", "p95_ms", "p99_ms", "max_ms")
    assert shown(log.answers()["rpc_latency"], *names) == [(2, "LeaderAndIsr", 100, 50.0, 95.0, 99.0, 100.0)]


def test_the_controllers_side_is_from_the_last_sending_to_the_acknowledgement() -> None:
    log = Log()
    asked: dict[str, Any] = {"controller": 1, "controller_epoch": 3, "topic": "t", "partition": 0, "leader_epoch": 5}
    for api, start in (("LeaderAndIsr", 1_000), ("UpdateMetadata", 2_000)):
        receipt = "metadata_cached" if api == "UpdateMetadata" else "request_received"
        peer = {} if api == "UpdateMetadata" else {"peer_broker": 2}
        log.say(start, "request_sent", api=api, **asked, **peer)
        log.say(start + 500, "request_sent", api=api, **asked, **peer)  # again, with another number
        log.say(
            start + 290_000, receipt, broker=2, role="broker", api=api, correlation_id=7, **asked
        )  # its clock is off
        known = {"controller": 1, "controller_epoch": 3, "peer_broker": 2}
        log.say(start + 530, "response_received", api=api, correlation_id=7, **known)
        log.say(start + 600, "response_received", api=api, correlation_id=8, **known)  # without its subject
    names = ("broker", "api", "side", "requests", "p50_ms", "max_ms")
    assert shown(log.answers()["rpc_latency"], *names) == [
        (2, "LeaderAndIsr", "controller", 1, 30.0, 30.0),
        (2, "UpdateMetadata", "controller", 1, 30.0, 30.0),
    ]


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


def test_outages_that_overlap_cost_each_moment_once_and_nothing_outside_the_logs() -> None:
    log = with_a_led_partition()
    log.partition(20_100, "Online", "Offline")
    log.partition(30_100, "Offline", "Online", leader=1, leader_epoch=1, version=1, isr=(1,))
    [one] = log.answers()["partition_outages"]
    assert isinstance(one, Outage)
    others = [
        replace(one, start_ms=T0 + 25_000, start_lo_ms=T0 + 24_000, end_ms=T0 + 35_100),
        replace(one, start_ms=T0 - 9_000, start_lo_ms=T0 - 9_000, end_ms=T0 + 100),
        replace(one, partition=1, start_ms=T0 + 99_100, end_ms=T0 + 200_000),
    ]
    extents = {"orders": Extent(2, T0 + 100, T0 + 100_100)}
    names = ("topic", "observed_ms", "unavailable_ms", "availability")
    assert shown(list(slo_of([one, *others], extents, "c")), *names) == [
        ("orders", 200_000, 16_000, 92.0),
        (None, 200_000, 16_000, 92.0),
    ]


def test_questions_that_the_logs_cannot_answer_are_named() -> None:
    log = Log()
    log.partition(0, "Offline", "Online", leader=1, leader_epoch=1, version=1, isr=(1,))
    log.partition(5, "Online", "Online", controller_epoch=4, leader=1, leader_epoch=2, version=2, isr=(1,))
    grades = dict(shown(log.answers()["coverage"], "question", "grade"))
    assert grades["start of an outage"] == "partial"
    assert grades["crash or clean stop"] == "none"
    assert grades["all controllers"] == "partial"


def test_a_takeover_of_kafkas_has_the_steps_that_it_names_until_it_is_done() -> None:
    log = with_a_led_partition()
    log.say(30_000, "controller_elected", broker=3, controller_epoch=2)
    for at, step in ((30_010, "registering handlers"), (30_015, "loading"), (30_200, "telling")):
        name = "failover_started" if step == "registering handlers" else "failover_step"
        log.say(at, name, broker=3, reason=step)
    log.say(30_260, "controller_ready", broker=3, controller_epoch=2)
    log.say(30_300, "failover_done", broker=3)
    log.say(50_000, "failover_step", broker=3, reason="resigning")
    names = ("controller_epoch", "broker", "from_ms", "phase", "to_ms", "took_ms")
    assert shown(log.answers()["controller_phases"], *names) == [
        (2, 3, 30_010, "registering handlers", 30_015, 5.0),
        (2, 3, 30_015, "loading", 30_200, 185.0),
        (2, 3, 30_200, "telling", 30_260, 60.0),
        (2, 3, 30_260, "finishing", 30_300, 40.0),
    ]


def test_a_takeover_of_ours_has_its_own_phases_from_when_the_seat_was_seen_vacant() -> None:
    log = with_a_led_partition()
    since = {"claimed": 12.0, "loaded": 90.5, "told": 120.5, "acknowledged": 200.0}
    for phase, since_ms in since.items():
        said = {"controller_epoch": 2, "to_state": phase, "elapsed_ms": since_ms}
        log.say(30_000 + round(since_ms), "controller_reported", broker=3, **said)
    names = ("controller_epoch", "broker", "from_ms", "phase", "to_ms", "took_ms")
    answers = log.answers()
    assert shown(answers["controller_phases"], *names) == [
        (2, 3, 30_000, "claimed", 30_012, 12.0),
        (2, 3, 30_012, "loaded", 30_090, 78.5),
        (2, 3, 30_090, "told", 30_120, 30.0),
        (2, 3, 30_120, "acknowledged", 30_200, 79.5),
    ]
    tenures = shown(answers["controller_tenures"], "controller_epoch", "from_ms", "evidence", "ready_ms", "done_ms")
    assert tenures[-1] == (2, 30_012, "exact", 30_120, 30_200)


def test_churn_counts_an_hours_changes_by_topic_and_names_the_partition_that_changed_most() -> None:
    log = with_a_led_partition(isr=(2, 1, 3))
    for at, leader, epoch in ((100_000, 1, 1), (200_000, 3, 2)):
        log.partition(at, "Online", "Online", leader=leader, leader_epoch=epoch, version=epoch, isr=(1, 3))
    log.partition(300_000, "Online", "Online", partition=1, leader=1, leader_epoch=7, version=9, isr=(1,))
    names = ("topic", "hour_ms", "partitions", "changes", "most_partition", "most_changes")
    assert shown(log.answers()["leader_churn"], *names) == [("orders", 0, 1, 2, 0, 2)]


def test_a_broker_lives_from_its_start_to_its_last_word_and_again() -> None:
    log = with_a_led_partition()
    log.say(12_000, "brokers_changed", removed=(2,))
    log.say(20_000, "server_starting", broker=2, role="server")
    log.say(21_000, "registered", broker=2, role="server", broker_epoch=9)
    log.say(21_050, "brokers_changed", added=(2,))
    names = ("broker", "from_ms", "last_seen_ms", "started", "ended", "gone_ms")
    assert shown(log.answers()["broker_lives"], *names) == [
        (1, 0, 21_050, False, "running", None),
        (2, 5_000, 5_000, False, "crashed", 12_000),
        (2, 20_000, 21_000, True, "running", None),
    ]


def test_of_our_logs_a_broker_acknowledges_the_requests_of_an_elections_event() -> None:
    """A broker without a replica, a refusal, or an answer of another cause says nothing of it."""
    log = with_a_led_partition(isr=(2, 1, 3))
    log.say(12_000, "broker_changed", peer_broker=2, from_state="live", to_state="gone", controller_epoch=1)
    known = {"leader_epoch": 1, "version": 1, "isr": (1, 3), "zxid": 8, "cause": "broker_gone", "cause_id": "1-2"}
    log.partition(12_010, "Online", "Online", leader=1, **known)
    done = {"role": "broker", "api": "LeaderAndIsr", "controller_epoch": 1, "cause_id": "1-2"}
    log.say(12_020, "request_done", **done)
    log.say(12_050, "request_done", broker=3, **done)
    log.say(12_060, "request_done", broker=4, **done)
    log.say(12_070, "request_done", broker=1, error="11", **done)
    log.say(12_080, "request_done", broker=1, **{**done, "cause_id": "1-3"})
    log.say(12_090, "request_done", broker=1, **{**done, "api": "UpdateMetadata"})
    names = ("broker", "expected", "acked", "slowest", "slowest_ms", "last_acked_ms")
    assert shown(log.answers()["failovers"], *names) == [(2, (1, 3), (1, 3), 3, 40, 12_050)]
