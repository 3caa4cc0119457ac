"""The writes of a broker process to ZooKeeper to take part: `/cluster/id`, `/feature`, a generated broker id, and its
registration. Kafka's top-level paths are there before (`controller/zookeeper/layout.py`).

The owner session of a registration says which process it belongs to, its content never does. It deletes no node that
another session owns, except an earlier session of this same process; a broker that leaves just ends its session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Container, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Final

import msgspec
import structlog

from brokerstub.listeners import Listener, advertised
from controller.base.config import BrokerConfig
from controller.core.decide.topic_ids import draw_topic_id
from controller.core.formats import BrokerZnode, ClusterIdZnode, FeatureZnode, FormatError, decode
from controller.core.project.znodes import CLUSTER_ID, broker_path
from controller.wire.bodies import scheme_of
from controller.zookeeper.layout import SEQUENCE_PATH, ensure_paths
from controller.zookeeper.port import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    OutcomeUnknownError,
    RefusedError,
    SessionState,
    WatchEvent,
    ZooKeeper,
)

log = structlog.get_logger()

FEATURE_PATH: Final = "/feature"
#: a foreign owner of our id has this many session time-outs to go: a new leader of ZooKeeper gives each session a whole
#: one anew
PATIENCE_IN_SESSION_TIMEOUTS: Final = 2.5
#: as long as a session may last where an operator allows long ones; ZooKeeper's default allows 40 s
PATIENCE_WITH_OURSELVES_MS: Final = 150_000
#: a refused registration is tried again after so long
REFUSED_MIN_S, REFUSED_MAX_S = 0.25, 5.0
MEND_REGISTRATION: Final = "allow brokers to create and delete below /brokers/ids; it is tried again until it works"


class DuplicateBrokerError(Exception):
    """Another live process is registered under this broker id."""

    def __init__(self, broker_id: int, owner: int, waited_ms: int) -> None:
        super().__init__(
            f"duplicate broker id {broker_id}: session {owner:#x} of another process has it registered, "
            f"and still had after {waited_ms} ms"
        )


async def cluster_id(zk: ZooKeeper, entropy: Random) -> str:
    """Returns the id of the cluster, given by the first process. The top-level paths must exist."""
    async with _told_of_changes(zk) as changed:
        while True:
            try:
                if node := await zk.get(CLUSTER_ID):
                    return decode(node.data, ClusterIdZnode).id
                await zk.create(CLUSTER_ID, msgspec.json.encode(ClusterIdZnode(draw_topic_id(entropy))))
            except NodeExistsError:
                continue
            except (NotSentError, OutcomeUnknownError):
                await _connected(zk, changed)


async def ensure_feature(zk: ZooKeeper) -> None:
    """Makes `/feature` as Kafka 3.9 does: enabled, and nothing finalised. An existing one is left alone."""
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
    """Returns a broker id that no broker had. A lost answer costs one id, no more."""
    async with _told_of_changes(zk) as changed:
        while True:
            try:
                return reserved_max + (await zk.set(SEQUENCE_PATH, b"", -1)).version
            except (NotSentError, OutcomeUnknownError):
                await _connected(zk, changed)


def registration_for(config: BrokerConfig, wall_ms: int) -> bytes:
    """Returns a broker's registration, version 5. Built anew each time: listeners and rack may have changed."""
    listeners = advertised(config)
    by_http = [one for one in listeners if not one.speaks_kafka]
    shown = [one for one in listeners if one.speaks_kafka] or _named_as_kafkas(by_http)
    znode = BrokerZnode(
        host=shown[0].host,
        port=shown[0].port,
        endpoints=tuple(map(str, shown)),
        rack=msgspec.UNSET if config.broker_rack is None else config.broker_rack,
        listener_security_protocol_map={one.name: one.name for one in shown},
        features={},
        timestamp=str(wall_ms),
        klamm_endpoints=tuple(map(str, by_http)),
    )
    return msgspec.json.encode(znode)


def _named_as_kafkas(by_http: Sequence[Listener]) -> list[Listener]:
    """Tools of Kafka 0.9 read a listener's name as its security protocol: the first address of each is shown."""
    named = [one._replace(name="SSL" if scheme_of(one.name) == "https" else "PLAINTEXT") for one in by_http]
    return list({one.name: one for one in reversed(named)}.values())[::-1]


async def register(
    zk: ZooKeeper,
    broker_id: int,
    data_now: Callable[[], bytes],
    *,
    earlier_session_ids: Container[int] = (),
    patience_ms: int | None = None,
) -> int:
    """Registers under this session, and returns the broker epoch. Parents that are gone are made again, and a refused
    write is tried again. Waits for a foreign owner to go, then raises DuplicateBrokerError. The wait is longer for an
    owner at our own address, which is an earlier life of ours, with an unknown session time-out. That wait begins anew
    with each connection: while ZooKeeper was away it ended no session, and a new leader gives each a whole time-out
    again."""
    usual_ms = int(PATIENCE_IN_SESSION_TIMEOUTS * zk.session_timeout_ms) if patience_ms is None else patience_ms
    path, now = broker_path(broker_id), asyncio.get_running_loop().time
    deadline: float | None = None

    def on_state(state: SessionState) -> None:
        nonlocal deadline
        deadline = None if state is SessionState.SUSPENDED else deadline

    refusal, pause_s, waits_ms = "", REFUSED_MIN_S, usual_ms
    async with _told_of_changes(zk, path, on_state) as changed:
        while True:
            changed.clear()
            try:
                broker_epoch, owner = await _try_to_register(zk, path, data_now, earlier_session_ids)
                is_over = owner is not None and deadline is not None and now() >= deadline
                is_ours = is_over and waits_ms == usual_ms and await _is_at_our_address(zk, path, data_now())
            except (NotSentError, OutcomeUnknownError):
                await _connected(zk, changed)
                continue
            except RefusedError as error:
                if isinstance(error, NoNodeError) and await ensure_paths(zk):
                    continue
                if refusal != str(error):
                    refusal, pause_s = str(error), REFUSED_MIN_S
                    log.error("registration.refused", broker_id=broker_id, reason=refusal, mend=MEND_REGISTRATION)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await changed.wait()
                pause_s = min(2 * pause_s, REFUSED_MAX_S)
                continue
            if broker_epoch is not None:
                log.info("broker.registered", broker_id=broker_id, broker_epoch=broker_epoch)
                return broker_epoch
            if owner is None:
                continue
            if deadline is None:
                log.warning("registration.delayed", broker_id=broker_id, owner=hex(owner), patience_ms=waits_ms)
                deadline = now() + waits_ms / 1_000
            elif is_ours:
                waits_ms = max(usual_ms, PATIENCE_WITH_OURSELVES_MS)
                log.warning("registration.delayed", broker_id=broker_id, owner=hex(owner), patience_ms=waits_ms)
                deadline += (waits_ms - usual_ms) / 1_000
            elif is_over:
                raise DuplicateBrokerError(broker_id, owner, waits_ms)
            # When the time is over it is read once more, so that no answer is judged by an old reading.
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await changed.wait()


async def _is_at_our_address(zk: ZooKeeper, path: str, own: bytes) -> bool:
    """Returns whether the registration names our own addresses: no other live process can listen there."""
    node = await zk.get(path)
    try:
        endpoints = () if node is None else decode(node.data, BrokerZnode).endpoints
        return endpoints != () and endpoints == decode(own, BrokerZnode).endpoints
    except FormatError:
        return False


async def _try_to_register(
    zk: ZooKeeper, path: str, data_now: Callable[[], bytes], earlier_session_ids: Container[int]
) -> tuple[int | None, int | None]:
    """Returns the broker epoch when registered; else the foreign owner; neither when it is worth trying again at
    once."""
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
