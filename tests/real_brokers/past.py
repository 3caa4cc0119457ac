"""Conclusions from ZooKeeper's own history of a run: writers of states and their right to, and times without decisions.

Pure: operations in ZooKeeper's order go in, findings come out. ZooKeeper cannot know when a process really died; the
killer tells that.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sparkjobs.records.zookeeper_files import Operation

STATE: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
TOPIC: Final = re.compile(r"/brokers/topics/([^/]+)")
BROKER: Final = re.compile(r"/brokers/ids/(\d+)")
MARKER: Final = re.compile(r"/admin/delete_topics/([^/]+)")
WRITES: Final = ("create", "set")


@dataclass
class Dead:
    """A process, by its id, that was killed or stood still; `to_ms` when it ran again, or another in its place."""

    process_id: int
    from_ms: int
    to_ms: int | None = None

    def is_at(self, at_ms: int) -> bool:
        return self.from_ms <= at_ms and (self.to_ms is None or at_ms < self.to_ms)


@dataclass(frozen=True)
class Seat:
    broker_id: int
    session: int
    epoch: int


@dataclass
class Wait:
    """Of one partition, from the moment on that no live process led it: in all, and without the time in which ZooKeeper
    did not know of the death yet, by the seat's holder (None: vacant)."""

    total_ms: int = 0
    undecided_ms: dict[int | None, int] = field(default_factory=lambda: defaultdict(int))


@dataclass
class Past:
    """Operations one after the other; findings in `wrong` and `waits`."""

    dead: Sequence[Dead] = ()
    #: alive, and yet as a controller of no use: a bug of Kafka's
    stuck: Sequence[Dead] = ()
    #: whether leaders write their ISRs themselves, as they do below protocol level 2.7
    leaders_write: bool = False
    wrong: list[str] = field(default_factory=list)
    #: those that are over, with the partition
    waits: list[tuple[str, Wait]] = field(default_factory=list)
    seat: Seat | None = None
    _registered: set[int] = field(default_factory=set)
    _sessions: dict[int, int] = field(default_factory=dict)
    _topics: dict[str, set[int]] = field(default_factory=dict)
    _leaving: set[str] = field(default_factory=set)
    _states: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    _waiting: dict[tuple[str, int], Wait] = field(default_factory=dict)
    _at_ms: int = 0

    @classmethod
    def of(
        cls,
        operations: Iterable[Operation],
        dead: Sequence[Dead] = (),
        stuck: Sequence[Dead] = (),
        *,
        leaders_write: bool = False,
    ) -> Past:
        """A partition that waits at the end waited until then."""
        past, done = cls(dead, stuck, leaders_write), list(operations)
        edges = sorted({edge for one in (*dead, *stuck) for edge in (one.from_ms, one.to_ms) if edge is not None})
        index = 0
        while index < len(done):
            zxid, at_ms = done[index].zxid, done[index].at_ms
            while edges and edges[0] <= at_ms:
                past._pass_to(edges.pop(0))
            past._pass_to(at_ms)
            together = index
            while together < len(done) and done[together].zxid == zxid:
                together += 1
            past._take(done[index:together])
            index = together
        past.waits += [(f"{topic}-{number}", wait) for (topic, number), wait in past._waiting.items()]
        return past

    def _pass_to(self, at_ms: int) -> None:
        """Time goes by, and nothing else happens."""
        spent = max(0, at_ms - self._at_ms)
        here, self._at_ms = self._at_ms, max(self._at_ms, at_ms)
        dead_ids = {one.process_id for one in self.dead if one.is_at(here)}
        idle_ids = dead_ids | {one.process_id for one in self.stuck if one.is_at(here)}
        live_ids = self._registered - dead_ids
        holder_id = None if self.seat is None else self.seat.broker_id
        for name, numbers in self._topics.items():
            for number in numbers if name not in self._leaving else ():
                leader = self._states.get((name, number), {}).get("leader", -1)
                if leader in live_ids:
                    self._is_led(name, number)
                    continue
                wait = self._waiting.setdefault((name, number), Wait())
                wait.total_ms += spent
                if spent and leader not in self._registered and holder_id not in idle_ids:
                    wait.undecided_ms[holder_id] += spent

    def _is_led(self, name: str, number: int) -> None:
        wait = self._waiting.pop((name, number), None)
        if wait is not None:
            self.waits.append((f"{name}-{number}", wait))

    def _take(self, together: Sequence[Operation]) -> None:
        """One transaction: the seat first, since the writes beside a claim are the claimer's."""
        epoch = next((int(one.data or b"0") for one in together if one.path == "/controller_epoch"), None)
        for one in together:
            if one.path == "/controller" and one.kind == "create":
                self.seat = Seat(json.loads(one.data or b"")["brokerid"], one.session, -1 if epoch is None else epoch)
            elif (one.path == "/controller" and one.kind == "delete") or "/controller" in one.paths:
                self.seat = None
        for one in together:
            self._registered -= {int(found[1]) for path in one.paths if (found := BROKER.fullmatch(path))}
            if one.path is None or one.kind not in (*WRITES, "delete"):
                continue
            if found := BROKER.fullmatch(one.path):
                (self._registered.discard if one.kind == "delete" else self._registered.add)(int(found[1]))
                if one.kind == "create":
                    self._sessions[int(found[1])] = one.session
            elif found := MARKER.fullmatch(one.path):
                (self._leaving.discard if one.kind == "delete" else self._leaving.add)(found[1])
                for number in self._topics.get(found[1], ()):
                    self._waiting.pop((found[1], number), None)
            elif found := TOPIC.fullmatch(one.path):
                self._take_topic(found[1], one)
            elif found := STATE.fullmatch(one.path):
                self._take_state((found[1], int(found[2])), one)

    def _take_topic(self, name: str, one: Operation) -> None:
        if one.kind == "delete":
            for number in self._topics.pop(name, ()):
                self._waiting.pop((name, number), None)
            return
        self._topics[name] = {int(number) for number in json.loads(one.data or b"{}").get("partitions", {})}

    def _take_state(self, key: tuple[str, int], one: Operation) -> None:
        before = self._states.pop(key, None)
        if one.kind == "delete":
            return
        state = self._states[key] = json.loads(one.data or b"{}")
        self.wrong += [f"{key[0]}-{key[1]} at zxid {one.zxid:#x}: {said}" for said in self._faults(before, state, one)]

    def _is_own_isr(self, before: dict[str, Any], state: dict[str, Any], one: Operation) -> bool:
        """Whether a leader wrote its ISR and nothing else. It has the epoch of the controller that told it to lead."""
        same = ("leader", "leader_epoch")
        is_leaders = self._sessions.get(before["leader"]) == one.session and state["leader"] in state["isr"]
        return is_leaders and all(state[name] == before[name] for name in same) and state["isr"] != before["isr"]

    def _faults(self, before: dict[str, Any] | None, state: dict[str, Any], one: Operation) -> Iterable[str]:
        seat = self.seat
        if self.leaders_write and before is not None and self._is_own_isr(before, state, one):
            return
        if seat is None or (seat.session, seat.epoch) != (one.session, state["controller_epoch"]):
            epoch = state["controller_epoch"]
            yield f"written with controller epoch {epoch} by session {one.session:#x}, not by {seat}"
        if state["leader"] != -1 and state["leader"] not in state["isr"]:
            yield f"its leader {state['leader']} is out of sync: {state['isr']}"
        if before is None or one.kind != "set":
            return
        if {**before, "controller_epoch": 0} == {**state, "controller_epoch": 0}:
            yield f"written again with nothing new, by the controller of epoch {state['controller_epoch']}"
        has_moved = state["leader"] != before["leader"]
        if state["leader_epoch"] < before["leader_epoch"] + has_moved:
            yield f"led by {state['leader']} with epoch {state['leader_epoch']} after {before}"
        if has_moved and state["leader"] != -1 and state["leader"] not in before["isr"]:
            yield f"led by {state['leader']}, which was not in sync: {before['isr']}"
