"""Partitions and replicas go through the same states in the same order here as under Kafka, fault by fault.

Kafka's side are the lines of its controllers at TRACE, read by the jobs; ours are the lines that stories of our core
write, read by the same jobs. Held are states and their order, not moments. Moves to the same state are left out, unless
a partition did nothing else: of replicas they are Kafka's own (`NEVER_MADE`).
"""

from __future__ import annotations

import gzip
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from controller.core.events import Event, StopReplicaAnswered
from controller.core.project.lines import Line, Stamp, move_lines
from controller.core.states import NEVER_MADE, PARTITION_MOVES, REPLICA_MOVES, PartitionStatus, ReplicaStatus
from sparkjobs.commands.inputs import LogInputs
from sparkjobs.input.files import Zones, find_logs, survey
from sparkjobs.parse.lines import LineReader
from sparkjobs.rules.facts import Facts
from sparkjobs.rules.moves import OF_MANY, bits_of, in_turn, move_in, numbers_in
from sparkjobs.rules.rules import Answers
from sparkjobs.rules.state_machines import LEGAL, MISPRINTED, OLDER, STATES
from sparkjobs.tables.silver import SilverEvent
from tests.builders import Settled
from tests.scenarios import commands_duties, commands_reassignment
from tests.scenarios.story import Story
from tests.spark.lines import a_file
from tests.spark.plain import answers_for
from tests.spark.reading import silver_of

DATA: Final = Path(__file__).parents[1] / "data"
#: they teach `Story` their lines by being imported
LANGUAGE: Final = (commands_duties, commands_reassignment)
TODAY: Final = "kafka-3.9.1"
DELETIONS: Final = "kafka-3.9.1-deletions"
AT_TRACE: Final = (
    *(TODAY, DELETIONS),
    *sorted(f"kafka-older/{one.name}" for one in (DATA / "kafka-older").iterdir() if one.is_dir()),
)
TABLE: Final = {(source.value, target.value) for source, target in (*PARTITION_MOVES, *REPLICA_MOVES)}
#: a move by TRACE alone, like a leader's death, is missing here
AT_INFO: Final = ("kafka-3.9.1-info", "kraft/3.9.1-migration")
#: moves of these Kafka versions that 3.9 does not make, though our table has the row, as Kafka's has
ONLY_OLDER_MAKE: Final = {
    # since 2.3 a dead broker's replicas go offline as a term begins, and come online from there
    ("ReplicaDeletionIneligible", "OnlineReplica"): "0.8.1 to 2.1",
}
#: a line of a controller about a move, whatever else it says
SAYS_A_MOVE: Final = re.compile(rb"hanged (?:state of replica \d+ for )?partition \S+ (?:state )?(?:from \w+ )?to \w+")

P_AGAIN: Final = ("OnlinePartition", "OnlinePartition")
#: an election of many partitions is over that long after it was begun
BALANCED_MS: Final = 1_000

Subject = tuple[str, int, int | None]  # topic, partition, and the broker of a replica


class Said(NamedTuple):
    """One move of one partition or replica, as a line told it."""

    at_ms: int
    epoch: int
    subject: Subject
    source: str | None  # none: the first that 0.8.0 says of a replica
    target: str


# ------------------------------------------------------------------------------------------------ Kafka's recordings


class Recorded:
    """A real cluster: its moves in the order of its controllers, and the actions on it."""

    def __init__(self, name: str) -> None:
        self.folder = DATA / name
        events = silver_of(LogInputs(survey(find_logs([str(self.folder)]), "c", Zones()))).ingested.events
        self.events, self.answers = events, answers_for(events)
        self.moves = list(_moves_in(events))
        asked = [event for event in events if event.event == "preferred_election_asked"]
        self.balanced_ms = [event.ts_utc for event in asked if event.reason == "AutoTriggered"]
        timeline = self.folder / "timeline.jsonl"
        lines = timeline.read_bytes().splitlines() if timeline.exists() else ()
        self.timeline: list[dict[str, Any]] = [msgspec.json.decode(line) for line in lines]

    def is_balancing(self, move: Said) -> bool:
        """Whether Kafka makes first replicas leaders again by the clock, which it does during all other actions."""
        is_again = (move.source, move.target) == P_AGAIN
        return is_again and any(asked_ms <= move.at_ms <= asked_ms + BALANCED_MS for asked_ms in self.balanced_ms)

    def lines_about_moves(self) -> int:
        """Counted without the parser."""
        logs = self.folder.glob("broker*/state-change.log*")
        return sum(len(SAYS_A_MOVE.findall(gzip.decompress(path.read_bytes()))) for path in logs)


def _moves_in(events: Iterable[SilverEvent]) -> Iterator[Said]:
    """A source that is not said, or that 0.8.0 misprints, is the state before."""
    facts, by_subject = _NO_FACTS, defaultdict(list)
    for event in events:
        if (move := move_in(event, facts)) is not None:
            by_subject[str(event.topic), event.partition or 0, move.replica].append(move)
    for subject, moves in by_subject.items():
        state: str | None = None
        for move in in_turn(moves):
            source = move.source
            if source is None or state in MISPRINTED.get((source, move.target), ()):
                source = state
            yield Said(move.ts_utc, move.controller_epoch, subject, source, move.target)
            state = move.target


_NO_FACTS: Final = Facts("c", 0, 0, (), (), {}, {}, {}, {}, {}, {}, {})


@cache
def recorded(name: str) -> Recorded:
    return Recorded(name)


def test_both_tables_are_those_of_the_controller() -> None:
    """The jobs import nothing of it."""
    assert LEGAL == TABLE
    assert STATES["partition"] == tuple(one.value for one in PartitionStatus)
    assert set(STATES["replica"]) == {one.value for one in ReplicaStatus}
    assert not OLDER.keys() & TABLE


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_TRACE)
def test_our_tables_allow_the_moves_of_kafkas_logs(name: str) -> None:
    cluster = recorded(name)
    table = cluster.answers["state_transitions"]
    assert sum(row.times for row in table) == len(cluster.moves) == cluster.lines_about_moves() > 300  # type: ignore[attr-defined]
    last: dict[tuple[Subject, int], str | None] = {}
    seen = set[Subject]()
    for move in sorted(cluster.moves, key=lambda move: move.epoch):
        assert (move.source, move.target) in TABLE or (move.source is None and move.subject not in seen), move
        seen.add(move.subject)
        assert last.get((move.subject, move.epoch), move.source) == move.source, move
        last[move.subject, move.epoch] = move.target
    assert cluster.answers["illegal_transitions"] == cluster.answers["moves_out_of_turn"] == []
    assert {row.known_as for row in table} == {"table"}  # type: ignore[attr-defined]
    both = Counter(row.machine for row in table)  # type: ignore[attr-defined]
    assert both["partition"] > 3
    assert both["replica"] > 3


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_INFO)
def test_what_they_tell_at_their_default_level_our_tables_allow_too(name: str) -> None:
    cluster = recorded(name)
    assert len(cluster.moves) == cluster.lines_about_moves() > 30
    assert {(move.source, move.target) for move in cluster.moves} <= TABLE
    assert cluster.answers["illegal_transitions"] == cluster.answers["moves_out_of_turn"] == []


@pytest.mark.slow
def test_moves_that_only_older_kafkas_make_are_listed() -> None:
    made = {name: {(move.source, move.target) for move in recorded(name).moves if move.source} for name in AT_TRACE}
    today = made.pop(TODAY) | made.pop(DELETIONS)
    assert set().union(*made.values()) - today == ONLY_OLDER_MAKE.keys()
    ours_never = {(source.value, target.value) for source, target in NEVER_MADE}
    assert ours_never <= today
    assert ours_never <= TABLE


def _lasted(answers: Answers) -> dict[str, tuple[int, int]]:
    return {row.state: (row.known_ms, row.at_most_ms) for row in answers["time_in_state"]}  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("without", ["TRACE", "first third", "last third", "broker 1", "broker 2", "broker 3"])
def test_a_missing_line_makes_no_finding_and_no_false_time(without: str) -> None:
    """A state's certain duration, from a part of the lines, is no longer than the longest possible from all lines."""
    whole = recorded(TODAY)
    times = sorted(event.ts_utc for event in whole.events)
    cuts = {"first third": times[len(times) // 3], "last third": times[2 * len(times) // 3]}
    kept = [
        event
        for event in whole.events
        if not (
            (without == event.level)
            or (without == "first third" and event.ts_utc < cuts[without])
            or (without == "last third" and event.ts_utc > cuts[without])
            or without == f"broker {event.broker}"
        )
    ]
    assert 0 < len(kept) < len(whole.events)
    part = answers_for(kept)
    assert part["moves_out_of_turn"] == part["illegal_transitions"] == []
    assert len(part["state_transitions"]) > 3
    most = _lasted(whole.answers)
    for state, (known_ms, at_most_ms) in _lasted(part).items():
        assert known_ms <= at_most_ms
        assert known_ms <= most[state][1]
        if without == "TRACE":  # the remaining lines still cover the whole time from the first to the last
            assert at_most_ms >= most[state][0]


# --------------------------------------------------------------------------------------------------- our own lines


class Logged(Story):
    """A story whose lines are kept as they are written."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Line] = []

    def happens(self, event: Event) -> Settled:
        number = self.events + 1
        settled = super().happens(event)
        stamp = Stamp(number * 1_000, "story", 1, self.epoch, f"{self.epoch}-{number}")
        self.lines += [*settled.lines, *move_lines(settled.moves, stamp)]
        return settled

    def drops(self, broker: int, topic: str, partition: int) -> None:
        """The broker answers that it deleted a replica that a reassignment took from it."""
        replicas = frozenset({(self.cluster.topics[topic].topic_id or "", partition)})
        self.happens(StopReplicaAnswered(broker, self.cluster.brokers[broker].epoch, replicas))

    def moves_from(self, first: int) -> list[Said]:
        """As the jobs read them."""
        reader, found = LineReader(a_file("klamm", kind="json")), []
        for number, line in enumerate(self.lines[first:], start=1):
            event = reader.read(msgspec.json.encode(line).decode(), number)
            assert isinstance(event, SilverEvent)
            for text in event.partitions or () if event.event == OF_MANY else ():
                topic, _, ranges = text.rpartition(" ")
                for partition in numbers_in(bits_of(ranges)):
                    subject = (topic, partition, event.peer_broker)
                    epoch, source, target = event.controller_epoch or 0, str(event.from_state), str(event.to_state)
                    found.append(Said(event.ts_utc, epoch, subject, source, target))
        return found


# ---------------------------------------------------------------------------------------------------------- the scenes

P_CREATED: Final = ("NonExistentPartition", "NewPartition", "OnlinePartition")
P_FOUND: Final = ("OfflinePartition", "OnlinePartition")
R_CREATED: Final = ("NonExistentReplica", "NewReplica", "OnlineReplica")
R_LOST: Final = ("OnlineReplica", "OfflineReplica")
R_BACK: Final = ("OfflineReplica", "OnlineReplica")
R_DELETED: Final = (
    *("OnlineReplica", "OfflineReplica", "ReplicaDeletionStarted", "ReplicaDeletionSuccessful"),
    "NonExistentReplica",
)
#: with its broker, all that it has comes online, and then a deletion goes on
R_WAITS: Final = ("ReplicaDeletionIneligible", "OfflineReplica", *R_DELETED)
P_DELETED: Final = ("OnlinePartition", "OfflinePartition", "NonExistentPartition")
Course = tuple[str, ...]
Window = tuple[int, int, Callable[[Said], bool]]


class Scene(NamedTuple):
    """A fault: the story up to it, the story of it, the expected courses, and its place in Kafka's recording."""

    before: str
    story: str
    passed: set[Course]
    windows: Callable[[Recorded], Iterator[Window]]
    recording: str = TODAY
    dropped_by: tuple[int, ...] = ()


def _until(timeline: list[dict[str, Any]], number: int, *what: str) -> int:
    """When the next of these was done, or the end."""
    return next((int(one["at_ms"]) for one in timeline[number + 1 :] if one["what"] in what), timeline[-1]["at_ms"])


def _is_alone(timeline: list[dict[str, Any]], number: int) -> bool:
    """Whether the same is not done to another broker just before or after."""
    beside = timeline[max(number - 1, 0) : number] + timeline[number + 1 : number + 2]
    return all(one["what"] != timeline[number]["what"] for one in beside)


def _done_to_topics(what: str) -> Callable[[Recorded], Iterator[Window]]:
    def windows(cluster: Recorded) -> Iterator[Window]:
        for number, one in enumerate(cluster.timeline):
            if one["what"] == what:
                topic = one.get("name") or one["topic"]
                others = ("kill", "sigterm", "freeze", "depose", "grow", "topic", "delete", "reassign", "zk_kill")
                end_ms = _until(cluster.timeline, number, *others) if what != "topic" else one["at_ms"] + 5_000
                yield one["at_ms"] - 1_500, end_ms, lambda move, topic=topic: move.subject[0] == topic  # type: ignore[misc]

    return windows


def _deletions_without(how: str) -> Callable[[Recorded], Iterator[Window]]:
    """Of topics, while a broker was away in this way, up to their end."""

    def windows(cluster: Recorded) -> Iterator[Window]:
        away = None
        for number, one in enumerate(cluster.timeline):
            if one["what"] in ("kill", "freeze"):
                away = one["what"]
            elif one["what"] == "delete" and away == how:
                end_ms = _until(cluster.timeline, number, "kill", "freeze")
                yield one["at_ms"], end_ms, lambda move, topic=one["topic"]: move.subject[0] == topic  # type: ignore[misc]

    return windows


def _deaths(cluster: Recorded) -> Iterator[Window]:
    """Of brokers that were not the controller; a session that expired is a death to the controller."""
    for number, one in enumerate(cluster.timeline):
        alone = _is_alone(cluster.timeline, number)
        if one["what"] in ("kill", "freeze") and alone and one["broker"] != one["controller"]:
            yield one["at_ms"], _until(cluster.timeline, number, "start", "thaw"), _of_partition_or(one["broker"])


def _returns(cluster: Recorded) -> Iterator[Window]:
    for number, one in enumerate(cluster.timeline):
        alone = _is_alone(cluster.timeline, number)
        if one["what"] == "start" and alone:
            ends = _until(cluster.timeline, number, *{each["what"] for each in cluster.timeline} - {"start"})
            yield one["at_ms"], min(ends, one["at_ms"] + 9_000), _of_partition_or(one["broker"])


def _shutdowns(cluster: Recorded) -> Iterator[Window]:
    for number, one in enumerate(cluster.timeline):
        if one["what"] == "sigterm" and one["broker"] != one["controller"]:
            yield one["at_ms"], _until(cluster.timeline, number, "start"), _of_partition_or(one["broker"])


def _failovers(cluster: Recorded) -> Iterator[Window]:
    """Only the controller dies: the first lines of its successor."""
    for number, one in enumerate(cluster.timeline):
        alone = _is_alone(cluster.timeline, number)
        if one["what"] == "kill" and alone and one["broker"] == one["controller"]:
            yield one["at_ms"], _until(cluster.timeline, number, "start"), _of_partition_or(one["broker"])


def _of_partition_or(broker: int) -> Callable[[Said], bool]:
    return lambda move: move.subject[2] in (None, broker)


THREE: Final = "brokers 1 2 3\ntopic orders 1:2:3 2:3:1\ntopic single 1"
SCENES: Final[dict[str, Scene]] = {
    "creation": Scene("brokers 1 2 3", "topic orders 1:2:3 2:3:1", {P_CREATED, R_CREATED}, _done_to_topics("topic")),
    "a leader's death": Scene(
        THREE,
        "kill 1",
        {("OnlinePartition", "OfflinePartition", "OnlinePartition"), ("OnlinePartition", "OfflinePartition"), R_LOST},
        _deaths,
    ),
    "a broker's return": Scene(f"{THREE}\nkill 1", "start 1\nisr orders-0 by 2: 2,3,1", {P_FOUND, R_BACK}, _returns),
    "deletion": Scene(
        "brokers 1 2\ntopic orders 1:2 2:1",
        "delete orders\nbroker 2 deleted orders\nbroker 1 deleted orders",
        {P_DELETED, R_DELETED},
        _done_to_topics("delete"),
    ),
    "deletion with a dead broker": Scene(
        "brokers 1 2 3\ntopic orders 1:2:3 2:3:1\nkill 3",
        "another tool marks orders\nbroker 1 deleted orders\nbroker 2 deleted orders\nstart 3\nbroker 3 deleted orders",
        {P_DELETED, R_DELETED, ("OfflineReplica", *R_WAITS)},
        _deletions_without("kill"),
        recording=DELETIONS,
    ),
    "deletion with a broker that stands still": Scene(
        "brokers 1 2 3\ntopic orders 1:2:3 2:3:1",
        "another tool marks orders\nbroker 1 deleted orders\nbroker 2 deleted orders\nkill 3\nstart 3\n"
        "broker 3 deleted orders",
        {P_DELETED, R_DELETED, (*R_DELETED[:3], *R_WAITS)},
        _deletions_without("freeze"),
        recording=DELETIONS,
    ),
    "reassignment": Scene(
        "brokers 1 2 3 4\ntopic orders 1:2:3",
        "reassign orders-0 4 2 3\nisr orders-0 by 1: 1,2,3,4",
        {P_AGAIN, R_CREATED, R_DELETED},
        _done_to_topics("reassign"),
        dropped_by=(1,),
    ),
    "controlled shutdown": Scene(
        THREE, "shut down 1\nkill 1", {P_AGAIN, ("OnlinePartition", "OfflinePartition"), R_LOST}, _shutdowns
    ),
    "a new term": Scene(
        "brokers 1 2 3\ntopic orders 1:2:3 2:3:1\nkill 1 unnoticed",
        "new term",
        {P_FOUND, ("ReplicaDeletionIneligible", "OfflineReplica")},
        _failovers,
    ),
}


def courses(moves: Iterable[Said]) -> Counter[Course]:
    """Return the courses of each partition and each replica."""
    states: dict[Subject, list[str]] = defaultdict(list)
    for move in moves:
        its = states[move.subject]
        if not its:
            its.append(str(move.source))
        assert its[-1] == move.source, (move, its)
        if move.target != move.source:
            its.append(move.target)
    found: Counter[Course] = Counter()
    for (_, _, broker), its in states.items():
        if len(its) > 1 or broker is None:
            found[tuple(its) if len(its) > 1 else (its[0], its[0])] += 1
    return found


@pytest.mark.parametrize("name", SCENES)
def test_a_fault_leads_through_the_same_states_in_the_same_order_as_under_kafka(name: str) -> None:
    scene, story = SCENES[name], Logged()
    for line in scene.before.splitlines():
        story.tell(line)
    first = len(story.lines)
    for line in scene.story.splitlines():
        story.tell(line)
    for broker in scene.dropped_by:
        story.drops(broker, "orders", 0)
    moves = story.moves_from(first)
    assert {(move.source, move.target) for move in moves} <= TABLE
    assert set(courses(moves)) == scene.passed
    kafkas: Counter[Course] = Counter()
    cluster = recorded(scene.recording)
    for from_ms, to_ms, is_its in scene.windows(cluster):
        its = (move for move in cluster.moves if from_ms <= move.at_ms < to_ms and is_its(move))
        kafkas += courses(move for move in its if not cluster.is_balancing(move))
    assert set(kafkas) == scene.passed
