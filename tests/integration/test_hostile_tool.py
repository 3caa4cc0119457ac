"""A hostile tool at every kind of node of a running cluster on a real ZooKeeper: topics that it did not touch are
served a failover later, and the cluster is green by itself once the tool has cleaned up.

No watch is on state znodes, so the tool's harm to these is seen by the next term at the latest. After it every broker
has ZooKeeper's states.

Served is a partition whose leader runs and was told ZooKeeper's leader epoch. The order of harms, the nodes harmed
together and the events then are drawn from a seed.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoChildrenForEphemeralsError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Broker, Cluster, cluster_for, until
from tests.integration.judging import bugs_in

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(900)]

SEED: Final = int(os.environ.get("KLAMM_SEED", "21"))
GARBAGE, UNREADABLE, UNWRITABLE, REMOVED, CHILD = "garbage", "unreadable", "unwritable", "removed", "foreign child"
HARMS: Final = (GARBAGE, UNREADABLE, UNWRITABLE, REMOVED, CHILD)
NONSENSE: Final = (b"", b"\xff\x00\xfe", b"{}", b"[]", b"null", b'{"version":99}', b"-1", b"9" * 400, b"[" * 5_000)
OWNER: Final = make_digest_acl("owner", "of the test", all=True)
ACLS: Final[dict[str, Sequence[ACL]]] = {
    UNREADABLE: [OWNER, make_acl("world", "anyone", write=True, create=True, delete=True, admin=True)],
    UNWRITABLE: [OWNER, make_acl("world", "anyone", read=True)],
}
STEADY: Final = ("steady-a", "steady-b")
#: harmed in one round, beside each other
TOGETHER: Final = 14


class Kind(NamedTuple):
    """A kind of node, and its content where it does not exist by itself."""

    path: str
    made_of: bytes | None = None
    #: the whole cluster hangs on it, so it is harmed alone
    is_alone: bool = False


KINDS: Final = (
    Kind("/controller", is_alone=True),
    Kind("/controller_epoch", is_alone=True),
    Kind("", is_alone=True),
    Kind("/brokers", is_alone=True),
    Kind("/brokers/ids", is_alone=True),
    Kind("/brokers/topics", is_alone=True),
    Kind("/brokers/seqid"),
    Kind("/brokers/ids/{broker}"),
    Kind("/brokers/topics/{topic}"),
    Kind("/brokers/topics/{topic}/partitions"),
    Kind("/brokers/topics/{topic}/partitions/0"),
    Kind("/brokers/topics/{topic}/partitions/0/state"),
    Kind("/config"),
    Kind("/config/changes"),
    Kind("/config/changes/config_change_{number}", b'{"version":2,"entity_path":"topics/{topic}"}'),
    Kind("/config/topics"),
    Kind("/config/topics/{topic}", b'{"version":1,"config":{"retention.ms":"1000"}}'),
    Kind("/config/brokers"),
    Kind("/config/brokers/<default>", b'{"version":1,"config":{}}'),
    Kind("/admin"),
    Kind("/admin/delete_topics"),
    Kind("/admin/delete_topics/{topic}", b""),
    Kind("/admin/reassign_partitions", b'{"version":1,"partitions":[]}'),
    Kind("/admin/preferred_replica_election", b'{"version":1,"partitions":[]}'),
    Kind("/isr_change_notification"),
    Kind("/isr_change_notification/isr_change_{number}", b'{"version":1,"partitions":[]}'),
    Kind("/log_dir_event_notification"),
    Kind("/log_dir_event_notification/log_dir_event_{number}", b'{"version":1,"broker":1,"event":1}'),
    Kind("/latest_producer_id_block", b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'),
    Kind("/cluster"),
    Kind("/cluster/id"),
    Kind("/klamm"),
    Kind("/klamm/terms"),
    Kind("/klamm/terms/{epoch}"),
    Kind("/klamm/brokers"),
    Kind("/klamm/brokers/{broker}"),
    Kind("/klamm/draining"),
)


class Harm(NamedTuple):
    """One of these, done to a node of that kind."""

    kind: Kind
    how: str


class Tool:
    """A client that may do everything. It remembers how to repair its harm."""

    def __init__(self, cluster: Cluster, client: KazooClient, draw: Random) -> None:
        self._cluster, self._client, self._draw = cluster, client, draw
        self._undo: list[Callable[[], object]] = []
        self.done: Counter[Harm] = Counter()
        self._number = 1_000_000_000

    async def inflict(self, harm: Harm, topic: str, broker_id: int) -> None:
        self._number += 1
        names = {"topic": topic, "broker": broker_id, "epoch": self._cluster.order.claims()[-1].controller_epoch}
        path = self._cluster.chroot + harm.kind.path.format(number=self._number, **names)
        await asyncio.to_thread(self._inflict, harm, path)
        self.done[harm] += 1

    def _inflict(self, harm: Harm, path: str) -> None:
        client = self._client
        if harm.kind.made_of is not None:
            with suppress(NodeExistsError):
                client.create(path, harm.kind.made_of, makepath=True)
        try:
            match harm.how:
                case "garbage":
                    data, _ = client.get(path)
                    said = self._draw.choice([one for one in NONSENSE if one != data])
                    client.set(path, said)
                    self._undo.append(lambda: self._rewrite(path, said, data))
                case "unreadable" | "unwritable":
                    client.set_acls(path, ACLS[harm.how])
                    self._undo.append(lambda: client.set_acls(path, OPEN_ACL_UNSAFE))
                case "removed":
                    self._uproot(path)
                case "foreign child":
                    client.create(f"{path}/by-hand", b"what is this?")
                    self._undo.append(lambda: self._uproot(f"{path}/by-hand"))
        except NoNodeError:
            pass  # the controller has carried out and removed the request, which is as good
        except NoChildrenForEphemeralsError:
            assert harm.how == CHILD, harm

    def _rewrite(self, path: str, said: bytes, data: bytes) -> None:
        """Unless it is repaired already."""
        if self._client.get(path)[0] == said:
            self._client.set(path, data)

    def _uproot(self, path: str) -> None:
        """Until no node is made or removed between the listing and the deletion."""
        while True:
            try:
                self._client.delete(path, recursive=True)
            except NoNodeError:
                return
            except NotEmptyError:
                continue
            return

    async def clean_up(self) -> None:
        while self._undo:
            with suppress(NoNodeError):
                await asyncio.to_thread(self._undo.pop())

    async def vacate(self) -> None:
        """The holder of the seat loses it."""
        with suppress(NoNodeError):
            await asyncio.to_thread(self._client.delete, f"{self._cluster.chroot}/controller")

    async def states_of(self, topics: Sequence[str]) -> dict[tuple[str, int], dict[str, Any]]:
        """Return the state znodes of these topics, whatever their ACLs."""
        return await asyncio.to_thread(self._states_of, topics)

    def _states_of(self, topics: Sequence[str]) -> dict[tuple[str, int], dict[str, Any]]:
        states = {}
        for topic in topics:
            root = f"{self._cluster.chroot}/brokers/topics/{topic}/partitions"
            for number in self._client.get_children(root):
                states[topic, int(number)] = json.loads(self._client.get(f"{root}/{number}/state")[0])
        return states


@pytest.fixture
async def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Its history is not judged: the rules are about tools that write as Kafka's do."""
    cluster = cluster_for([zookeeper], tmp_path)
    await cluster.open()
    yield cluster
    await cluster.close()
    bugs = [bug for broker in cluster.brokers.values() for bug in bugs_in(broker.folder)]
    assert not bugs, "\n".join(bugs)


@pytest.fixture
async def client(zookeeper: ZooKeeperServer) -> AsyncIterator[KazooClient]:
    client = KazooClient(hosts=zookeeper.address, auth_data=[("digest", "owner:of the test")], timeout=30)
    await asyncio.to_thread(client.start)
    yield client
    await asyncio.to_thread(client.stop)
    client.close()


def rounds_of(draw: Random) -> list[list[Harm]]:
    """Every pair once; those that everything hangs on alone, the others beside each other, none below another."""
    alone = [Harm(kind, how) for kind in KINDS for how in HARMS if kind.is_alone]
    others = [Harm(kind, how) for kind in KINDS for how in HARMS if not kind.is_alone]
    draw.shuffle(alone)
    draw.shuffle(others)
    rounds: list[list[Harm]] = []
    for harm in others:
        fitting = (one for one in rounds if len(one) < TOGETHER and not any(_meet(harm, other) for other in one))
        home = next(fitting, None)
        if home is None:
            rounds.append(home := [])
        home.append(harm)
    rounds += [[harm] for harm in alone]
    draw.shuffle(rounds)
    return rounds


def _meet(one: Harm, other: Harm) -> bool:
    shorter, longer = sorted((one.kind.path, other.kind.path), key=len)
    return longer == shorter or longer.startswith(f"{shorter}/")


async def test_topics_that_a_hostile_tool_did_not_touch_are_served_and_all_is_whole_once_it_has_cleaned_up(
    cluster: Cluster, client: KazooClient
) -> None:
    draw = Random(SEED)
    tool = Tool(cluster, client, draw)
    await cluster.start()
    for number, harms in enumerate(rounds_of(draw)):
        said = f"seed {SEED}, round {number}: {[(one.kind.path, one.how) for one in harms]}"
        for topic in (*STEADY, f"victim-{number}"):
            await cluster.serve(topic)
        await cluster.whole()
        victim = draw.choice([broker for broker in cluster.running if broker is not cluster.controller])
        for harm in harms:
            await tool.inflict(harm, f"victim-{number}", draw.choice(list(cluster.brokers)))
        has_all_topics = not any(harm.how == REMOVED and harm.kind.path in _ABOVE_TOPICS for harm in harms)
        if has_all_topics:
            await _disturb(tool, harms, draw, victim)
            await until(lambda: _are_served(cluster, tool), f"untouched topics are served; {said}")
        await tool.clean_up()
        try:
            for broker in cluster.brokers.values():
                await broker.start()
            await until(lambda: _is_green(cluster), "the cluster is green by itself")
            await tool.vacate()
            await cluster.whole()
        except AssertionError as error:
            error.add_note(said)
            for broker in cluster.brokers.values():
                error.add_note(f"{broker.row}\n{await broker.get('/healthz/cluster')}")
            raise
    assert tool.done == Counter(Harm(kind, how) for kind in KINDS for how in HARMS)


_ABOVE_TOPICS: Final = ("", "/brokers", "/brokers/topics")


async def _disturb(tool: Tool, harms: Sequence[Harm], draw: Random, victim: Broker) -> None:
    """So that the harmed nodes are read, and written, by a new term or because of a death. No controller can be elected
    while the nodes of the seat are harmed, and no broker told while registrations cannot be read: then neither
    happens."""
    occasion = draw.choice(("a new term", "a death", "nothing"))
    if any(harm.kind.is_alone for harm in harms):
        return
    if occasion == "a new term":
        await tool.vacate()
    elif occasion == "a death":
        await victim.kill()


async def _is_green(cluster: Cluster) -> bool:
    verdicts = [await broker.get("/healthz/cluster") for broker in cluster.brokers.values()]
    return all(verdict and verdict["status"] == "green" for verdict in verdicts)


async def _are_served(cluster: Cluster, tool: Tool) -> bool:
    """Each partition of the steady topics."""
    running = {broker.broker_id: broker for broker in cluster.running}
    states = await tool.states_of(STEADY)
    if not states or any(state["leader"] not in running for state in states.values()):
        return False
    told = {broker_id: await broker.told() for broker_id, broker in running.items()}
    return all(
        (known := told[state["leader"]].get(key)) is not None
        and (known.leader, known.leader_epoch) == (state["leader"], state["leader_epoch"])
        for key, state in states.items()
    )
