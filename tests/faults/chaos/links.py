"""The primitives that fall on the ways between processes: a broker's to ZooKeeper, and those between brokers.

They run through the lab's proxies, one for each ordered pair, so nothing needs root. As in `primitives.py`, each
returns the injury: how it is healed, and whether it hit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from brokerstub.lab.peers import PeerProxy
from brokerstub.lab.proxy import Direction, Proxy
from tests.faults.chaos.target_cluster import Field, Injury
from tests.integration.cluster import Broker

# ---------------------------------------------------------------------- a broker's way to ZooKeeper


async def cut(field: Field, broker: Broker) -> Injury:
    """F5: its connections are reset, new ones too."""
    is_felt = _felt(broker.proxies)
    broker.cut()

    async def heal() -> None:
        for proxy in broker.proxies:
            proxy.heal()
        broker.heal()

    return Injury("cut", str(broker.broker_id), is_felt, heal)


async def silence(field: Field, broker: Broker, direction: Direction) -> Injury:
    """F6: messages in one direction, to ZooKeeper or from it, do not arrive until the fault is healed."""
    is_felt = _felt(broker.proxies)
    for proxy in broker.proxies:
        proxy.hold(direction)

    async def heal() -> None:
        for proxy in broker.proxies:
            proxy.release(direction)

    return Injury(f"silence {direction}", str(broker.broker_id), is_felt, heal)


async def lose_answer(field: Field, broker: Broker, opcode: int | None = None, *, skip: int = 0) -> Injury:
    """F7: ZooKeeper executes the broker's next request, and the answer is lost with the connection."""
    happened = [proxy.lose_answer(opcode, skip=skip) for proxy in broker.proxies]
    return _trap("lose answer", broker, happened)


async def lose_request(field: Field, broker: Broker, opcode: int | None = None, *, skip: int = 0) -> Injury:
    """F6: the broker's next request never reaches ZooKeeper."""
    happened = [proxy.drop_request(opcode, skip=skip) for proxy in broker.proxies]
    return _trap("lose request", broker, happened)


async def slow_zookeeper(field: Field, broker: Broker, up_ms: int, down_ms: int) -> Injury:
    """F10, F11: requests to ZooKeeper, its answers and its watch events are delayed."""
    is_felt = _felt(broker.proxies)
    _delay(broker, up_ms, down_ms)

    async def heal() -> None:
        _delay(broker, 0, 0)

    kind = "late watches" if up_ms == 0 else "slow ZooKeeper"
    return Injury(kind, str(broker.broker_id), is_felt, heal)


def _delay(broker: Broker, up_ms: int, down_ms: int) -> None:
    for proxy in broker.proxies:
        proxy.delay_ms = {"up": up_ms, "down": down_ms}


def _felt(proxies: Sequence[Proxy]) -> Callable[[], bool]:
    """Whether a client was connected when the fault began, or has tried to connect since."""
    connections, accepted = (sum(one.connections for one in proxies), sum(one.accepted for one in proxies))
    return lambda: connections > 0 or sum(one.accepted for one in proxies) > accepted


def _trap(kind: str, broker: Broker, happened: list[asyncio.Event]) -> Injury:
    async def heal() -> None:
        for proxy in broker.proxies:
            proxy.disarm(*happened)

    return Injury(kind, str(broker.broker_id), lambda: any(one.is_set() for one in happened), heal)


# ---------------------------------------------------------------------- between brokers


async def cut_link(field: Field, broker: Broker, peer: Broker) -> Injury:
    """F12: the two reach ZooKeeper, and not each other."""
    ways = _ways(field, broker, peer)
    is_felt = _felt(ways)
    field.cluster.peers.cut(broker.broker_id, peer.broker_id)
    return _between("cut link", broker, peer, is_felt, _healing(field, broker, peer))


async def mute(field: Field, broker: Broker, peer: Broker) -> Injury:
    """F6, F14: requests and answers from the broker to its peer are accepted and never arrive."""
    ways = _ways(field, broker, peer)
    is_felt = _felt(ways)
    field.cluster.peers.mute(broker.broker_id, peer.broker_id)
    return _between("mute", broker, peer, is_felt, _healing(field, broker, peer))


async def slow_link(field: Field, broker: Broker, peer: Broker, delay_ms: int) -> Injury:
    """F13: messages between the two brokers are delayed."""
    ways = _ways(field, broker, peer)
    before = sum(way.passed_bytes["up"] for way in ways)
    for way in ways:
        way.delay_ms = {"up": delay_ms, "down": delay_ms}

    async def heal() -> None:
        for way in ways:
            way.delay_ms = {"up": 0, "down": 0}

    return _between("slow link", broker, peer, lambda: sum(way.passed_bytes["up"] for way in ways) > before, heal)


async def lose_http_answers(field: Field, broker: Broker, peer: Broker, path: str = "/", count: int = 1) -> Injury:
    """F7 between brokers: requests are obeyed, and their answers lost."""
    way = field.cluster.peers.ways[broker.broker_id, peer.broker_id]
    return _armed("lose HTTP answer", broker, peer, [way.lose_answer(path) for _ in range(count)], way)


async def double(field: Field, broker: Broker, peer: Broker, path: str = "/", count: int = 1) -> Injury:
    """F13: requests arrive twice, the second time at once or much later, out of order."""
    way = field.cluster.peers.ways[broker.broker_id, peer.broker_id]
    happened = [way.double(path, after_s=number * 0.7) for number in range(count)]
    return _armed("double", broker, peer, happened, way)


async def garble(field: Field, broker: Broker, peer: Broker, kinds: Iterable[str], path: str = "/") -> Injury:
    """F15: an error, nonsense, a torn answer, no HTTP at all, or far too much."""
    way = field.cluster.peers.ways[broker.broker_id, peer.broker_id]
    return _armed("garble", broker, peer, [way.garble(kind, path) for kind in kinds], way)


def _ways(field: Field, broker: Broker, peer: Broker) -> list[PeerProxy]:
    ids = broker.broker_id, peer.broker_id
    return [field.cluster.peers.ways[ids], field.cluster.peers.ways[ids[::-1]]]


def _between(
    kind: str, broker: Broker, peer: Broker, has_hit: Callable[[], bool], heal: Callable[[], Awaitable[None]]
) -> Injury:
    return Injury(kind, f"{broker.broker_id} -> {peer.broker_id}", has_hit, heal)


def _armed(kind: str, broker: Broker, peer: Broker, happened: list[asyncio.Event], way: PeerProxy) -> Injury:
    async def heal() -> None:
        way.disarm(*happened)

    return _between(kind, broker, peer, lambda: any(one.is_set() for one in happened), heal)


def _healing(field: Field, broker: Broker, peer: Broker) -> Callable[[], Awaitable[None]]:
    async def heal() -> None:
        field.cluster.peers.heal(broker.broker_id, peer.broker_id)

    return heal
