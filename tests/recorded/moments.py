"""The recorded histories cut into moments: an event, and the writes of Kafka's controller because of it.

A moment lasts until the next one begins, so every write belongs to exactly one. Most causes are writes themselves: a
registration, a claim, a topic, a marker, a state that a leader asked for. Elections, controlled shutdowns and a
reassignment to the present replicas leave no trace of their own; they are known by their writes, and by the
timeline beside the recording. Nothing here may know our controller's decisions.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

import msgspec

from controller.core.formats import decode_state, decode_topic
from controller.core.model import Assignment, Leadership, Replicas
from controller.core.project.znodes import (
    BROKER_IDS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    TOPICS,
)
from tests.recordings import Recording, Write

DATA = Path(__file__).parent.parent / "data"
#: the same words in both layouts
BALANCE = re.compile(
    r"\[?([-\d]+)[T ]([:\d]+),(\d+).*\[Controller id=(\d+)\] Processing automatic preferred replica leader election"
)
#: Kafka writes one decision without such a pause; its automatic election comes 5 s after a claim
PAUSE_MS = 1_000
#: how long after a command or a line of a log its first write may come: ZooKeeper may just be restarting
COMMAND_MS = 4_000


class Kind(StrEnum):
    CONTROLLER_CHANGED = "controller changed"
    BROKER_GONE = "broker gone"
    BROKER_CAME = "broker came"
    TOPIC_CREATED = "topic created"
    TOPIC_GROWN = "topic grown"
    TOPIC_DELETED = "topic deleted"
    REASSIGNED = "reassignment asked"
    LEADER_ASKED = "ISR change asked"
    SHUTDOWN_ASKED = "controlled shutdown asked"
    ELECTION_ASKED = "preferred election asked"
    BALANCED = "preferred election, automatic"


#: the controller wrote the first of it itself; otherwise the cause stands when the controller hears of it
ASKED = {Kind.REASSIGNED, Kind.LEADER_ASKED, Kind.SHUTDOWN_ASKED, Kind.ELECTION_ASKED, Kind.BALANCED}


class Moment(msgspec.Struct):
    """`topic`, `partition` and `target` are a reassignment's request, `proposals` those of leaders. `broker_id` is the
    broker that shuts down."""

    kind: Kind
    zxid: int
    topic: str = ""
    partition: int = -1
    target: Replicas = ()
    broker_id: int = -1
    proposals: list[Write] = []
    #: the zxid it ends with
    end: int = 0
    begun_ms: int = 0
    #: whether the controller has begun to answer, and when it wrote the last of that
    is_answered: bool = False
    last_ms: int = 0


class Command(msgspec.Struct):
    """A line of a timeline."""

    at_ms: int
    what: str
    broker: int = -1


def moments_of(recording: Recording) -> list[Moment]:
    """Without the history before the first claim."""
    timeline = (DATA / recording.name / "timeline.jsonl").read_bytes().splitlines()
    cutter = Cutter([msgspec.json.decode(line, type=Command) for line in timeline])
    for group in recording.transactions:
        for write in group:
            cutter.see(write)
    moments = [one for one in cutter.moments if one.zxid >= recording.claims[0]]
    for one, following in pairwise(moments):
        one.end = following.zxid - 1
    moments[-1].end = recording.transactions[-1][0].zxid
    return moments


def balances_of(recording: Recording) -> list[tuple[int, int]]:
    """Automatic elections, with moments and brokers, also those that moved nothing: only Kafka's logs say that."""
    found = []
    for log in (DATA / recording.name).glob("broker*/controller.log*.gz"):
        for line in gzip.decompress(log.read_bytes()).decode().splitlines():
            held = BALANCE.match(line)
            if held is not None:
                moment = datetime.fromisoformat(f"{held[1]} {held[2]}.{held[3]}+00:00")
                found.append((round(moment.timestamp() * 1_000), int(held[4])))
    return sorted(found)


def partition_of(path: str) -> tuple[str, int]:
    """Returns the partition of a state znode."""
    parts = path.split("/")
    return parts[3], int(parts[5])


class Cutter:
    """Follows the history only as far as the meaning of a write needs it."""

    def __init__(self, timeline: Sequence[Command]) -> None:
        self.moments: list[Moment] = []
        self.timeline = timeline
        #: session -> the broker it registered
        self.registered: dict[str, int] = {}
        #: the session that holds the seat
        self.holder = ""
        self.assignments: dict[str, dict[int, Assignment]] = {}
        self.states: dict[tuple[str, int], Leadership] = {}

    def see(self, write: Write) -> None:
        data = (write.data or "").encode()
        parent, _, name = write.path.rpartition("/")
        match write.op:
            case "close" if self.registered.pop(write.session, None) is not None and write.session != self.holder:
                self._begin(Kind.BROKER_GONE, write)  # the death of the holder itself is noticed by its successor
            case "create" if write.path == CONTROLLER:
                self.holder = write.session
            case "set" if write.path == CONTROLLER_EPOCH:
                self._begin(Kind.CONTROLLER_CHANGED, write)
            case "create" if parent == BROKER_IDS:
                self.registered[write.session] = int(name)
                self._begin(Kind.BROKER_CAME, write)
            case "create" if parent == DELETE_TOPICS:
                self._begin(Kind.TOPIC_DELETED, write)
            case "create" | "set" if parent == TOPICS:
                self._see_topic(write, name, decode_topic(data)[1])
            case "create" | "set" if name == "state":
                self._see_state(write, partition_of(write.path), decode_state(data))
            case "delete" if parent == TOPICS:
                del self.assignments[name]
            case "delete" if name == "state":
                del self.states[partition_of(write.path)]
            case _:
                pass

    def _begin(self, kind: Kind, write: Write) -> Moment:
        self.moments.append(Moment(kind, write.zxid, begun_ms=write.at_ms, last_ms=write.at_ms))
        return self.moments[-1]

    def _see_topic(self, write: Write, topic: str, after: dict[int, Assignment]) -> None:
        before = self.assignments.get(topic)
        self.assignments[topic] = after
        if before is None:
            self._begin(Kind.TOPIC_CREATED, write)
            return
        if after.keys() - before.keys():
            self._begin(Kind.TOPIC_GROWN, write)
        for number, old in before.items():
            is_over = bool(old.adding or old.removing) and not (after[number].adding or after[number].removing)
            if after[number] != old and not is_over:
                self._begin_reassignment(write, topic, number)

    def _see_state(self, write: Write, key: tuple[str, int], after: Leadership) -> None:
        before, now = self.states.get(key), self.moments[-1]
        self.states[key] = after
        if before is not None and after.leader_epoch == before.leader_epoch:  # only leaders ask for such
            if now.kind is not Kind.LEADER_ASKED or now.is_answered:
                now = self._begin(Kind.LEADER_ASKED, write)
            now.proposals.append(write)
            return
        if before is not None and not self._is_answer(now, write, key):
            now = self._begin_unannounced(write, key, before, after)
        now.is_answered, now.last_ms = True, write.at_ms

    def _is_answer(self, now: Moment, write: Write, key: tuple[str, int]) -> bool:
        """Returns whether a state written again belongs to the answer under way."""
        if write.at_ms > now.last_ms + PAUSE_MS:
            return False
        match now.kind:
            case Kind.TOPIC_CREATED | Kind.TOPIC_GROWN:
                return False
            case Kind.REASSIGNED:
                return key == (now.topic, now.partition)
            case Kind.LEADER_ASKED:
                assigned = self.assignments[key[0]][key[1]]
                return bool(assigned.adding or assigned.removing)  # with it a reassignment ends
            case _:
                return True

    def _begin_unannounced(self, write: Write, key: tuple[str, int], before: Leadership, after: Leadership) -> Moment:
        if (before.leader, before.isr) == (after.leader, after.isr):  # so Kafka takes in the present state
            return self._begin_reassignment(write, *key)
        commands = [one for one in self.timeline if write.at_ms - COMMAND_MS <= one.at_ms <= write.at_ms]
        last = commands[-1] if commands else Command(0, "")
        if last.what == "sigterm":
            moment = self._begin(Kind.SHUTDOWN_ASKED, write)
            moment.broker_id = last.broker
            return moment
        return self._begin(Kind.ELECTION_ASKED if last.what == "preferred" else Kind.BALANCED, write)

    def _begin_reassignment(self, write: Write, topic: str, number: int) -> Moment:
        moment = self._begin(Kind.REASSIGNED, write)
        assigned = self.assignments[topic][number]
        moment.topic, moment.partition = topic, number
        moment.target = tuple(one for one in assigned.replicas if one not in assigned.removing)
        return moment
