"""Answers that were once false, of incomplete logs or of our own: a few events each, written out."""

from __future__ import annotations

from sparkjobs.report.findings import findings_for
from sparkjobs.report.verdict import summary_for, verdict_for
from tests.spark.written import T0, shown, with_a_led_partition


def test_a_broker_without_a_line_of_its_start_lives_again_from_its_first_sign() -> None:
    log = with_a_led_partition()
    log.say(12_000, "brokers_changed", removed=(2,))
    log.say(20_000, "brokers_changed", added=(2,))
    log.say(31_000, "other", broker=2, role="server")
    lives = shown(log.answers()["broker_lives"], "broker", "from_ms", "last_seen_ms", "ended")
    assert [one for one in lives if one[0] == 2] == [(2, 5_000, 5_000, "lost"), (2, 20_000, 31_000, "running")]


def test_a_brokers_lines_as_it_boots_do_not_bridge_its_death() -> None:
    log = with_a_led_partition()
    log.say(12_000, "brokers_changed", removed=(2,))
    log.say(18_000, "other", broker=2, role="server")
    log.say(18_400, "server_starting", broker=2, role="server")
    lives = shown(log.answers()["broker_lives"], "broker", "from_ms", "last_seen_ms", "started")
    assert [one for one in lives if one[0] == 2] == [(2, 5_000, 5_000, False), (2, 18_400, 18_400, True)]


def test_without_the_controllers_own_line_a_brokers_obedience_is_its_first_sign() -> None:
    log = with_a_led_partition()
    log.say(12_000, "broker_changed", peer_broker=2, to_state="gone")
    log.say(13_000, "request_done", broker=2, role="broker", controller_epoch=1)  # so soon, by clocks that may differ
    log.say(22_000, "request_received", broker=2, role="broker", controller_epoch=1)
    log.say(30_000, "broker_changed", peer_broker=2, to_state="gone")
    answers = log.answers()
    assert shown(answers["failovers"], "broker", "detected_ms", "returned_ms") == [
        (2, 12_000, 22_000),
        (2, 30_000, None),
    ]


def test_the_logs_end_with_their_last_line_of_any_broker() -> None:
    log = with_a_led_partition()
    log.say(12_000, "brokers_changed", removed=(2,))
    log.partition(12_005, "Offline", "Online", leader=1, leader_epoch=1, version=1, isr=(1,))
    log.say(90_000, "other", broker=2, role="server")
    answers = log.answers()
    assert shown(answers["log_spans"], "from_ms", "to_ms") == [(0, 90_000)]
    assert dict(summary_for(answers))["Is it over?"].endswith("the logs end 08:01:30.000")


def test_a_session_tells_about_when_a_broker_went_and_silence_does_not() -> None:
    log = with_a_led_partition()
    log.say(0, "server_starting", broker=2, role="server")
    log.say(10, "session_established", broker=2, role="server", elapsed_ms=4_000.0)
    log.say(20, "registered", broker=2, role="server")
    log.say(42_000, "brokers_changed", removed=(2,))
    [lost] = shown(log.answers()["failovers"], "how", "last_seen_ms", "went_about_ms", "detected_ms")
    assert lost == ("lost", 5_000, 38_000, 42_000)  # it may stand still
    [words] = [one.words for one in findings_for(log.answers()) if one.kind == "broker lost"]
    assert "missed 08:00:42.000; by its session's time-out it went about 08:00:38.000" in words


def test_a_broker_that_begins_anew_without_a_goodbye_had_crashed() -> None:
    log = with_a_led_partition()
    for at in (0, 60_000):
        log.say(at, "server_starting", broker=2, role="server")
        log.say(at + 20, "registered", broker=2, role="server")
    log.say(42_000, "brokers_changed", removed=(2,))
    assert shown(log.answers()["failovers"], "how") == [("crashed",)]


def test_a_controller_that_was_away_itself_tells_nothing_by_when_it_missed_a_broker() -> None:
    log = with_a_led_partition()
    log.say(0, "server_starting", broker=2, role="server")
    log.say(10, "session_established", broker=2, role="server", elapsed_ms=4_000.0)
    log.say(20, "registered", broker=2, role="server")
    log.say(39_000, "zookeeper_lost", broker=1, role="server")
    log.say(41_000, "session_established", broker=1, role="server")
    log.say(42_000, "brokers_changed", removed=(2,))
    assert shown(log.answers()["failovers"], "went_about_ms") == [(None,)]


def test_a_broker_that_asked_to_shut_down_was_stopped_and_not_again_after_it_came_back() -> None:
    log = with_a_led_partition()
    log.say(10_000, "broker_shutdown_requested", peer_broker=2)
    log.say(12_000, "brokers_changed", removed=(2,))
    log.say(20_000, "brokers_changed", added=(2,))
    log.say(21_000, "other", broker=2, role="server")
    log.say(30_000, "brokers_changed", removed=(2,))
    went = sorted(shown(log.answers()["failovers"], "detected_ms", "how"))
    assert went == [(12_000, "stopped"), (30_000, "lost")]


def test_a_controllers_line_about_a_partition_that_is_gone_is_of_its_deletion() -> None:
    log = with_a_led_partition()
    log.partition(12_000, "Online", "Offline")
    log.partition(12_000, "Offline", "NonExistent")
    log.say(12_040, "isr_changed", topic="orders", partition=0, controller_epoch=1, leader=-1, isr=(1,), leader_epoch=1)
    assert log.answers()["partition_outages"] == []


def test_without_controller_log_a_partition_without_a_leader_may_have_been_deleted() -> None:
    log = with_a_led_partition()
    log.events = [event for event in log.events if event.event not in ("controller_elected", "controller_ready")]
    log.say(12_000, "isr_changed", topic="orders", partition=0, controller_epoch=1, leader=-1, isr=(2,), leader_epoch=1)
    log.say(90_000, "other", broker=2, role="server")
    answers = log.answers()
    assert shown(answers["partition_outages"], "open", "unseen") == [(True, "deletion")]
    assert verdict_for(answers).sentence.startswith("Not known whether it is over: 1 partition had no leader")
    assert "controller.log" in dict(summary_for(answers))["Is it over?"]
    log.say(1, "controller_elected", controller_epoch=1)
    assert shown(log.answers()["partition_outages"], "open", "unseen") == [(True, None)]


def test_a_broker_that_went_three_times_is_not_said_to_have_done_so_six_times() -> None:
    log = with_a_led_partition()
    for at in (10_000, 30_000, 50_000):
        log.say(at, "brokers_changed", removed=(2,))
        log.say(at + 10_000, "brokers_changed", added=(2,))
    [words] = [one.words for one in findings_for(log.answers()) if one.kind == "flapping"]
    assert words.startswith("Broker 2 went 3 times from ")


def test_a_seat_that_was_taken_by_hand_is_no_death_where_its_holder_served_its_successor() -> None:
    log = with_a_led_partition()
    log.say(-5_000, "server_starting", broker=1, role="server")
    log.say(30_000, "controller_elected", broker=3, controller=3, controller_epoch=2)
    log.say(30_200, "request_done", broker=1, role="broker", controller=3, controller_epoch=2)
    assert log.answers()["failovers"] == []
    assert T0 + 30_000 in [one.from_ms for one in log.answers()["controller_tenures"]]  # type: ignore[attr-defined]
