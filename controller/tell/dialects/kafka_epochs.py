"""Whether a real broker has heard of a higher leader epoch than the one it was told, by Kafka's OffsetForLeaderEpoch.

A broker answers 11 to a LeaderAndIsr whether the leader epoch is the one that it has, which is normal, or lower, which
is a refusal. The leader epoch that it acts by, and not the one in its metadata, shows in how it fences a question of a
given leader epoch. Pure: no socket, no clock.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from controller.core.codes import Code
from controller.core.model import LEADER_EPOCH_MAX, TopicIdPartition
from controller.kafka.protocol.codec import Reader, WireError, Writer
from controller.tell.dialects import Wanted

KEY: Final = 23
#: every broker since 2.3 serves it
VERSION: Final = 3
#: of an answer so many are asked about, those written last first: a takeover that changes nothing tells all of them
ASKED_MAX: Final = 1_000
_A_CLIENT: Final = -1


class Search:
    """Over several questions: each replica's leader epoch is doubled upwards until the broker fences it no more."""

    def __init__(self, rows: Wanted, replicas: Iterable[TopicIdPartition], broker_id: int) -> None:
        self._names = {topic_id: topic for topic, topic_id in rows}
        told = {}
        for topic_id, number in replicas:
            partition = rows[self._names[topic_id], topic_id].get(number)
            if partition is not None and partition.state is not None:
                told[topic_id, number] = partition.state
        newest = sorted(told, key=lambda one: told[one].controller_epoch, reverse=True)[:ASKED_MAX]
        self._told = {replica: told[replica] for replica in newest}
        self._broker_id = broker_id
        self._asked = {replica: state.leader_epoch for replica, state in self._told.items()}
        #: a leader epoch at least as high as the broker's, where it refused the one it was told
        self.found: dict[TopicIdPartition, int] = {}

    @property
    def is_over(self) -> bool:
        return not self._asked

    def question(self, client: str, correlation_id: int) -> bytes:
        """Header v1 and body."""
        topics: dict[str, list[tuple[int, int]]] = {}
        for (topic_id, number), epoch in self._asked.items():
            topics.setdefault(self._names[topic_id], []).append((number, epoch))
        writer = Writer(flexible=False)
        writer.i16(KEY).i16(VERSION).i32(correlation_id).string(client).i32(_A_CLIENT)

        def topic(name: str) -> None:
            writer.string(name).array(topics[name], lambda row: writer.i32(row[0]).i32(row[1]).i32(row[1]))

        return writer.array(list(topics), topic).message()

    def take(self, frame: bytes, correlation_id: int) -> None:
        """Take an answer: questions that are left go out with the next one."""
        codes = codes_in(frame, correlation_id)
        asked, self._asked = self._asked, {}
        for replica, epoch in asked.items():
            code = codes.get((self._names[replica[0]], replica[1]))
            told = self._told[replica]
            is_leader = told.leader == self._broker_id
            if code == Code.FENCED_LEADER_EPOCH:
                above = epoch + max(1, epoch - told.leader_epoch)
                if epoch < LEADER_EPOCH_MAX:
                    self._asked[replica] = min(above, LEADER_EPOCH_MAX)
            elif epoch > told.leader_epoch:
                self.found[replica] = epoch
            elif code == (Code.NOT_LEADER_OR_FOLLOWER if is_leader else Code.NONE):
                self.found[replica] = epoch  # it has another leader in this very epoch


def codes_in(frame: bytes, correlation_id: int) -> Mapping[tuple[str, int], int]:
    """By topic name and partition."""
    reader = Reader(frame, flexible=False)
    if (found := reader.i32()) != correlation_id:
        raise WireError(f"the answer to request {found}, not {correlation_id}")
    reader.i32()  # throttled for so long
    codes: dict[tuple[str, int], int] = {}

    def topic() -> None:
        name = reader.string()
        for code, number, _, _ in (struct.unpack(">hiiq", reader.take(18)) for _ in range(reader.i32())):
            codes[name, number] = code

    reader.array(topic)
    return codes
