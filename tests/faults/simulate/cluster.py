"""A simulated cluster: members, ZooKeeper and network, and the history that the checker judges.

It owns the faults and operations that a schedule can name. `schedule.py` draws when each of them happens. `rest.py`
decides whether the cluster has come to rest.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from controller.core.project.lines import Line
from tests.faults.checker.commits import from_ops
from tests.faults.checker.history import BrokerRequest, Call, End, Fault, History, Lag, Rpc, object_of
from tests.faults.checker.replay import Topic, topic_of
from tests.faults.hostile import hidden_topics, rewritten_ids
from tests.faults.simulate.client import SimClient
from tests.faults.simulate.decoded_requests import ASKED, TOLD, broker_request_of, rpc_of
from tests.faults.simulate.delays import ENDS_WITHIN_MS
from tests.faults.simulate.loop import Clock, Process, VirtualLoop
from tests.faults.simulate.member import SESSION_TIMEOUT_MS, Member
from tests.faults.simulate.network import Exchange, Network
from tests.faults.simulate.records import SimRecords
from tests.faults.simulate.zookeeper import TICK_S, SimZooKeeper


class SimCluster:
    """Built for one run, inside its loop."""

    def __init__(
        self,
        loop: VirtualLoop,
        seed: str,
        folder: Path,
        *,
        brokers: int,
        balances: bool = True,
        keeps_records: bool = False,
    ) -> None:
        self.loop, self.seed, self.folder, self.balances = loop, seed, folder, balances
        self.clock = Clock(loop)
        self.zookeeper = SimZooKeeper(self.clock)
        self.network = Network(loop, seed, lambda: (self.zookeeper.zxid, self.zookeeper.now_ms), self._witness)
        self.lags: list[Lag] = []
        #: when terms were over, by epoch
        self.ended_ms: dict[int, int] = {}
        self.lines: list[Line] = []
        self.rpcs: list[Rpc] = []
        self.broker_requests: list[BrokerRequest] = []
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.bugs: list[str] = []
        self.notes: list[str] = []
        self.members: dict[int, Member] = {}
        self.broker_ids = range(1, brokers + 1)
        #: the znodes that are malformed, forbidden or refused now, and the repair of each
        self.spoiled: dict[str, Callable[[], None]] = {}
        #: brokers that refuse the requests about a topic: broker id and topic id
        self.disobeyed: set[tuple[int, str]] = set()
        #: from then on wall clocks are right, too
        self.is_healed = False
        self.records = SimRecords(self, seed) if keeps_records else None
        self._coming_back: dict[int, asyncio.TimerHandle] = {}
        #: brokers that lost their disks
        self._emptied: set[int] = set()
        self._lives: dict[int, int] = {}
        self._past_sessions: dict[int, set[int]] = {}
        self._cut_ids: set[int] = set()
        self._processes: list[Process] = []
        self._ticking = loop.create_task(self._tick())
        self._trace = hashlib.sha256()

    # ------------------------------------------------------------------ members

    def start(self, broker_id: int) -> None:
        if broker_id in self.members:
            return
        if self.records is not None and self.records.is_damaged(broker_id):
            if broker_id not in self._coming_back:
                self._coming_back[broker_id] = self.loop.call_later(TICK_S, self._come_back, broker_id)
            return
        life = self._lives[broker_id] = self._lives.get(broker_id, 0) + 1
        directory = self.folder / f"broker-{broker_id}"
        directory.mkdir(exist_ok=True)
        self.members[broker_id] = Member(self, broker_id, life, directory)
        self._processes.append(self.members[broker_id].process)

    def _come_back(self, broker_id: int) -> None:
        """Its machine does, perhaps."""
        del self._coming_back[broker_id]
        self.start(broker_id)

    def ended(self, member: Member) -> None:
        if self.members.get(member.broker_id) is member:
            del self.members[member.broker_id]
        self._past_sessions.setdefault(member.broker_id, set()).update(member.sessions)
        if member.zk is not None:
            member.zk.process.kill()
            member.zk.disconnect()

    def kill(self, broker_id: int, *, loses_disk: bool = False) -> None:
        member = self.members[broker_id]
        member.process.kill()
        self.ended(member)
        if loses_disk:
            shutil.rmtree(self.folder / f"broker-{broker_id}")
            self._emptied.add(broker_id)
        if self.records is not None:
            self.records.died(broker_id, loses_disk=loses_disk)

    def misses_an_id(self) -> bool:
        """Whether a tool dropped a topic's id that no controller has written again."""
        parent = self.zookeeper.tree.nodes.get("/brokers/topics")
        found = (self._topic(name) for name in (() if parent is None else parent.children))
        return any(one is not None and one.topic_id is None for one in found)

    def is_on_disks(self, name: str) -> bool:
        """Whether each broker that has lost its disk was given its replicas of the topic again."""
        topic = self._topic(name)
        return topic is None or all(
            (topic.topic_id, number) in self._held_by(broker_id)
            for number, assigned in topic.partitions.items()
            for broker_id in self._emptied.intersection(assigned.replicas)
        )

    def _topic(self, name: str) -> Topic | None:
        node = self.zookeeper.tree.nodes.get(f"/brokers/topics/{name}")
        return None if node is None else topic_of(node.data, node.czxid)

    def _held_by(self, broker_id: int) -> Collection[tuple[str, int]]:
        member = self.members.get(broker_id)
        return () if member is None or member.broker is None else member.broker.replicas.held

    def new_session(self, member: Member) -> SimClient:
        random = Random(f"{member.random.random()}")
        client = self.zookeeper.connect_for(member.process, SESSION_TIMEOUT_MS, random)
        if member.broker_id in self._cut_ids:
            client.cut()
        return client

    def earlier_sessions(self, broker_id: int) -> set[int]:
        return self._past_sessions.get(broker_id, set())

    async def reachable(self, member: Member) -> None:
        """No session is had while nothing passes."""
        while member.broker_id in self._cut_ids:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.1)

    @property
    def active_ids(self) -> list[int]:
        return [i for i, one in sorted(self.members.items()) if one.handle.is_active and not one.process.is_frozen]

    @property
    def seat_id(self) -> int | None:
        """The broker id in `/controller`, as ZooKeeper stores it."""
        data = self.zookeeper.read("/controller")
        said = None if data is None else object_of(data).get("brokerid")
        return said if isinstance(said, int) else None

    # ------------------------------------------------------------------ faults that have a length

    def cut(self, broker_id: int, *, is_loud: bool) -> None:
        self._cut_ids.add(broker_id)
        client = self.members[broker_id].zk if broker_id in self.members else None
        if client is not None:
            (client.refuse if is_loud else client.cut)()

    def heal_zookeeper(self, broker_id: int) -> None:
        self._cut_ids.discard(broker_id)
        member = self.members.get(broker_id)
        if member is not None and member.zk is not None:
            member.zk.heal()

    def heal(self) -> None:
        """Everything works again, makes sense again, everybody runs again."""
        self.is_healed = True
        for path in list(self.spoiled):
            self.spoiled.pop(path)()
        self.network.heal()
        for client in self.zookeeper.clients:
            client.keep_answers()
        for broker_id in self.broker_ids:
            self.heal_zookeeper(broker_id)
            if broker_id in self.members:
                self.members[broker_id].process.thaw()
            else:
                self.start(broker_id)
        self.fault("heal", "everything")

    def fault(self, kind: str, target: object = "", *, can_move_seat: bool = False, lasts_s: float = 0.0) -> None:
        broker_id = target if isinstance(target, int) else None
        said = f"{target} for {lasts_s:.1f} s" if lasts_s else str(target)
        now_ms, lasts_ms = self.zookeeper.now_ms, round(lasts_s * 1_000)
        self.faults.append(Fault(now_ms, kind, said, can_move_seat, broker_id, lasts_ms))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def call_begun(self, what: str, subject: str, detail: Any = None) -> int:
        self.calls.append(Call(what, subject, self.zookeeper.now_ms, None, None, detail))
        return len(self.calls) - 1

    def call_ended(self, number: int, outcome: Any, refused: frozenset[tuple[str, int]]) -> None:
        ended = {"ended_ms": self.zookeeper.now_ms, "outcome": outcome, "refused": refused}
        self.calls[number] = self.calls[number]._replace(**ended)

    # ------------------------------------------------------------------ evidence

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.clock.tick()

    def _witness(self, exchange: Exchange) -> None:
        if not exchange.status:
            if exchange.path in ASKED:
                self.broker_requests.append(broker_request_of(exchange, self.zookeeper.now_ms))
            return
        self._trace.update(f"{self.loop.time():.6f} {exchange.sender} {exchange.receiver} {exchange.path}".encode())
        self._trace.update(exchange.body)
        if exchange.path in TOLD and exchange.status == 200:
            self.rpcs.append(rpc_of(exchange, self.zookeeper.now_ms))
        elif exchange.path in ASKED and exchange.status == 200:
            self.broker_requests.append(broker_request_of(exchange, self.zookeeper.now_ms))

    def trace_hash(self) -> str:
        """Of everything that was exchanged and committed, with its moment."""
        trace = self._trace.copy()
        for one in self.zookeeper.history:
            trace.update(repr((one.zxid, one.session_id, one.at_ms, one.ops)).encode())
        for call in self.calls:
            said = call._replace(refused=frozenset()), sorted(call.refused)  # a set has no order of its own
            trace.update(repr(said).encode())
        return trace.hexdigest()

    def history(self, end: End | None) -> History:
        sent_ms = self.zookeeper.ledger.sent_ms
        commits = [
            from_ops(one.zxid, one.session_id, one.at_ms, one.ops, sent_ms.get(one.zxid))
            for one in self.zookeeper.history
        ]
        return History(
            commits=commits,
            rpcs=self.rpcs,
            heard=self.rpcs,
            sees="all",
            broker_requests=self.broker_requests,
            readings=self.zookeeper.ledger.readings,
            lines=[msgspec.to_builtins(one) for one in self.lines],
            calls=self.calls,
            faults=self.faults,
            bugs=self.bugs,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            ended_ms=self.ended_ms,
            ends_within_ms=ENDS_WITHIN_MS,
            hidden_topics=hidden_topics(self.faults),
            rewritten_ids=rewritten_ids(self.faults),
            records=None if self.records is None else self.records.evidence,
            end=end,
        )

    def view_of(self, member: Member) -> dict[tuple[str, int], tuple[int, int, tuple[int, ...], int]]:
        assert member.broker is not None
        return {
            (topic.topic, row.partition): (row.leader, row.leader_epoch, tuple(row.isr), row.version)
            for topic in member.broker.metadata.topics()
            for row in topic.partitions
        }

    def strays(self) -> dict[int, list[str]]:
        """Replicas of topics that are gone."""
        topics: dict[str, Topic | None] = {}
        found: dict[int, list[str]] = {}
        for broker_id, member in self.members.items():
            for held in member.broker.replicas.held.values() if member.broker is not None else ():
                if held.topic not in topics:
                    topics[held.topic] = self._topic(held.topic)
                if not _is_assigned(topics[held.topic], held, broker_id):
                    found.setdefault(broker_id, []).append(f"{held.topic}-{held.partition}")
        return found

    async def bury(self) -> None:
        """End every task, of the living and of the dead: nothing they still do is heard."""
        self._witness = self.network.witness = lambda exchange: None  # type: ignore[method-assign]
        for client in list(self.zookeeper.clients):
            client.lose()
        for process in self._processes:
            process.thaw()
        ours = asyncio.current_task()
        rest = [task for task in asyncio.all_tasks() if task is not ours]
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=1.0)


def _is_assigned(topic: Topic | None, replica: Any, broker_id: int) -> bool:
    if topic is None or topic.topic_id != replica.topic_id or replica.partition not in topic.partitions:
        return False
    return broker_id in topic.partitions[replica.partition].replicas
