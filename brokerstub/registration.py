"""What a broker process itself writes to ZooKeeper to take part: Kafka's top-level paths, `/cluster/id`, `/feature`,
a generated broker id, and its registration.

Whose a registration is, its owner session says, never its content. It deletes no node that another session owns,
except an earlier session of this same process; a broker that leaves just ends its session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Container
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Final

import msgspec
import structlog

from controller.config import BrokerConfig, ConfigError
from controller.core.formats import BrokerZnode, ClusterIdZnode, FeatureZnode, decode
from controller.core.topics import draw_topic_id
from controller.core.writes import Create
from controller.core.znodes import broker_path
from controller.wire import scheme_of
from controller.zk_model import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    OutcomeUnknownError,
    SessionState,
    WatchEvent,
    ZooKeeper,
)

log = structlog.get_logger()

CLUSTER_ID_PATH: Final = "/cluster/id"
FEATURE_PATH: Final = "/feature"
#: only its version matters
SEQUENCE_PATH: Final = "/brokers/seqid"
#: parents first; Kafka's own (reference, section 1), then ours
TOP_LEVEL_PATHS: Final = (
    "/consumers",
    "/brokers",
    "/brokers/ids",
    "/brokers/topics",
    "/brokers/seqid",
    "/config",
    "/config/changes",
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    "/admin",
    "/admin/delete_topics",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/cluster",
    "/klamm",
)
#: a foreign owner of our id has this many session time-outs to go: a new leader of ZooKeeper gives each session a whole
#: one anew
PATIENCE_IN_SESSION_TIMEOUTS: Final = 2.5


class DuplicateBrokerError(Exception):
    """Another live process is registered under this broker id."""

    def __init__(self, broker_id: int, owner: int, waited_ms: int) -> None:
        super().__init__(
            f"duplicate broker id {broker_id}: session {owner:#x} of another process has it registered, "
            f"and still had after {waited_ms} ms"
        )


async def ensure_paths(zk: ZooKeeper) -> None:
    """All top-level paths exist: one read, and one transaction when some are missing."""
    async with _told_of_changes(zk) as changed:
        while True:
            try:
                nodes = await zk.get_many(TOP_LEVEL_PATHS)
                missing = [path for path, node in zip(TOP_LEVEL_PATHS, nodes, strict=True) if node is None]
                if not missing:
                    return
                # Refused when another process makes some of them at the same time: read again either way.
                await zk.transact([Create(path, b"") for path in missing])
            except (NotSentError, OutcomeUnknownError):
                await _connected(zk, changed)


async def cluster_id(zk: ZooKeeper, entropy: Random) -> str:
    """The id of the cluster, given by the first process. The top-level paths must exist."""
    async with _told_of_changes(zk) as changed:
        while True:
            try:
                if node := await zk.get(CLUSTER_ID_PATH):
                    return decode(node.data, ClusterIdZnode).id
                await zk.create(CLUSTER_ID_PATH, msgspec.json.encode(ClusterIdZnode(draw_topic_id(entropy))))
            except NodeExistsError:
                continue
            except (NotSentError, OutcomeUnknownError):
                await _connected(zk, changed)


async def ensure_feature(zk: ZooKeeper) -> None:
    """`/feature` exists, as Kafka 3.9 makes it: enabled, and nothing finalised. What is there is left alone."""
    async with _told_of_changes(zk) as changed:
        while True:
            try:
                if (await zk.exists(FEATURE_PATH)).stat is None:
                    await zk.create(FEATURE_PATH, msgspec.json.encode(FeatureZnode(status=1)))
                return
            except NodeExistsError:
                return
            except (NotSentError, OutcomeUnknownError):
                await _connected(zk, changed)


async def generated_broker_id(zk: ZooKeeper, reserved_max: int) -> int:
    """A broker id that nobody had. A lost answer costs one id, no more."""
    async with _told_of_changes(zk) as changed:
        while True:
            try:
                return reserved_max + (await zk.set(SEQUENCE_PATH, b"", -1)).version
            except (NotSentError, OutcomeUnknownError):
                await _connected(zk, changed)


def registration_for(config: BrokerConfig, now_ms: int) -> bytes:
    """A broker's registration, version 5. Built anew each time: listeners and rack may have changed."""
    endpoints = tuple(part.strip() for part in (config.advertised_listeners or config.listeners).split(","))
    _, host, port = endpoint_parts(endpoints[0])
    znode = BrokerZnode(
        host=host,
        port=port,
        endpoints=endpoints,
        rack=msgspec.UNSET if config.broker_rack is None else config.broker_rack,
        listener_security_protocol_map={
            name: "SSL" if scheme_of(name) == "https" else "PLAINTEXT" for name, _, _ in map(endpoint_parts, endpoints)
        },
        features={},
        timestamp=str(now_ms),
    )
    return msgspec.json.encode(znode)


async def register(
    zk: ZooKeeper,
    broker_id: int,
    data_now: Callable[[], bytes],
    *,
    earlier_session_ids: Container[int] = (),
    patience_ms: int | None = None,
) -> int:
    """Register under this session; the broker epoch. Waits for a foreign owner to go, then DuplicateBrokerError. The
    wait begins anew with each connection: while ZooKeeper was away it ended no session, and a new leader gives each a
    whole time-out again."""
    if patience_ms is None:
        patience_ms = int(PATIENCE_IN_SESSION_TIMEOUTS * zk.session_timeout_ms)
    path, now = broker_path(broker_id), asyncio.get_running_loop().time
    deadline: float | None = None

    def on_state(state: SessionState) -> None:
        nonlocal deadline
        deadline = None if state is SessionState.SUSPENDED else deadline

    async with _told_of_changes(zk, path, on_state) as changed:
        while True:
            changed.clear()
            try:
                broker_epoch, owner = await _try_to_register(zk, path, data_now, earlier_session_ids)
            except (NotSentError, OutcomeUnknownError):
                await _connected(zk, changed)
                continue
            if broker_epoch is not None:
                log.info("broker.registered", broker_id=broker_id, broker_epoch=broker_epoch)
                return broker_epoch
            if owner is None:
                continue
            if deadline is None:
                log.warning("registration.delayed", broker_id=broker_id, owner=hex(owner), patience_ms=patience_ms)
                deadline = now() + patience_ms / 1_000
            elif now() >= deadline:
                raise DuplicateBrokerError(broker_id, owner, patience_ms)
            # When the time is over it is read once more, so that no answer is judged by an old reading.
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await changed.wait()


async def _try_to_register(
    zk: ZooKeeper, path: str, data_now: Callable[[], bytes], earlier_session_ids: Container[int]
) -> tuple[int | None, int | None]:
    """The broker epoch when registered; else the foreign owner; neither when it is worth trying again at once."""
    # An answer lost earlier shows here: the node exists and is ours.
    await zk.sync(path)
    found = (await zk.exists(path, watch=True)).stat
    if found is None:
        try:
            _, stat = await zk.create(path, data_now(), ephemeral=True)
        except NodeExistsError:
            return None, None
        return stat.czxid, None
    if found.ephemeral_owner == zk.session_id:
        return found.czxid, None
    if found.ephemeral_owner not in earlier_session_ids:
        return None, found.ephemeral_owner
    with suppress(NoNodeError, BadVersionError):
        await zk.delete(path, found.version)
    return None, None


@asynccontextmanager
async def _told_of_changes(
    zk: ZooKeeper, path: str | None = None, and_tell: Callable[[SessionState], None] = lambda state: None
) -> AsyncIterator[asyncio.Event]:
    """An event that is set when the session's state changes or a watch on `path` fires."""
    changed = asyncio.Event()

    def on_watch(event: WatchEvent) -> None:
        if event.path == path:
            changed.set()

    def on_state(state: SessionState) -> None:
        changed.set()
        and_tell(state)

    zk.on_watch(on_watch)
    zk.on_state(on_state)
    try:
        yield changed
    finally:
        zk.remove_handler(on_watch)
        zk.remove_handler(on_state)


async def _connected(zk: ZooKeeper, changed: asyncio.Event) -> None:
    """Return when there is a connection again, or the session is gone (the next call says so)."""
    await asyncio.sleep(0)  # as `connected`: a broken connection is noticed only while others run
    while zk.state is SessionState.SUSPENDED:
        changed.clear()
        await changed.wait()


def endpoint_parts(endpoint: str) -> tuple[str, str, int]:
    """Name, host and port of `NAME://host:port`."""
    name, separator, address = endpoint.partition("://")
    host, colon, port = address.rpartition(":")
    if not (name and separator and host and colon and port.isdecimal()):
        raise ConfigError(f"{endpoint!r} is no listener: write it like HTTP://127.0.0.1:8081")
    return name, host.strip("[]"), int(port)
