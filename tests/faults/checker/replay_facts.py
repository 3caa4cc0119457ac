"""The replay's findings on its way, for rules about the whole run. It judges nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from tests.faults.checker.history import SLACK_MS, History, Rpc
from tests.faults.checker.replay import Key, Registration, State, Step, TopicChange, World
from tests.faults.checker.rules_zookeeper import assigned_of
from tests.faults.checker.writers import EPOCH, Wrong, is_by_controller

#: nodes that operations show in, and tools ask by: all their contents are kept
_KEPT: Final = re.compile(
    r"/(brokers/topics|admin/delete_topics|config/(topics|brokers|changes)|klamm/draining)/[^/]+"
    r"|/(isr_change|log_dir_event)_notification/[^/]+|/admin/reassign_partitions"
)


class Value(NamedTuple):
    """The content of a znode from this moment on; None: it is missing."""

    at_ms: int
    data: bytes | None
    by_controller: bool = False
    zxid: int = 0


class Tenure(msgspec.Struct):
    """One stretch of the seat in one session's hands: `zxid` is the claim's. Until None: it never ended."""

    session: int
    broker_id: int
    epoch: int
    zxid: int
    at_ms: int
    until_zxid: int | None = None
    until_ms: int | None = None


class Written(msgspec.Struct, frozen=True):
    """A state znode's version, with its writer and moment."""

    key: Key
    topic_id: str | None
    state: State
    zxid: int
    at_ms: int
    by_controller: bool
    before: State | None = None
    replicas: tuple[int, ...] = ()
    #: whether its topic could be led uncleanly by configuration
    unclean_allowed: bool = False
    #: the broker of the session; None: a tool's
    by_id: int | None = None


class Moved(NamedTuple):
    """A replica that a controller assigned, or assigned no more, with the state that was written with it."""

    key: Key
    topic_id: str
    broker_id: int
    zxid: int
    at_ms: int
    state: State


class Deleted(NamedTuple):
    """A topic whose znode went; `replicas` were assigned until then."""

    name: str
    zxid: int
    at_ms: int
    epoch: int
    by_id: int | None
    replicas: dict[int, tuple[int, ...]]


class Known(msgspec.Struct, eq=False, weakref=True):
    """The replay's findings, for rules about the whole run."""

    world: World
    unclean_default: bool = False
    written: list[Written] = []
    tenures: list[Tenure] = []
    deleted: dict[str, Deleted] = {}  # by topic id; topics that can no longer be are not among them
    registrations: list[Registration] = []
    #: when a partition's state went, each time
    gone: dict[Key, list[int]] = {}
    #: partitions whose state znode a tool deleted while their topic stayed: its versions begin anew, and its leader
    #: epochs do until brokers refuse them; rules that order by these say nothing of such a partition
    robbed: set[Key] = set()
    #: topics whose marker a tool removed: brokers may have deleted replicas, and nothing says so any more
    called_off: set[str] = set()
    #: topic id -> name
    names: dict[str, str] = {}
    #: topic id and partition -> its replicas from each zxid on
    assigned: dict[Key, list[tuple[int, tuple[int, ...]]]] = {}
    values: dict[str, list[Value]] = {}
    added: list[Moved] = []
    dropped: list[Moved] = []
    #: when a tool wrote or deleted the epoch's node
    epoch_harmed_ms: list[int] = []
    #: when which commit was made, in order
    moments: list[tuple[int, int]] = []

    @property
    def claims(self) -> list[tuple[int, int, int, int]]:
        """Epoch, broker id, zxid and moment of each."""
        return [(one.epoch, one.broker_id, one.zxid, one.at_ms) for one in self.tenures]

    @property
    def vacated(self) -> list[tuple[int, int]]:
        """How each tenure ended: the holder of the seat, and when it was lost."""
        return [(one.broker_id, one.until_ms) for one in self.tenures if one.until_ms is not None]

    def tenure_at(self, zxid: int) -> Tenure | None:
        """Returns the tenure of the seat when this was committed, or that was lost by it."""
        held = (one for one in reversed(self.tenures) if one.zxid <= zxid)
        return next((one for one in held if one.until_zxid is None or zxid <= one.until_zxid), None)

    def note(self, step: Step, world: World) -> None:
        self.world = world
        commit = step.commit
        self.moments.append((commit.at_ms, commit.zxid))
        if self.tenures and step.seat_before is not None and step.seat_after != step.seat_before:
            self.tenures[-1].until_zxid, self.tenures[-1].until_ms = commit.zxid, commit.at_ms
        if step.is_claim and step.seat_after is not None:
            who = world.sessions.get(step.seat_after, -1)
            self.tenures.append(Tenure(step.seat_after, who, step.epoch_after or 0, commit.zxid, commit.at_ms))
        for one in step.states:
            if one.after is not None:
                by = is_by_controller(step)
                place = assigned_of(world, one.key)
                replicas = () if place is None else place.replicas
                unclean = world.is_unclean_allowed(one.key[0], self.unclean_default)
                self.written.append(
                    Written(
                        one.key, one.topic_id, one.after, commit.zxid, commit.at_ms, by, one.before, replicas, unclean,
                        world.sessions.get(commit.session),
                    )
                )  # fmt: skip
            else:
                self.gone.setdefault(one.key, []).append(commit.zxid)
                if commit.session not in world.sessions and f"/brokers/topics/{one.key[0]}" in world.nodes:
                    self.robbed.add(one.key)
        if commit.session not in world.sessions:
            self.called_off.update(step.gone_markers)
            written = (one for one in commit.writes if one.kind != "check" and one.path == EPOCH)
            self.epoch_harmed_ms += [commit.at_ms for _ in written]
        self._keep(step)
        for topic in step.topics:
            if topic.after is not None:
                self.names[topic.after.topic_id or ""] = topic.name
                for number, one in topic.after.partitions.items():
                    since = self.assigned.setdefault((topic.after.topic_id or "", number), [])
                    since.append((commit.zxid, one.replicas))
            if topic.before is not None and topic.before.topic_id is not None:
                self._note_change(step, world, topic, topic.before.topic_id)

    def _note_change(self, step: Step, world: World, topic: TopicChange, topic_id: str) -> None:
        assert topic.before is not None
        commit, name = step.commit, topic.name
        if topic.after is None:
            if f"/brokers/topics/{name}" not in world.nodes:
                replicas = {number: one.replicas for number, one in topic.before.partitions.items()}
                by_id = world.sessions.get(commit.session)
                moment = commit.zxid, commit.at_ms, step.epoch_before or 0
                self.deleted[topic_id] = Deleted(name, *moment, by_id, replicas)
            return
        for number, before in topic.before.partitions.items() if is_by_controller(step) else ():
            after, state = topic.after.partitions.get(number), world.states.get((name, number))
            if after is None or state is None or topic.after.topic_id != topic_id:
                continue
            old, new = set(before.replicas), set(after.replicas)
            place = (name, number), topic_id
            moment = commit.zxid, commit.at_ms, state
            self.added += [Moved(*place, broker_id, *moment) for broker_id in sorted(new - old)]
            self.dropped += [Moved(*place, broker_id, *moment) for broker_id in sorted(old - new)]

    def is_gone_since(self, one: Written) -> bool:
        return self.gone.get(one.key, [-1])[-1] > one.zxid

    def _keep(self, step: Step) -> None:
        for write in step.commit.writes:
            if write.kind != "check" and _KEPT.fullmatch(write.path):
                data = None if write.kind == "delete" else write.data
                value = Value(step.commit.at_ms, data, is_by_controller(step), step.commit.zxid)
                self.values.setdefault(write.path, [Value(0, None)]).append(value)

    def zxid_known_to(self, rpc: Rpc) -> int | None:
        """Its sender knew of no later commit; None: of this request that cannot be said."""
        if rpc.sent_zxid is not None:
            return rpc.sent_zxid
        if rpc.sent_ms is None:
            return None
        # ZooKeeper stamps a transaction when it is asked for: every session knows of it later
        until_ms = rpc.sent_ms + SLACK_MS
        return next((zxid for at_ms, zxid in reversed(self.moments) if at_ms <= until_ms), 0)

    def standing(self, path: str, since: int, until: int) -> Iterator[Value]:
        """Yields all contents of a znode in a stretch of zxids."""
        values = self.values.get(path, [Value(0, None)])
        for number, one in enumerate(values):
            is_over = number + 1 < len(values) and values[number + 1].zxid <= since
            if one.zxid <= until and not is_over:
                yield one

    def changes(self, path: str) -> Iterator[tuple[Value, Value]]:
        """Each value of a znode with the one before it."""
        return pairwise(self.values.get(path, ()))

    def stood(self, path: str, from_ms: int, until_ms: int) -> Iterator[Value]:
        """Yields all contents of a znode in a window of time."""
        values = self.values.get(path, [Value(0, None)])
        for number, one in enumerate(values):
            is_over = number + 1 < len(values) and values[number + 1].at_ms < from_ms
            if one.at_ms <= until_ms and not is_over:
                yield one


RunRule = Callable[[History, Known], Iterator[Wrong]]
