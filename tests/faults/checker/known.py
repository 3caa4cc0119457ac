"""What the replay finds out on its way, for rules about the whole run. It judges nothing."""

from __future__ import annotations

from typing import Final

import msgspec

from tests.faults.checker.replay import Key, Registration, State, Step, World
from tests.faults.checker.rules_zookeeper import assigned_of
from tests.faults.checker.writers import is_by_controller

MARKERS: Final = "/admin/delete_topics/"


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


class Known(msgspec.Struct):
    """What the replay found out, for rules about the whole run."""

    world: World
    written: list[Written] = []
    claims: list[tuple[int, int, int, int]] = []  # epoch, broker id, zxid, ms
    deleted: dict[str, tuple[int, int]] = {}  # topic id -> zxid, epoch
    registrations: list[Registration] = []
    gone_states: dict[Key, int] = {}
    #: topic id and partition -> its replicas from each zxid on
    assigned: dict[Key, list[tuple[int, tuple[int, ...]]]] = {}
    #: names of topics that were ever there, and that were ever marked for deletion
    made: set[str] = set()
    marked: set[str] = set()

    def note(self, step: Step, world: World) -> None:
        self.world = world
        commit = step.commit
        if step.is_claim and step.seat_after is not None:
            who = world.sessions.get(step.seat_after, -1)
            self.claims.append((step.epoch_after or 0, who, commit.zxid, commit.at_ms))
        for one in step.states:
            if one.after is not None:
                by = is_by_controller(step)
                place = assigned_of(world, one.key)
                replicas = () if place is None else place.replicas
                self.written.append(
                    Written(one.key, one.topic_id, one.after, commit.zxid, commit.at_ms, by, one.before, replicas)
                )
            else:
                self.gone_states[one.key] = commit.zxid
        self.marked.update(
            write.path.removeprefix(MARKERS) for write in commit.writes if write.path.startswith(MARKERS)
        )
        for topic in step.topics:
            self.made.add(topic.name)
            if topic.after is not None:
                for number, one in topic.after.partitions.items():
                    since = self.assigned.setdefault((topic.after.topic_id or "", number), [])
                    since.append((commit.zxid, one.replicas))
            if topic.before is not None and topic.after is None and topic.before.topic_id is not None:
                self.deleted[topic.before.topic_id] = (commit.zxid, step.epoch_before or 0)
