"""The disks of a simulated cluster, and the evidence about records for the checker: which machines died, which records
brokers acknowledged or served, and which replicas held them then.

It observes the answers to clients and the disks, and trusts no broker.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from brokerstub.clients.reading import FETCH, ReadingApis
from brokerstub.clients.writing import PRODUCE, WritingApis
from brokerstub.logs import FOLDER
from controller.kafka.protocol.codec import Reader, Writer
from controller.kafka.server.listener import Api, NoAnswerWanted
from tests.fakes.disk import SimulatedDisk
from tests.faults.checker.records import Copy, Damage, LogKey, Records, Relied, batches_in, is_at
from tests.faults.checker.replay import STATE, state_of
from tests.faults.simulate.batch import (
    Place,
    answer_to_fetch,
    answer_to_produce,
    fetched_in,
    produced_in,
)

if TYPE_CHECKING:
    from tests.faults.simulate.cluster import SimCluster
    from tests.faults.simulate.member import Member

#: where a client asks a broker
PRODUCE_PATH, FETCH_PATH = "/kafka/produce", "/kafka/fetch"
ALL: Final = -1
#: of the deaths of processes, so many are deaths of their machines
MACHINES_SHARE: Final = 0.5
#: a log has many segments soon
SEGMENT_BYTES: Final = 600
_SUFFIX: Final = ".log"


class SimRecords:
    """Of one run."""

    def __init__(self, cluster: SimCluster, seed: str) -> None:
        self.cluster = cluster
        self.evidence = Records()
        self.random = Random(f"{seed} records")
        self.properties = {
            "log_segment_bytes": SEGMENT_BYTES,
            "min_insync_replicas": self.random.choice((1, 1, 2)),
        }
        self._disks: dict[int, SimulatedDisk] = {}
        self._damaged: set[int] = set()

    def disk(self, broker_id: int) -> SimulatedDisk:
        return self._disks.setdefault(broker_id, SimulatedDisk())

    def died(self, broker_id: int, *, loses_disk: bool) -> None:
        """Record the death of a process, or of its whole machine. The last broker that runs keeps its disk: otherwise
        no replica would remain to notice the loss."""
        is_machine = self.random.random() < MACHINES_SHARE
        if not (loses_disk or is_machine) or not self.cluster.members:
            return
        self._damaged.add(broker_id)
        self.evidence.damages.append(Damage(broker_id, self.cluster.zookeeper.zxid))
        if loses_disk:
            self._disks.pop(broker_id, None)
        else:
            self.disk(broker_id).lose_power(self.random)
            self.cluster.fault("lose power", broker_id)

    def is_damaged(self, broker_id: int) -> bool:
        """Whether the broker has lost data while the controller has not yet noticed its death. Such a broker would lead
        on, at the leader epoch at which it had more data. A real machine takes longer to restart than a controller to
        notice."""
        if broker_id in self._damaged and not self._leads(broker_id):
            self._damaged.remove(broker_id)
        return broker_id in self._damaged

    def _leads(self, broker_id: int) -> bool:
        """Whether the broker leads, or could lead, as it is registered. No other leader is elected for a topic that is
        being deleted."""
        nodes = self.cluster.zookeeper.tree.nodes
        if f"/brokers/ids/{broker_id}" in nodes:
            return True
        for path, node in nodes.items():
            found = STATE.fullmatch(path)
            if found is not None and f"/admin/delete_topics/{found[1]}" not in nodes:
                state = state_of(node.data, node.version)
                # a malformed state may name this leader once it is repaired
                if state is None or state.leader == broker_id:
                    return True
        return False

    # ------------------------------------------------------------------ the answers of brokers

    async def serve(self, member: Member, path: str, body: bytes) -> tuple[int, bytes]:
        """As the listener for Kafka's clients does. 204: no answer is wanted."""
        broker = member.broker
        assert broker is not None, "it listens only afterwards"
        assert broker.logs is not None, "it keeps records"
        api = WritingApis(broker.logs).table()[PRODUCE]
        if path == FETCH_PATH:
            api = ReadingApis(broker.logs).table()[FETCH]
        try:
            answer = await _answered(api, body)
        except NoAnswerWanted:
            return 204, b""
        (self._note_read if path == FETCH_PATH else self._note_produced)(member, body, answer)
        return 200, answer

    def _note_produced(self, member: Member, body: bytes, answer: bytes) -> None:
        place, acks, batch = produced_in(body)
        code, offset = answer_to_produce(answer)
        if code == 0 and acks == ALL:
            sent = next(batches_in(batch))
            self.evidence.relied.append(self._relied("acknowledged", member, place, offset, sent.name))

    def _note_read(self, member: Member, body: bytes, answer: bytes) -> None:
        place, given = fetched_in(body), answer_to_fetch(answer)
        for one in batches_in(given.data):
            relied = self._relied("read", member, place, one.offset, one.name)
            self.evidence.relied.append(relied)

    def _relied(self, how: str, member: Member, place: Place, offset: int, name: str) -> Relied:
        broker = member.broker
        assert broker is not None
        assert broker.logs is not None
        one = broker.logs.of(*place)
        key = one.replica.key
        return Relied(
            how,  # type: ignore[arg-type]
            key,
            offset,
            name,
            member.broker_id,
            None if one.leader is None else one.leader.leader_epoch,
            self.cluster.zookeeper.zxid,
            frozenset(broker_id for broker_id in self._disks if self._has(broker_id, key, name, offset)),
        )

    # ------------------------------------------------------------------ the contents of disks

    def _has(self, broker_id: int, key: LogKey, name: str, offset: int) -> bool:
        """Whether the broker's log has the batch. After a power loss, batches behind a gap are cut when the log is
        opened."""
        log = self.log_of(broker_id, key)
        if not is_at(log, name, offset):
            return False
        if not any(one.broker_id == broker_id for one in self.evidence.damages):
            return True
        expected = None
        for one in batches_in(log):
            if expected is not None and one.offset != expected:
                return False
            if (one.offset, one.name) == (offset, name):
                return True
            expected = one.offset + one.count
        return False

    def log_of(self, broker_id: int, key: LogKey) -> bytes:
        """All of a replica's segments, one behind the other."""
        disk, folder = self.disk(broker_id), folder_of(key)
        try:
            names = sorted(name for name in disk.names(folder) if name.endswith(_SUFFIX))
        except FileNotFoundError:
            return b""
        return b"".join(disk.read(f"{folder}/{name}", 0, 1 << 30) for name in names)

    def take_copies(self) -> None:
        """In the end: the logs of all replicas that brokers have."""
        for broker_id, member in sorted(self.cluster.members.items()):
            logs = None if member.broker is None else member.broker.logs
            for key in sorted(member.broker.replicas.told) if member.broker is not None else ():
                one = None if logs is None else logs.get(key)
                if one is not None:
                    kept = tuple(batches_in(self.log_of(broker_id, key)))
                    self.evidence.copies.append(Copy(broker_id, key, one.high_watermark, kept))


def folder_of(key: LogKey) -> str:
    return f"{FOLDER}/{key[0]}-{key[1]}"


async def _answered(api: Api, body: bytes) -> bytes:
    assert api.handler is not None
    writer = Writer(flexible=True)
    await api.handler(api.last, Reader(body, flexible=True), writer)
    return writer.message()
