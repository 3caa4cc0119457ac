"""Requests carried out by brokers before 2.6, and their times, by the numbers of requests: the rows, written out."""

from __future__ import annotations

from typing import Any

from tests.spark.written import Log, shown, with_a_led_partition


def test_before_2_6_a_broker_acknowledges_by_the_number_of_the_request_that_it_received() -> None:
    """Numbers begin anew with a connection; up to 1.0 an election's line does not have the decision, the request that
    follows it does. The leader may say so itself, and then that counts."""
    log = with_a_led_partition(isr=(2, 1, 3))
    asked: dict[str, Any] = {"role": "broker", "api": "LeaderAndIsr", "controller_epoch": 1, "correlation_id": 7}
    place: dict[str, Any] = {"topic": "orders", "partition": 0}
    log.say(200, "request_received", broker=3, leader_epoch=0, **asked, **place)
    log.say(210, "request_done", broker=3, **asked, **place)
    log.say(12_000, "brokers_changed", removed=(2,))
    log.partition(12_009, "Offline", "Online", leader=1)
    sent = {"leader": 1, "leader_epoch": 1, "isr": (1, 3), "controller_epoch": 1, "api": "LeaderAndIsr", **place}
    log.say(12_010, "request_sent", peer_broker=3, version=1, **sent)
    for broker, received, done in ((1, 12_020, 12_030), (3, 12_020, 12_075)):
        log.say(received, "request_received", broker=broker, leader_epoch=1, **asked, **place)
        log.say(done, "request_done", broker=broker, **asked, **place)
        log.say(done + 15, "request_done", broker=broker, **asked, topic="orders", partition=5)
    log.say(12_028, "leader_started", broker=1, role="server", leader_epoch=1, **place)
    log.say(12_100, "request_done", broker=3, **{**asked, "correlation_id": 8}, **place)  # without its subject
    answers = log.answers()
    names = ("leader_epoch", "version", "isr", "acked", "acked_ms")
    assert shown(answers["leader_changes"], *names) == [
        (0, 0, (2, 1, 3), (3,), (210,)),
        (1, 1, (1, 3), (1, 3), (12_028, 12_075)),
    ]
    names = ("broker", "expected", "acked", "slowest", "slowest_ms", "last_acked_ms")
    assert shown(answers["failovers"], *names) == [(2, (1, 3), (1, 3), 3, 66, 12_075)]
    names = ("broker", "api", "side", "requests", "p50_ms", "max_ms")
    assert shown(answers["rpc_latency"], *names) == [
        (1, "LeaderAndIsr", "broker", 1, 25.0, 25.0),
        (3, "LeaderAndIsr", "broker", 2, 10.0, 70.0),
    ]


def test_a_topic_made_anew_has_its_own_acknowledgements() -> None:
    log = Log()
    log.say(0, "controller_elected", controller_epoch=1)
    for start, number in ((100, 1), (9_000, 2)):
        log.partition(start, "NonExistent", "New")
        log.partition(start + 10, "New", "Online", leader=2, leader_epoch=0, version=0, isr=(2,))
        asked: dict[str, Any] = {"role": "broker", "api": "LeaderAndIsr", "controller_epoch": 1, "broker": 2}
        asked |= {"topic": "orders", "partition": 0, "correlation_id": number}
        log.say(start + 20, "request_received", leader_epoch=0, **asked)
        log.say(start + 30, "request_done", **asked)
    assert shown(log.answers()["leader_changes"], "at_ms", "acked", "acked_ms") == [
        (110, (2,), (130,)),
        (9_010, (2,), (9_030,)),
    ]


def test_since_2_6_brokers_say_themselves_when_they_begin_and_that_alone_counts() -> None:
    log = with_a_led_partition(isr=(2, 1))
    asked: dict[str, Any] = {"role": "broker", "api": "LeaderAndIsr", "controller_epoch": 1, "correlation_id": 7}
    place: dict[str, Any] = {"topic": "orders", "partition": 0}
    log.say(200, "request_received", broker=2, leader_epoch=0, **asked, **place)
    log.say(204, "leader_started", broker=2, role="broker", leader_epoch=0, **place)
    log.say(210, "request_done", broker=2, **asked, **place)
    log.say(211, "request_done", broker=1, **asked, **place)
    answers = log.answers()
    assert shown(answers["leader_changes"], "acked", "acked_ms") == [((2,), (204,))]
    assert answers["rpc_latency"] == []


def test_in_0_8_requests_of_a_batch_share_a_number_and_are_answered_in_turn() -> None:
    log = Log()
    known: dict[str, Any] = {"controller_epoch": 3, "peer_broker": 2, "correlation_id": 7}
    place: dict[str, Any] = {"topic": "t", "partition": 0, "leader_epoch": 5}
    log.say(1_000, "request_sent", api="LeaderAndIsr", **known, **place)
    log.say(1_002, "request_sent", api="LeaderAndIsr", **known, **{**place, "partition": 1})
    log.say(1_005, "request_sent", api="UpdateMetadata", **known, **place)
    log.say(1_030, "response_received", **known)
    log.say(1_047, "response_received", **known)
    log.say(1_060, "response_received", **known)  # of a StopReplica, whose sending has no number
    log.say(2_000, "request_sent", api="UpdateMetadata", **{**known, "correlation_id": 8}, **place)
    log.say(2_009, "response_received", **{**known, "correlation_id": 8})
    names = ("broker", "api", "side", "requests", "p50_ms", "max_ms")
    assert shown(log.answers()["rpc_latency"], *names) == [
        (2, "LeaderAndIsr", "controller", 1, 28.0, 28.0),
        (2, "UpdateMetadata", "controller", 2, 9.0, 42.0),
    ]
