"""When no broker lived, by our own logs, which have no line that a process begins: the rows, written out."""

from __future__ import annotations

from tests.spark.written import Log, shown

_SILENCES = ("from_ms", "to_ms", "last_heard", "first_back")
_LIVES = ("broker", "from_ms", "last_seen_ms", "started", "ended")


def said_live(log: Log, at: int, of: dict[int, int], by: int, epoch: int, cause: str = "term_started") -> None:
    """`of`: brokers and their registrations."""
    for broker, broker_epoch in of.items():
        known = {"broker_epoch": broker_epoch, "from_state": "gone", "to_state": "live", "cause": cause}
        log.say(at, "broker_changed", by, controller=by, controller_epoch=epoch, peer_broker=broker, **known)


def goodbye(log: Log, at: int, broker: int, broker_epoch: int, by: int, epoch: int) -> None:
    known = {"broker_epoch": broker_epoch, "to_state": "draining", "cause": "controlled_shutdown"}
    log.say(at, "broker_changed", by, controller=by, controller_epoch=epoch, peer_broker=broker, **known)


def claimed(log: Log, at: int, broker: int, epoch: int) -> None:
    known = {"to_state": "claimed", "elapsed_ms": 30.0, "controller_epoch": epoch}
    log.say(at, "controller_reported", broker, controller=broker, **known)


def stopped_one_by_one(*, last_is_killed: bool = False) -> Log:
    """Broker 1 leaves, then broker 2, the controller, and no broker misses it."""
    log = Log()
    claimed(log, 0, 2, 1)
    said_live(log, 10, {1: 5, 2: 6}, by=2, epoch=1)
    log.say(20, "request_done", 1, "broker", api="UpdateMetadata", controller_epoch=1, controller=2)
    goodbye(log, 9_000, 1, 5, by=2, epoch=1)
    gone = {"broker_epoch": 5, "from_state": "live", "to_state": "gone", "cause": "broker_gone"}
    log.say(9_050, "broker_changed", 2, controller=2, controller_epoch=1, peer_broker=1, **gone)
    if not last_is_killed:
        goodbye(log, 10_000, 2, 6, by=2, epoch=1)
    log.say(10_003, "request_done", 2, "broker", api="UpdateMetadata", controller_epoch=1, controller=2)
    return log


def test_a_cluster_that_was_stopped_broker_by_broker_was_off_until_one_claimed_the_seat_again() -> None:
    log = stopped_one_by_one()
    claimed(log, 60_000, 1, 2)
    said_live(log, 60_050, {1: 20}, by=1, epoch=2)
    said_live(log, 61_000, {2: 21}, by=1, epoch=2, cause="broker_joined")
    log.say(61_005, "request_done", 2, "broker", api="UpdateMetadata", controller_epoch=2)
    answers = log.answers()
    assert shown(answers["cluster_silences"], *_SILENCES) == [(10_003, 60_000, 2, 1)]
    assert shown(answers["broker_lives"], *_LIVES) == [
        (1, 20, 20, False, "stopped"),
        (1, 60_000, 61_000, True, "running"),
        (2, 0, 10_003, False, "stopped"),
        (2, 61_000, 61_005, True, "running"),
    ]


def test_a_broker_not_missed_as_it_takes_the_seat_again_was_stopped_all_the_same() -> None:
    log = stopped_one_by_one()
    claimed(log, 60_000, 2, 2)
    said_live(log, 60_050, {2: 20}, by=2, epoch=2)
    answers = log.answers()
    assert shown(answers["cluster_silences"], *_SILENCES) == [(10_003, 60_000, 2, 2)]
    assert [one for one in shown(answers["broker_lives"], *_LIVES) if one[0] == 2] == [
        (2, 0, 10_003, False, "stopped"),
        (2, 60_000, 60_050, True, "running"),
    ]


def test_a_cluster_whose_last_broker_was_killed_may_as_well_have_lost_zookeeper() -> None:
    """It registers anew after either, and no line tells them apart."""
    log = stopped_one_by_one(last_is_killed=True)
    claimed(log, 60_000, 2, 2)
    said_live(log, 60_050, {2: 20}, by=2, epoch=2)
    assert log.answers()["cluster_silences"] == []
    why = dict(shown(log.answers()["coverage"], "question", "why"))["crash or clean stop"]
    assert "a cluster that was killed as a whole and one that lost ZooKeeper" in why


def test_a_broker_that_a_new_controller_finds_still_leaving_has_not_begun_anew() -> None:
    log = stopped_one_by_one()
    claimed(log, 10_500, 3, 2)
    said_live(log, 10_550, {2: 6, 3: 7}, by=3, epoch=2)
    log.say(90_000, "other", 3)
    answers = log.answers()
    assert answers["cluster_silences"] == []
    assert [one[:3] for one in shown(answers["broker_lives"], *_LIVES)] == [
        (1, 20, 20),
        (2, 0, 10_003),
        (3, 10_500, 90_000),
    ]


def test_after_a_clean_stop_a_broker_that_is_lost_was_not_stopped_again() -> None:
    log = stopped_one_by_one()
    claimed(log, 60_000, 1, 2)
    said_live(log, 60_050, {1: 20}, by=1, epoch=2)
    said_live(log, 61_000, {2: 21}, by=1, epoch=2, cause="broker_joined")
    log.say(61_005, "request_done", 2, "broker", api="UpdateMetadata", controller_epoch=2)
    gone = {"broker_epoch": 21, "from_state": "live", "to_state": "gone", "cause": "broker_gone"}
    log.say(90_000, "broker_changed", 1, controller_epoch=2, peer_broker=2, **gone)
    losses = sorted(shown(log.answers()["failovers"], "detected_ms", "broker", "how"))
    assert losses == [(9_050, 1, "stopped"), (60_000, 2, "stopped"), (90_000, 2, "lost")]
