"""A sample of the crash points on real processes: killed at the n-th transaction or request of an operation, by the
proxy that stops that very message. All of them, in the simulator: `tests/faults/test_crash_points.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest
from kazoo.exceptions import NoNodeError

from brokerstub.lab.zookeeper import ZooKeeperServer
from controller.wire.client import ExchangeError
from tests.integration.cluster import Broker, Cluster
from tests.integration.duties import a_duty_cluster, ask, controlled_by, with_topics, write
from tests.waiting import DEADLINE_S, until

MULTI, MULTI_READ = 14, 22
CONTROLLER: Final = 1

pytestmark = [pytest.mark.java, pytest.mark.long]

Trap = Callable[[Cluster], dict[Broker, list[asyncio.Event]]]


def transaction(kind: str, number: int) -> Trap:
    """The controller's n-th transaction does not arrive, or its answer does not."""

    def arm(cluster: Cluster) -> dict[Broker, list[asyncio.Event]]:
        broker = cluster.brokers[CONTROLLER]
        return {broker: [getattr(proxy, kind)(MULTI, skip=number) for proxy in broker.proxies]}

    return arm


def telling(path: str) -> Trap:
    """A request of the controller's does not arrive."""

    def arm(cluster: Cluster) -> dict[Broker, list[asyncio.Event]]:
        ways = [way for (source, _), way in cluster.peers.ways.items() if source == CONTROLLER]
        return {cluster.brokers[CONTROLLER]: [way.drop_request(path) for way in ways]}

    return arm


def claiming(kind: str, opcode: int) -> Trap:
    """A process without the seat writes a transaction only to claim it, and reads many nodes only to load."""

    def arm(cluster: Cluster) -> dict[Broker, list[asyncio.Event]]:
        others = [broker for broker in cluster.running if broker.broker_id != CONTROLLER]
        return {one: [getattr(proxy, kind)(opcode) for proxy in one.proxies] for one in others}

    return arm


async def delete(cluster: Cluster) -> None:
    await cluster.zookeeper("create", "/admin/delete_topics/orders", b"")


async def is_deleted(cluster: Cluster) -> bool:
    left = [await cluster.zookeeper("exists", f"{p}/orders") for p in ("/brokers/topics", "/admin/delete_topics")]
    return left == [None, None]


async def reassign(cluster: Cluster) -> None:
    wanted = [{"topic": "moving", "partition": 0, "replicas": [3, 1]}]
    await write(cluster, "/admin/reassign_partitions", {"version": 1, "partitions": wanted})


async def is_reassigned(cluster: Cluster) -> bool:
    status, page = await ask(cluster, "GET", "/v1/topics/moving/partitions")
    return status == 200 and [(row["replicas"], row["adding"]) for row in page["items"]] == [([3, 1], [])]


async def drain(cluster: Cluster) -> None:
    """Asked again until the controller of that moment has said yes."""

    async def is_taken() -> bool:
        running = [one for one in cluster.running if one.broker_id != CONTROLLER]
        headers = {"Content-Type": "application/json", "Klamm-Forward": "1"}
        try:
            status, _ = await cluster.http.post(f"{running[0].url}/v1/brokers/2/drain", b"{}", headers, 2_000)
        except (ExchangeError, TimeoutError):
            return False
        return status == 200

    await until(is_taken, "the drain is taken")


async def is_drained(cluster: Cluster) -> bool:
    states = await cluster.states()
    return all(state.leader != 2 for state in states.values())


async def is_undrained(cluster: Cluster) -> bool:
    try:
        return (await ask(cluster, "DELETE", "/v1/brokers/2/drain"))[0] == 200
    except (ExchangeError, TimeoutError):
        return False


async def claim(cluster: Cluster) -> None:
    await cluster.brokers[CONTROLLER].kill()


async def is_claimed(cluster: Cluster) -> bool:
    return cluster.order.claims()[-1].broker_id != CONTROLLER


Act = Callable[[Cluster], Awaitable[None]]
Question = Callable[[Cluster], Awaitable[bool]]
OPERATIONS: Final[dict[str, tuple[Act, Question]]] = {
    "deletion": (delete, is_deleted),
    "reassignment": (reassign, is_reassigned),
    "drain": (drain, is_drained),
    "claim": (claim, is_claimed),
}


@pytest.mark.parametrize(
    ("operation", "trap"),
    [
        *((name, transaction(kind, number)) for name in ("deletion", "reassignment", "drain")
          for kind, number in (("drop_request", 0), ("lose_answer", 0), ("lose_answer", 1))),
        ("deletion", telling("/rpc/v1/stop-replica")),
        ("reassignment", telling("/rpc/v1/leader-and-isr")),
        ("drain", telling("/rpc/v1/leader-and-isr")),
        ("claim", claiming("lose_answer", MULTI)),
        ("claim", claiming("drop_request", MULTI_READ)),
    ],
)  # fmt: skip
async def test_killed_in_the_middle_it_is_succeeded_and_the_work_is_done(
    zookeeper: ZooKeeperServer, tmp_path: Path, operation: str, trap: Trap
) -> None:
    begin, is_done = OPERATIONS[operation]
    async with a_duty_cluster(zookeeper, tmp_path) as cluster:
        await controlled_by(cluster, CONTROLLER)
        await with_topics(cluster, orders=[(1, 2, 3), (2, 3, 1)], moving=[(1, 2)])
        traps = trap(cluster)
        beginning = asyncio.create_task(begin(cluster))
        victim = await the_first_process_in(traps)
        await victim.kill()
        await beginning

        async def is_true() -> bool:
            try:
                return await is_done(cluster)
            except (NoNodeError, ExchangeError, TimeoutError):
                return False

        for broker in cluster.brokers.values():
            if broker.state == "killed":
                await broker.start()
        await until(is_true, f"the {operation} is done")
        if operation == "drain":
            await until(lambda: is_undrained(cluster), "the drain is taken back")
        await cluster.whole()


async def the_first_process_in(traps: dict[Broker, list[asyncio.Event]]) -> Broker:
    """Returns the first broker whose message was stopped."""
    waiting = {asyncio.create_task(one.wait()): broker for broker, happened in traps.items() for one in happened}
    done, rest = await asyncio.wait(waiting, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
    for one in rest:
        one.cancel()
    assert done, "no process came so far"
    return waiting[done.pop()]
