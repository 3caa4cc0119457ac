"""In-sync replicas over time, for rules about records: each partition's states with the incarnations of its members,
elections that could lose records, and the truncations that brokers logged. It judges nothing.

A broker that died with its machine, or lost its disk, may have less than its ISR. As long as it stays in the ISR by an
incarnation that began before, electing it is no cleaner than an unclean election.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tests.faults.checker.history import History
from tests.faults.checker.records import Copy, Damage, LogKey, Records, Relied
from tests.faults.checker.replay import Key, State
from tests.faults.checker.replay_facts import Known

#: as a line about a truncation says it
_OFFSETS: Final = re.compile(r"offsets ([0-9]+) to ([0-9]+):")


class Stood(NamedTuple):
    """A state from this zxid on, with the broker epoch by which each member of the ISR became one."""

    zxid: int
    state: State
    member_epochs: dict[int, int]


class Loss(NamedTuple):
    """An election that could lose something."""

    zxid: int
    leader_epoch: int


class Truncated(NamedTuple):
    """A follower's own report: from `start` up to `end`, and so many of it, from `start` on, were committed."""

    broker_id: int
    key: LogKey
    leader_epoch: int
    start: int
    end: int
    committed: int


class Partition:
    """All states of one partition of one topic id."""

    def __init__(self, name: Key, damages: list[Damage]) -> None:
        self.name = name
        self.stood: list[Stood] = []
        self.losses: list[Loss] = []
        self._damages = damages

    def at(self, zxid: int) -> Stood | None:
        place = bisect_right(self.stood, zxid, key=lambda one: one.zxid)
        return self.stood[place - 1] if place else None

    def is_damaged(self, stood: Stood, broker_id: int, zxid: int) -> bool:
        """Whether it may have less than a member of the ISR has to."""
        since = stood.member_epochs[broker_id]
        return any(one.broker_id == broker_id and since <= one.zxid <= zxid for one in self._damages)

    def take(self, stood: Stood) -> None:
        before, state = self.stood[-1] if self.stood else None, stood.state
        self.stood.append(stood)
        if before is None or state.leader < 0 or state.leader_epoch == before.state.leader_epoch:
            return
        is_member = state.leader in before.state.isr
        if not is_member or self.is_damaged(before, state.leader, stood.zxid):
            self.losses.append(Loss(stood.zxid, state.leader_epoch))

    def losses_after(self, relied: Relied) -> list[Loss]:
        """Which may have taken it."""
        epoch = relied.leader_epoch
        return [one for one in self.losses if epoch is None or one.leader_epoch > epoch]


class Standing:
    """Of a whole run. Not among them are partitions whose states a tool deleted, because theirs began anew, and those
    of topics whose deletion a tool called off."""

    def __init__(self, history: History, known: Known) -> None:
        self.records = history.records or Records()
        self._known = known
        self._proposals = {
            (proposal.topic_id, proposal.partition, proposal.version): dict(proposal.isr)
            for asking in history.broker_requests
            for proposal in asking.proposals
            if proposal.version is not None
        }
        self.partitions: dict[LogKey, Partition] = {}
        for one in known.written:
            if one.topic_id is not None and one.key not in known.robbed and one.key[0] not in known.called_off:
                key = one.topic_id, one.key[1]
                partition = self.partitions.setdefault(key, Partition(one.key, self.records.damages))
                partition.take(Stood(one.zxid, one.state, self._member_epochs(key, one.zxid, one.state, partition)))
        self.truncated = list(_truncated_in(history)) if self.records.relied else []

    def copies(self, key: LogKey) -> tuple[Copy, list[Copy]] | None:
        """The leader's in the end, and those of all other replicas; None: it has no leader, or is gone."""
        partition = self.partitions.get(key)
        topic = None if partition is None else self._known.world.topics.get(partition.name[0])
        state = None if partition is None else self._known.world.states.get(partition.name)
        if topic is None or state is None or topic.topic_id != key[0] or key[1] not in topic.partitions:
            return None
        replicas = topic.partitions[key[1]].replicas
        copies = [one for one in self.records.copies if one.key == key and one.broker_id in replicas]
        leaders = [one for one in copies if one.broker_id == state.leader]
        return (leaders[0], [one for one in copies if one is not leaders[0]]) if leaders else None

    def is_going(self, partition: Partition, stood: Stood, zxid: int) -> bool:
        """Whether its state was gone by then, or its topic about to be deleted: brokers delete replicas, and no state
        says so."""
        if any(stood.zxid < gone_zxid <= zxid for gone_zxid in self._known.gone.get(partition.name, ())):
            return True
        marker = f"/admin/delete_topics/{partition.name[0]}"
        return any(one.data is not None for one in self._known.standing(marker, zxid, zxid))

    def had_to_keep(self, key: LogKey, broker_id: int, zxid: int) -> bool:
        """Whether it was assigned from then on, and nothing took its disk."""
        if any(one.broker_id == broker_id and one.zxid >= zxid for one in self.records.damages):
            return False
        assigned = self._known.assigned.get(key, [])
        place = max(0, bisect_right(assigned, zxid, key=lambda one: one[0]) - 1)
        return all(broker_id in replicas for _, replicas in assigned[place:])

    def _member_epochs(self, key: LogKey, zxid: int, state: State, partition: Partition) -> dict[int, int]:
        before = partition.stood[-1].member_epochs if partition.stood else {}
        asked = self._proposals.get((*key, state.version), {})
        return {one: before.get(one, asked.get(one, self._life_at(one, zxid))) for one in state.isr}

    def _life_at(self, broker_id: int, zxid: int) -> int:
        lives = [one.epoch for one in self._known.registrations if one.broker_id == broker_id and one.epoch <= zxid]
        return max(lives, default=0)


def _truncated_in(history: History) -> Iterator[Truncated]:
    for line in history.lines:
        if (truncated := truncated_by(line)) is not None:
            yield truncated


def truncated_by(line: dict[str, Any]) -> Truncated | None:
    """Returns the truncation of a line."""
    if line["kind"] != "truncation":
        return None
    found = _OFFSETS.match(line["reason"])
    assert found is not None, f"a truncation of what? {line['reason']}"
    start, end = int(found[1]), int(found[2]) + 1
    key = line["topic_id"], line["partition"]
    return Truncated(line["broker_id"], key, line["leader_epoch"], start, end, line["records_lost"])
