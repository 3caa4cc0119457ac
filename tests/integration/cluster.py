"""Real broker processes on a real ZooKeeper, as the integration tests see them.

Owns the processes and their proxies (the lab's own) and an independent ZooKeeper client (kazoo). It waits for
conditions, with a deadline; whether a test passes is for the test to say. It must leave no process behind.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.retry import KazooRetry

from brokerstub.lab.brokers import LabBroker
from brokerstub.lab.peers import Peers
from brokerstub.lab.settings import LabSettings
from brokerstub.lab.zk_proxy import ZooKeeperProxy
from brokerstub.lab.zookeeper import ZooKeeperServer
from controller.wire.client import ExchangeError, HttpClient
from tests.faults.chaos.witness import Witness
from tests.faults.checker.evidence import json_lines
from tests.faults.checker.history import Call
from tests.integration.judging import assert_well_behaved
from tests.integration.order import Claim, Order
from tests.lab_support import free_port_base
from tests.waiting import DEADLINE_S, until

SESSION_TIMEOUT_MS = 4_000
TICK_MS = 500  # of ZooKeeperServer: a session expires up to so much after its time-out
REQUEST_TIMEOUT_MS = 10_000

_numbers = itertools.count(1)


class State(NamedTuple):
    """The content of a state znode, and a broker's copy of it."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    version: int
    controller_epoch: int


States = dict[tuple[str, int], State]


def now_ms() -> int:
    """By the clock that ZooKeeper stamps its transactions with."""
    return time.time_ns() // 1_000_000


class Broker(LabBroker):
    """One broker process, behind a proxy of its own to each ZooKeeper server."""

    def __init__(self, broker_id: int, settings: LabSettings, peers: Peers, http: HttpClient) -> None:
        super().__init__(broker_id, settings, peers)
        self.pids: list[int] = []
        self._http = http

    @property
    def proxies(self) -> Sequence[ZooKeeperProxy]:
        return self._proxies

    async def start(self) -> bool:
        has_changed = await super().start()
        self.pids += [pid for pid in [self.row.pid] if pid is not None]
        return has_changed

    async def get(self, path: str) -> Any:
        """Returns the answer of its API; None while it gives none."""
        try:
            _, body = await self._http.get(f"{self.url}{path}", {}, REQUEST_TIMEOUT_MS)
        except (ExchangeError, TimeoutError):
            return None
        return json.loads(body)

    async def told(self) -> States:
        """The partitions as the controller told it."""
        page = await self.get("/v1/partitions?limit=10000") or {"items": []}
        return {
            (row["topic"], row["partition"]): State(
                row["leader"], row["leader_epoch"], tuple(row["isr"]), row["version"], row["controller_epoch"]
            )
            for row in page["items"]
            if row["state"] != "new"  # never led, so no broker was told of it
        }

    async def until_faulty(self) -> None:
        """Wait until the process suffers the faults ordered so far; it looks for them from time to time."""
        await until(lambda: self.has_taken_faults, f"broker {self.broker_id} takes up its faults")

    async def create_topic(self, name: str, *, partitions: int = 1) -> int | None:
        """With three replicas each. The answer's status; None if there is none."""
        wanted = {"name": name, "partitions": partitions, "replication_factor": 3}
        headers = {"Content-Type": "application/json", "Klamm-Forward": "1"}
        try:
            url, body = f"{self.url}/v1/topics", json.dumps(wanted).encode()
            status, _ = await self._http.post(url, body, headers, REQUEST_TIMEOUT_MS)
        except (ExchangeError, TimeoutError):
            return None
        return status

    def lines(self) -> list[dict[str, Any]]:
        return json_lines(self.folder / "state-change.log")

    def rpcs(self) -> list[dict[str, Any]]:
        """The controllers' requests that it has answered, in order."""
        return [line for line in self.lines() if line["kind"] == "rpc"]

    def log(self, name: str) -> list[dict[str, Any]]:
        """Returns its log lines of this name, over all its processes."""
        return [line for line in json_lines(self.folder / "broker.log") if line["event"] == name]


class Cluster:
    """Brokers below one chroot, and the ZooKeeper they use. The tests start them."""

    def __init__(self, servers: Sequence[ZooKeeperServer], settings: LabSettings, chroot: str) -> None:
        self.order = Order(servers, chroot)
        self.http = HttpClient()
        self.peers = Peers(settings.ports)
        self.brokers = {broker_id: Broker(broker_id, settings, self.peers, self.http) for broker_id in settings.ports}
        self.witness = Witness(self.peers)
        #: notes for its history beside the logs, see `tests/faults/checker/history.py`
        self.known: dict[str, Any] = {}
        #: requests of a test that the rules have to know of
        self.calls: list[Call] = []
        self.servers = servers
        self.settings = settings
        self.chroot = chroot  # made by the brokers
        patiently = partial(KazooRetry, max_tries=-1, delay=0.05, max_delay=0.2)
        self._kazoo = KazooClient(
            hosts=",".join(server.address for server in servers),
            timeout=30,
            connection_retry=patiently(),
            command_retry=patiently(deadline=DEADLINE_S),
        )

    async def open(self) -> None:
        await asyncio.to_thread(self._kazoo.start, DEADLINE_S)
        self.peers.open()
        for broker in self.brokers.values():
            await broker.open()

    async def close(self) -> None:
        """Nothing is left."""
        for broker in self.brokers.values():
            await broker.kill()
            await broker.close()
        await self.peers.close()
        await self.http.close()
        await asyncio.to_thread(self._kazoo.stop)
        self._kazoo.close()
        pids = [pid for broker in self.brokers.values() for pid in broker.pids]
        assert not any(map(_is_alive, pids)), pids

    async def start(self, *broker_ids: int) -> None:
        """Start these, or all, and wait until everything is well."""
        for broker_id in broker_ids or self.brokers:
            await self.brokers[broker_id].start()
        await self.whole()

    async def zookeeper(self, verb: str, path: str, *arguments: Any, **options: Any) -> Any:
        """A call of kazoo's below the chroot, again while there is no connection."""
        return await self.anywhere(verb, self.chroot + path, *arguments, **options)

    async def anywhere(self, verb: str, path: str, *arguments: Any, **options: Any) -> Any:
        """The same of any path."""
        call = partial(getattr(self._kazoo, verb), path, *arguments, **options)
        return await asyncio.to_thread(self._kazoo.retry, call)

    async def log_in(self, name_and_password: str) -> None:
        """Log in. From now on these calls have the rights that ACLs grant to that name."""
        await asyncio.to_thread(self._kazoo.add_auth, "digest", name_and_password)

    async def together(self, *writes: tuple[Any, ...]) -> bool:
        """Kazoo's calls in one transaction, each with its path below the chroot: all of it, or nothing."""
        transaction = self._kazoo.transaction()
        for verb, path, *arguments in writes:
            getattr(transaction, verb)(self.chroot + path, *arguments)
        results = await asyncio.to_thread(transaction.commit)
        return not any(isinstance(one, Exception) for one in results)

    async def serve(self, topic: str) -> None:
        """Have a topic made: it cannot be before ZooKeeper serves and there is a controller."""

        async def is_made() -> bool:
            return await self.running[0].create_topic(topic) in (200, 201)

        await until(is_made, f"topic {topic} is made")

    @property
    def running(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.state == "running"]

    @property
    def controller(self) -> Broker:
        """Returns the broker that claimed last."""
        return self.brokers[self.order.claims()[-1].broker_id]

    async def claim_after(self, earlier: Claim) -> Claim:
        """Wait until the seat was won again."""
        later: list[Claim] = await until(
            lambda: [claim for claim in self.order.claims() if claim.zxid > earlier.zxid], "another claims /controller"
        )
        return later[0]

    async def state_znodes(self, topic: str, numbers: Iterable[int]) -> dict[int, tuple[dict[str, Any], int]]:
        """JSON and version of those that there are."""
        found = {}
        for number in numbers:
            with suppress(NoNodeError):
                data, stat = await self.zookeeper("get", f"/brokers/topics/{topic}/partitions/{number}/state")
                found[number] = json.loads(data), stat.version
        return found

    async def states(self) -> States:
        """The state znodes as they are."""
        states = {}
        for topic in await self.zookeeper("get_children", "/brokers/topics"):
            try:
                data, _ = await self.zookeeper("get", f"/brokers/topics/{topic}")
            except NoNodeError:  # deleted since the names were read
                continue
            znodes = await self.state_znodes(topic, map(int, json.loads(data)["partitions"]))
            for number, (said, version) in znodes.items():
                states[topic, number] = State(
                    said["leader"], said["leader_epoch"], tuple(said["isr"]), version, said["controller_epoch"]
                )
        return states

    async def is_agreed(self) -> bool:
        """Returns whether every running broker knows the live brokers, and was told ZooKeeper's states."""
        states = await self.states()
        running_ids = [broker.broker_id for broker in self.running]
        for broker in self.running:
            page = await broker.get("/v1/brokers") or {"items": []}
            live_ids = [row["id"] for row in page["items"] if row["state"] == "live"]
            if live_ids != running_ids or await broker.told() != states:
                return False
        return True

    async def _is_green(self) -> bool:
        verdicts = [await broker.get("/healthz/cluster") for broker in self.running]
        return all(verdict and verdict["status"] == "green" for verdict in verdicts)

    async def whole(self) -> None:
        """Wait until every broker that was started is there, in every ISR it belongs to, and all agree."""

        async def is_whole() -> bool:
            ended = [broker.row for broker in self.brokers.values() if broker.state == "exited"]
            assert not ended, ended
            # Asked again at the end: a verdict from before the brokers agreed may rest on earlier requests to them.
            return await self._is_green() and await self.is_agreed() and await self._is_green()

        try:
            await until(is_whole, "the cluster is whole")
        except AssertionError as error:
            for broker in self.running:
                error.add_note(f"{broker.row}\n{await broker.get('/healthz/cluster')}\n{await broker.told()}")
            raise


def cluster_for(
    servers: Sequence[ZooKeeperServer],
    folder: Path,
    *,
    brokers: int = 3,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    properties: Mapping[str, str] | None = None,
    keeps_records: bool = False,
) -> Cluster:
    """A cluster of which nothing runs yet, in a chroot of its own."""
    chroot = f"/integration-{next(_numbers)}"
    settings = LabSettings(
        var=folder,
        brokers=brokers,
        port_base=free_port_base(brokers),
        kafka_port_base=free_port_base(brokers) if keeps_records else None,
        zookeeper=",".join(server.address for server in servers) + chroot,
        session_timeout_ms=session_timeout_ms,
        properties=properties or {},
    )
    return Cluster(servers, settings, chroot)


@asynccontextmanager
async def a_cluster(servers: Sequence[ZooKeeperServer], folder: Path, **shape: Any) -> AsyncIterator[Cluster]:
    """The same, opened, and closed at the end; its history is judged."""
    cluster = cluster_for(servers, folder, **shape)
    try:
        await cluster.open()
        yield cluster
    finally:
        await cluster.close()
    assert_well_behaved(cluster)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
