"""Moves of both state machines: counted, measured, and told of each replica; an impossible one is a finding."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparkjobs.input.files import Zones, find_logs, survey
from sparkjobs.report.findings import findings_for
from sparkjobs.rules.moves import bits_of, numbers_in
from sparkjobs.rules.rules import Answers
from sparkjobs.rules.state_machines import LEGAL, MACHINE_OF, NON_EXISTENT
from tests.spark.bundles import write
from tests.spark.dialect_ours import OursWithMoves
from tests.spark.dialects import Kafka39
from tests.spark.plain import answers_for
from tests.spark.reading import ingest
from tests.spark.simulate import Simulation
from tests.spark.written import T0, Log, shown

Subject = tuple[int, int | None]  # partition, and the broker of a replica
PLACE = ("file_id", "line_no")


def replica(log: Log, at: int, before: str | None, after: str, **columns: Any) -> None:
    """A line of Kafka's at TRACE."""
    known = {"topic": "orders", "partition": 0, "controller_epoch": 1, "peer_broker": 2, "level": "TRACE", **columns}
    states = {"from_state": before and f"{before}Replica", "to_state": f"{after}Replica"}
    log.say(at, "replica_changed", **states, **known)


def many(log: Log, at: int, before: str, after: str, partitions: tuple[str, ...], **columns: Any) -> None:
    """A line of ours."""
    known = {"controller_epoch": 1, "cause": "broker_gone", "cause_id": "1-1", "part": len(log.events) + 1, **columns}
    log.say(
        at,
        "states_moved",
        machine=MACHINE_OF[after],
        from_state=before,
        to_state=after,
        partitions=partitions,
        **known,
    )


def a_life() -> Log:
    log = Log()
    replica(log, 1_000, "NonExistent", "New")
    replica(log, 1_100, "New", "Online")
    replica(log, 5_000, "Online", "Offline")
    replica(log, 5_000, "Offline", "Offline")
    log.say(9_000, "other", broker=2, role="server")
    return log


def test_a_replicas_life_has_its_states_with_their_moments() -> None:
    names = ("topic", "partition", "broker", "from_ms", "to_ms", "is_begun", "states", "since_ms", "line_no")
    assert shown(a_life().answers()["replica_lives"], *names) == [
        (
            *("orders", 0, 2, 1_000, None, True),
            ("NewReplica", "OnlineReplica", "OfflineReplica"),
            (1_000, 1_100, 5_000),
            1,
        )
    ]


def test_time_in_a_state_is_exact_where_every_move_has_a_line() -> None:
    names = ("machine", "state", "subjects", "stays", "known_ms", "at_most_ms", "longest_ms", "lasting", "evidence")
    assert shown(a_life().answers()["time_in_state"], *names) == [
        ("replica", "NewReplica", 1, 1, 100, 100, 100, 0, "exact"),
        ("replica", "OfflineReplica", 1, 1, 4_000, 4_000, 4_000, 1, "exact"),
        ("replica", "OnlineReplica", 1, 1, 3_900, 3_900, 3_900, 0, "exact"),
    ]


def test_a_replica_that_is_made_anew_has_another_life() -> None:
    log = Log()
    replica(log, 1_000, "NonExistent", "New")
    for at, states in (
        (2_000, ("ReplicaDeletionSuccessful", "NonExistentReplica")),
        (3_000, ("NonExistentReplica", "NewReplica")),
    ):
        known = {"topic": "orders", "partition": 0, "controller_epoch": 1, "peer_broker": 2, "level": "TRACE"}
        log.say(at, "replica_changed", from_state=states[0], to_state=states[1], **known)
    lives = shown(log.answers()["replica_lives"], "from_ms", "to_ms", "is_begun", "states")
    assert lives == [
        (1_000, 2_000, True, ("NewReplica", "ReplicaDeletionSuccessful")),
        (3_000, None, True, ("NewReplica",)),
    ]
    [jump] = log.answers()["moves_out_of_turn"]
    assert (jump.stood_in, jump.source, jump.line_no) == ("NewReplica", "ReplicaDeletionSuccessful", 2)  # type: ignore[attr-defined]


def test_the_state_before_the_first_line_is_unknown() -> None:
    log = Log()
    replica(log, 4_000, "Online", "Offline")
    replica(log, 5_000, "Offline", "Online")
    stays = shown(log.answers()["time_in_state"], "state", "stays", "known_ms", "unbegun", "evidence")
    assert stays == [
        ("OfflineReplica", 1, 1_000, 0, "exact"),
        ("OnlineReplica", 2, 0, 1, "unknown"),
    ]


def test_a_new_controllers_found_states_count_and_its_predecessors_states_end() -> None:
    log = Log()
    log.say(0, "controller_elected", controller_epoch=1)
    replica(log, 1_000, "NonExistent", "New")
    replica(log, 1_000, "New", "Online")
    log.partition(6_000, "New", "Online", level="TRACE", leader=1)  # its last word
    log.say(10_000, "controller_elected", broker=3, controller_epoch=2)
    known = {"broker": 3, "controller_epoch": 2}
    log.say(
        10_100,
        "replica_changed",
        level="TRACE",
        topic="orders",
        partition=0,
        peer_broker=2,
        from_state="ReplicaDeletionIneligible",
        to_state="OfflineReplica",
        **known,
    )
    replica(log, 12_000, "Offline", "Online", **known)
    answers = log.answers()
    assert answers["moves_out_of_turn"] == []
    stays = {row[0]: row[1:] for row in shown(answers["time_in_state"], "state", "known_ms", "at_most_ms", "evidence")}
    # for certain until the old one's last word, at most until the new one's claim; then until the end
    assert stays["OnlineReplica"] == (5_000 + 0, 9_000 + 0, "bounded")
    assert stays["ReplicaDeletionIneligible"] == (0, 100, "bounded")
    assert stays["OfflineReplica"] == (1_900, 1_900, "exact")


def test_at_kafkas_default_level_a_move_that_has_no_line_is_no_finding() -> None:
    log = Log()
    log.partition(1_000, "NonExistent", "New")
    log.partition(1_100, "New", "Online", leader=2, leader_epoch=0, version=0, isr=(2,))
    log.partition(9_000, "Offline", "Online", leader=1, leader_epoch=1, version=1, isr=(1,))
    answers = log.answers()
    assert answers["moves_out_of_turn"] == []
    names = ("state", "known_ms", "at_most_ms", "evidence")
    assert shown(answers["time_in_state"], *names)[1:] == [
        ("OfflinePartition", 0, 7_900, "bounded"),
        ("OnlinePartition", 0, 7_900, "bounded"),
    ]


def test_at_kafkas_default_level_the_state_between_two_lines_that_agree_is_unknown() -> None:
    log = Log()
    log.partition(1_000, "NonExistent", "New")
    log.partition(1_100, "New", "Online", leader=2, leader_epoch=0, version=0, isr=(2,))
    log.partition(9_000, "Online", "Online", leader=1, leader_epoch=1, version=5, isr=(1,))
    log.say(9_500, "other", broker=2, role="server")
    [_, online] = shown(log.answers()["time_in_state"], "state", "stays", "known_ms", "at_most_ms", "lasting")
    assert online == ("OnlinePartition", 1, 0, 8_400, 1)


def test_a_line_that_begins_where_nothing_stood_is_a_finding_with_its_line() -> None:
    log = a_life()
    replica(log, 8_000, "Online", "Offline")
    [jump] = log.answers()["moves_out_of_turn"]
    names = ("machine", "stood_in", "source", "target", "times", "at_ms", "topic", "partition", "replica", "line_no")
    assert shown([jump], *names) == [
        ("replica", "OfflineReplica", "OnlineReplica", "OfflineReplica", 1, 8_000, "orders", 0, 2, 6)
    ]
    [said] = [one for one in findings_for(log.answers()) if one.kind == "move out of turn"]
    assert (said.line_no, said.weight) == (6, 2)
    assert said.words == (
        "orders-0 on broker 2: 1 move from OnlineReplica to OfflineReplica under controller epoch 1 begins where "
        "nothing stood: it was in OfflineReplica. Lines between are missing, or two controllers wrote as one"
    )


def test_a_move_that_no_table_has_is_a_finding_and_older_kafkas_moves_are_listed() -> None:
    log = Log()
    many(log, 1_000, "NewReplica", "ReplicaDeletionStarted", ("orders 0-4,7", "payments 2"), peer_broker=3)
    replica(log, 2_000, "Offline", "NonExistent", peer_broker=1)
    answers = log.answers()
    rows = shown(answers["illegal_transitions"], "topic", "partition", "partitions", "replica", "how", "line_no")
    assert rows == [("orders", 0, 6, 3, "done", 1), ("payments", 2, 1, 3, "done", 1)]
    words = [one.words for one in findings_for(answers) if one.kind == "illegal move"]
    assert words[0].startswith("orders-0 and 5 more partitions of it: NewReplica to ReplicaDeletionStarted")
    assert shown(answers["state_transitions"], "source", "target", "times", "known_as") == [
        ("NewReplica", "ReplicaDeletionStarted", 7, "unknown"),
        ("OfflineReplica", "NonExistentReplica", 1, "older"),
    ]


def test_0_8_0_prints_the_state_after_an_election_and_no_source_of_replicas() -> None:
    log = Log()
    log.partition(1_000, "NonExistent", "New", level="TRACE")
    log.partition(1_100, "Online", "Online", level="TRACE", leader=2)
    replica(log, 1_000, None, "New")
    replica(log, 1_100, None, "Online")
    answers = log.answers()
    assert answers["moves_out_of_turn"] == []
    assert shown(answers["state_transitions"], "source", "target", "known_as") == [
        ("NewPartition", "OnlinePartition", "table"),
        ("NonExistentPartition", "NewPartition", "table"),
        (None, "NewReplica", "table"),
        ("NewReplica", "OnlineReplica", "table"),
    ]


def test_a_line_about_moves_that_was_written_twice_counts_once() -> None:
    log = Log()
    many(log, 1_000, "OnlineReplica", "OfflineReplica", ("orders 0-9",), peer_broker=2, part=1)
    many(log, 1_007, "OnlineReplica", "OfflineReplica", ("orders 0-9",), peer_broker=2, part=1)
    many(log, 1_010, "OfflineReplica", "OnlineReplica", ("orders 3-4",), peer_broker=2, part=2)
    answers = log.answers()
    assert shown(answers["state_transitions"], "source", "cause", "times") == [
        ("OfflineReplica", "broker_gone", 2),
        ("OnlineReplica", "broker_gone", 10),
    ]
    assert answers["moves_out_of_turn"] == []
    assert len(answers["replica_lives"]) == 10


def test_where_our_log_tells_moves_the_lines_of_states_are_not_counted_again() -> None:
    log = Log()
    states = {"leader": 2, "leader_epoch": 1, "version": 1, "isr": (2,), "zxid": 7, "cause_id": "1-1"}
    log.partition(1_000, "Online", "Online", cause="broker_gone", **states)
    many(log, 1_000, "OnlinePartition", "OfflinePartition", ("orders 0",), part=1)
    many(log, 1_000, "OfflinePartition", "OnlinePartition", ("orders 0",), part=2)
    log.partition(2_000, "Online", "Online", cause="found", **{**states, "version": 2})
    log.partition(3_000, "Offline", "Online", cause="found", controller_epoch=2, **{**states, "version": 3})
    pairs = Counter((row.source, row.target) for row in log.answers()["state_transitions"])  # type: ignore[attr-defined]
    assert pairs == {("OnlinePartition", "OfflinePartition"): 1, ("OfflinePartition", "OnlinePartition"): 1}


def test_a_term_of_ours_without_a_move_is_no_end_of_anything() -> None:
    log = Log()
    many(log, 1_000, "NonExistentReplica", "NewReplica", ("orders 0",), peer_broker=2)
    log.say(5_000, "controller_reported", broker=3, controller_epoch=2, to_state="claimed", elapsed_ms=1.0)
    log.say(9_000, "other", broker=2, role="server")
    names = ("state", "known_ms", "at_most_ms", "lasting")
    assert shown(log.answers()["time_in_state"], *names) == [("NewReplica", 8_000, 8_000, 1)]


def test_where_our_controller_takes_over_from_kafkas_no_time_counts_twice() -> None:
    log = Log()
    log.say(0, "controller_elected", controller_epoch=1)
    replica(log, 1_000, "NonExistent", "New")
    replica(log, 1_000, "New", "Online")
    log.partition(4_000, "New", "Online", level="TRACE", leader=1)  # the last word of Kafka's
    log.say(5_000, "controller_reported", broker=3, controller_epoch=2, to_state="claimed", elapsed_ms=1.0)
    many(log, 7_000, "OnlineReplica", "OfflineReplica", ("orders 0",), peer_broker=2, controller_epoch=2, broker=3)
    log.say(9_000, "other", broker=2, role="server")
    names = ("state", "stays", "known_ms", "at_most_ms", "lasting", "unbegun", "evidence")
    stays = {row[0]: row[1:] for row in shown(log.answers()["time_in_state"], *names)}
    assert stays["OnlineReplica"] == (2, 3_000, 4_000, 0, 1, "unknown")
    assert stays["OfflineReplica"] == (1, 2_000, 2_000, 1, 0, "exact")
    assert stays["OnlinePartition"][1:3] == (0, 1_000)


@pytest.mark.parametrize("at", [0, 1])
def test_a_log_that_was_rotated_within_a_millisecond_is_read_in_its_order(at: int) -> None:
    """Whichever name sorts first: files have their hashes for names."""
    older, newer = ("a", "b") if at else ("b", "a")
    log = Log()
    replica(log, 0, "NonExistent", "New", file_id=older)
    replica(log, 900, "New", "Online", file_id=older, line_no=90)
    replica(log, 900, "Online", "Offline", file_id=newer, line_no=1)
    replica(log, 950, "Offline", "Online", file_id=newer, line_no=2)
    assert log.answers()["moves_out_of_turn"] == []


def test_ranges_are_bits_and_back() -> None:
    draw = random.Random(4)
    for _ in range(200):
        numbers = sorted(draw.sample(range(400), draw.randrange(1, 60)))
        text = ",".join(map(str, numbers))
        assert list(numbers_in(bits_of(text))) == numbers
    assert bits_of("0-4,7") == 0b10011111


# ---------------------------------------------------------------- the same moves, told one by one and of many at once


class World:
    """A topic whose partitions and replicas move at random, by the tables."""

    def __init__(self, seed: int, partitions: int) -> None:
        self.draw, self.partitions = random.Random(seed), partitions
        self.states: dict[Subject, str] = {(p, None): "NonExistentPartition" for p in range(partitions)}
        self.states |= {(p, broker): "NonExistentReplica" for p in range(partitions) for broker in (1, 2)}
        self.one_by_one, self.of_many = Log(), Log()
        self.epoch, self.at = 1, 1_000
        self.lasted: dict[str, int] = defaultdict(int)
        self.since: dict[Subject, int] = {}

    def run(self, steps: int, terms: int) -> None:
        for number in range(steps):
            if number and number % (steps // terms) == 0:
                self._new_term()
            self.at += self.draw.choice((0, 1, 500))
            self._move()
        self.at += 50
        for log in (self.one_by_one, self.of_many):
            log.say(self.at, "other", broker=9, role="server")

    def _move(self) -> None:
        broker = self.draw.choice((None, 1, 2))
        source = self.draw.choice(sorted({self.states[p, broker] for p in range(self.partitions)}))
        target = self.draw.choice(sorted(after for before, after in LEGAL if before == source))
        able = [p for p in range(self.partitions) if self.states[p, broker] == source]
        chosen = sorted(self.draw.sample(able, self.draw.randrange(1, len(able) + 1)))
        common = {"controller_epoch": self.epoch, "cause": "broker_gone", "level": "TRACE", "peer_broker": broker}
        name = "partition_changed" if broker is None else "replica_changed"
        for p in chosen:
            states = {"from_state": source, "to_state": target}
            self.one_by_one.say(self.at, name, topic="orders", partition=p, **states, **common)
            if source != target:
                self.lasted[source] += self.at - self.since.get((p, broker), self.at)
                self.since[p, broker] = self.at
            self.states[p, broker] = target
        ranges = (f"orders {','.join(map(str, chosen))}",)
        many(self.of_many, self.at, source, target, ranges, **common)

    def _new_term(self) -> None:
        """It finds some of them elsewhere."""
        self.epoch, self.at = self.epoch + 1, self.at + 100
        for subject, state in self.states.items():
            if state not in NON_EXISTENT and self.draw.random() < 0.2:
                self.states[subject] = "OfflinePartition" if subject[1] is None else "ReplicaDeletionIneligible"


def bare(answers: Answers, table: str) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in msgspec.structs.asdict(row).items() if name not in PLACE}
        for row in answers[table]
    ]


@pytest.mark.parametrize("seed", range(6))
def test_moves_of_many_partitions_sum_to_the_moves_of_each(seed: int) -> None:
    world = World(seed, partitions=9)
    world.run(steps=240, terms=1 + seed % 3)
    one_by_one, of_many = world.one_by_one.answers(), world.of_many.answers()
    assert one_by_one["moves_out_of_turn"] == of_many["moves_out_of_turn"] == []
    for table in ("state_transitions", "time_in_state", "replica_lives"):
        assert bare(one_by_one, table) == bare(of_many, table)
        assert len(of_many[table]) > 5
    for row in shown(of_many["time_in_state"], "known_ms", "at_most_ms"):
        assert row[0] <= row[1]


@pytest.mark.parametrize("seed", range(6, 10))
def test_in_one_term_each_state_lasted_as_long_as_it_did(seed: int) -> None:
    world = World(seed, partitions=5)
    world.run(steps=200, terms=1)
    for (p, broker), state in world.states.items():
        world.lasted[state] += world.at - world.since.get((p, broker), world.at)
    told = {row.state: row for row in world.of_many.answers()["time_in_state"]}  # type: ignore[attr-defined]
    assert told.keys() == world.lasted.keys() - NON_EXISTENT
    for state, row in told.items():
        assert row.known_ms == row.at_most_ms == world.lasted[state], state  # type: ignore[attr-defined]
        assert row.evidence == "exact"  # type: ignore[attr-defined]


def test_the_same_moment_is_the_same_for_all() -> None:
    log = Log()
    many(log, 1_000, "OnlineReplica", "OfflineReplica", ("orders 0-2",), peer_broker=2)
    assert {row.since_ms for row in log.answers()["replica_lives"]} == {(T0 + 1_000, T0 + 1_000)}  # type: ignore[attr-defined]


def test_unknowable_facts_about_moves_are_named() -> None:
    def said(log: Log) -> tuple[Any, ...]:
        rows = shown(log.answers()["coverage"], "question", "grade", "why")
        return next(row[1:] for row in rows if row[0] == "moves of both machines")

    log = Log()
    log.say(0, "server_starting", role="server")
    assert said(log)[0] == "none"
    log.partition(1_000, "NonExistent", "New")
    assert said(log) == ("partial", "INFO: moves to offline, and those of replicas, have no line; TRACE has")
    replica(log, 1_100, "NonExistent", "New")
    assert said(log) == ("exact", "each move of a partition or a replica has a line")
    log.partition(2_000, "New", "Online", controller_epoch=2)
    assert said(log) == ("partial", "only at TRACE each move has a line: not those of controller epoch 2")


@pytest.mark.parametrize(("dialect", "moved"), [(OursWithMoves, True), (Kafka39, False)])
def test_of_a_simulated_cluster_every_move_is_one_of_the_tables_and_in_turn(
    dialect: type[Kafka39], moved: bool, tmp_path: Path
) -> None:
    write(Simulation(7, dialect=dialect()).run(faults=8), tmp_path, "TRACE")
    answers = answers_for(ingest(survey(find_logs([str(tmp_path)]), "c", Zones())).events)
    assert answers["moves_out_of_turn"] == answers["illegal_transitions"] == []
    assert sum(row.times for row in answers["state_transitions"]) > 40  # type: ignore[attr-defined]
    causes = {row.cause for row in answers["state_transitions"]}  # type: ignore[attr-defined]
    assert ("broker_gone" in causes, None in causes) == (moved, not moved)
