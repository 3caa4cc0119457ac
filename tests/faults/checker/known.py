"""What the replay finds out on its way, for rules about the whole run. It judges nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from tests.faults.checker.history import History
from tests.faults.checker.replay import Key, Registration, State, Step, World
from tests.faults.checker.rules_zookeeper import assigned_of
from tests.faults.checker.writers import Wrong, is_by_controller

#: what operations show in, and tools ask by: everything that ever stood there is kept
_KEPT: Final = re.compile(
    r"/(brokers/topics|admin/delete_topics|config/topics|klamm/draining)/[^/]+|/admin/reassign_partitions"
)


class Value(NamedTuple):
    """What a znode said from this moment on; None: it is not there."""

    at_ms: int
    data: bytes | None
    by_controller: bool = False


class Written(msgspec.Struct, frozen=True):
    """A state znode's version, by whom and when."""

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


class Known(msgspec.Struct):
    """What the replay found out, for rules about the whole run."""

    world: World
    unclean_default: bool = False
    written: list[Written] = []
    claims: list[tuple[int, int, int, int]] = []  # epoch, broker id, zxid, ms
    #: how each tenure ended: who held the seat, and when it was lost
    vacated: list[tuple[int, int]] = []
    deleted: dict[str, tuple[int, int]] = {}  # topic id -> zxid, epoch
    registrations: list[Registration] = []
    gone_states: dict[Key, int] = {}
    #: topic id and partition -> its replicas from each zxid on
    assigned: dict[Key, list[tuple[int, tuple[int, ...]]]] = {}
    values: dict[str, list[Value]] = {}

    def note(self, step: Step, world: World) -> None:
        self.world = world
        commit = step.commit
        if step.seat_before is not None and step.seat_after != step.seat_before:
            self.vacated.append((world.sessions.get(step.seat_before, -1), commit.at_ms))
        if step.is_claim and step.seat_after is not None:
            who = world.sessions.get(step.seat_after, -1)
            self.claims.append((step.epoch_after or 0, who, commit.zxid, commit.at_ms))
        for one in step.states:
            if one.after is not None:
                by = is_by_controller(step)
                place = assigned_of(world, one.key)
                replicas = () if place is None else place.replicas
                unclean = world.is_unclean_allowed(one.key[0], self.unclean_default)
                self.written.append(
                    Written(
                        one.key, one.topic_id, one.after, commit.zxid, commit.at_ms, by, one.before, replicas, unclean
                    )
                )
            else:
                self.gone_states[one.key] = commit.zxid
        self._keep(step)
        for topic in step.topics:
            if topic.after is not None:
                for number, one in topic.after.partitions.items():
                    since = self.assigned.setdefault((topic.after.topic_id or "", number), [])
                    since.append((commit.zxid, one.replicas))
            if topic.before is not None and topic.after is None and topic.before.topic_id is not None:
                self.deleted[topic.before.topic_id] = (commit.zxid, step.epoch_before or 0)

    def _keep(self, step: Step) -> None:
        for write in step.commit.writes:
            if write.kind != "check" and _KEPT.fullmatch(write.path):
                data = None if write.kind == "delete" else write.data
                value = Value(step.commit.at_ms, data, is_by_controller(step))
                self.values.setdefault(write.path, [Value(0, None)]).append(value)

    def changes(self, path: str) -> Iterator[tuple[Value, Value]]:
        """Each value of a znode with the one before it."""
        return pairwise(self.values.get(path, ()))

    def stood(self, path: str, from_ms: int, until_ms: int) -> Iterator[Value]:
        """Whatever a znode said at some moment of a window."""
        values = self.values.get(path, [Value(0, None)])
        for number, one in enumerate(values):
            is_over = number + 1 < len(values) and values[number + 1].at_ms < from_ms
            if one.at_ms <= until_ms and not is_over:
                yield one


RunRule = Callable[[History, Known], Iterator[Wrong]]
