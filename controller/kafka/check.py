"""Before the seat is taken from Kafka's controller: what we would meet, why we would not, and what we would decide.

It reads, and writes nothing. Reasons are sentences for the operator; one is enough to refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, TypeVar

import msgspec

from controller.claim import Seat
from controller.core import formats
from controller.core.changes import StateDecided
from controller.core.cluster import Cluster
from controller.core.decide import decide
from controller.core.model import NO_LEADER, Broker
from controller.core.znodes import BROKER_IDS, CONTROLLER, CONTROLLER_EPOCH, broker_path, numbers_in, writes_for
from controller.dialects.kafka_nodes import PROTOCOLS
from controller.kafka.settings import DedicatedConfig
from controller.reader import Reader
from controller.term import started_for
from controller.tools import Tools
from controller.zk_model import ZooKeeper

_T = TypeVar("_T")

WRITES_SHOWN_MAX: Final = 100
#: registrations of protocol level 2.7 and later
REGISTRATION_SINCE_2_7: Final = 5


class Check(msgspec.Struct, frozen=True):
    """The result: it may be taken over if there are no reasons. `decisions` are the first ones about partitions,
    `writes` the znodes of all."""

    controller: int | None
    controller_epoch: int
    brokers: Sequence[int]
    topics: int
    partitions: int
    reasons: Sequence[str]
    decisions: Sequence[str]
    writes: Sequence[str]
    writes_count: int


async def check(zk: ZooKeeper, config: DedicatedConfig, seat: Seat | None, tools: Tools) -> Check:
    """Read everything once, as a term would."""
    own_id = config.controller_id
    reader = Reader(zk, tools.now_ms, tools.is_ours, watch=False)
    loaded = await reader.load_surely()
    node = await zk.get(CONTROLLER_EPOCH)
    epoch = 0 if node is None else formats.decode_epoch(node.data)
    cluster = Cluster(controller_id=own_id, controller_epoch=epoch + 1, unclean_default=tools.unclean_default)
    cluster.load(loaded.topics, loaded.states, loaded.duties())
    reasons = [
        *await reasons_against(zk, config.level.name),
        *_of_listeners(loaded.brokers.values(), config),
        *_of_strangers(cluster, reader.strangers),
        *([f"broker {own_id} is registered: give this controller another id"] if own_id in loaded.brokers else []),
        *([] if loaded.brokers else ["no broker that this controller can speak to is registered"]),
    ]
    changes = [
        change
        for piece in decide(cluster, started_for(loaded, epoch + 1), tools.now_ms(), 0)
        for change in piece.changes
    ]
    paths = [write.path for change in changes for write in writes_for(cluster, change)]
    return Check(
        controller=None if seat is None else seat.broker_id,
        controller_epoch=epoch,
        brokers=sorted(loaded.brokers),
        topics=len(cluster.topics),
        partitions=sum(len(topic.partitions) for topic in cluster.topics.values()),
        reasons=reasons,
        decisions=list(
            islice((_said(cluster, one) for one in changes if isinstance(one, StateDecided)), WRITES_SHOWN_MAX)
        ),
        writes=list(islice(paths, WRITES_SHOWN_MAX)),
        writes_count=len(paths),
    )


def _said(cluster: Cluster, decided: StateDecided) -> str:
    known = cluster.partition(decided.topic, decided.partition)
    before, state = None if known is None else known.state, decided.state
    was, will = ("none" if one is None or one.leader == NO_LEADER else str(one.leader) for one in (before, state))
    isr = ", ".join(map(str, state.isr))
    return f"{decided.topic}-{decided.partition}: leader {was} -> {will}, epoch {state.leader_epoch}, ISR {isr}"


async def reasons_against(zk: ZooKeeper, level: str) -> list[str]:
    """What can be seen in a few reads: also asked before a vacant seat is claimed."""
    return [*await _in_zookeeper(zk), *await _of_registrations(zk, level)]


async def _in_zookeeper(zk: ZooKeeper) -> list[str]:
    reasons = []
    try:
        marks = [await _content(zk, path, _KraftMarks) for path in ("/migration", CONTROLLER)]
        if any(one is not None and max(one.kraftControllerEpoch, one.kraft_controller_id) >= 0 for one in marks):
            reasons.append("a migration to KRaft is under way: its controller writes here, and must go on to do so")
        feature = await _content(zk, "/feature", formats.FeatureZnode)
        if feature is not None and feature.features:
            reasons.append("features are finalised in /feature, and this controller does not hold brokers to them")
    except formats.FormatError as error:
        reasons.append(f"what is there makes no sense: {error}")
    for path in ("/kafka-acl", "/kafka-acl-extended"):
        if await _has_acls(zk, path):
            reasons.append(f"ACLs are in use ({path}), and this controller holds nobody to them")
    tokens = await zk.children("/delegation_token/tokens")
    if tokens is not None and tokens.names:
        reasons.append("delegation tokens are in use, and this controller does not expire them")
    return reasons


class _KraftMarks(msgspec.Struct, frozen=True):
    """What `/controller` and `/migration` say once KRaft comes."""

    kraftControllerEpoch: int = -1  # noqa: N815 - Kafka's name
    kraft_controller_id: int = -1


async def _content(zk: ZooKeeper, path: str, kind: type[_T]) -> _T | None:
    """None: no such node, or nothing in it."""
    node = await zk.get(path)
    try:
        return None if node is None or not node.data else formats.decode(node.data, kind)
    except formats.FormatError as error:
        raise formats.FormatError(f"{path}: {error}") from None


async def _has_acls(zk: ZooKeeper, root: str) -> bool:
    """An authorizer makes the folders of types at its start; what counts is a resource in one of them."""
    pending = [root]
    for _ in range(2 if root == "/kafka-acl" else 3):  # the extended tree has one level more: the kind of pattern
        found = [(path, await zk.children(path)) for path in pending]
        pending = [f"{path}/{name}" for path, nodes in found if nodes is not None for name in nodes.names]
    return bool(pending)


async def _of_registrations(zk: ZooKeeper, level: str) -> list[str]:
    """Brokers below protocol level 2.7 register in version 4: the only trace of a level in ZooKeeper."""
    found = await zk.children(BROKER_IDS)
    ids = numbers_in(iter(() if found is None else found.names))
    nodes = await zk.get_many([broker_path(broker_id) for broker_id in ids])
    major, minor = (int(part) for part in level.partition("-")[0].split("."))
    old = [
        broker_id
        for broker_id, node in zip(ids, nodes, strict=True)
        if node is not None and formats.decode(node.data, formats.BrokerZnode).version < REGISTRATION_SINCE_2_7
    ]
    if old and (major, minor) >= (2, 7):
        return [
            f"brokers {old} register as those below inter.broker.protocol.version 2.7 do: start this controller with "
            "--protocol and the version that they have"
        ]
    return []


def _of_listeners(brokers: Iterable[Broker], config: DedicatedConfig) -> list[str]:
    """Whom we cannot reach, and who could not reach us: leaders ask by the protocol of the listener we ask them at."""
    deaf: dict[str, list[int]] = {}
    unanswered: dict[str, list[int]] = {}
    for broker in brokers:
        listener = config.access.listener_of(broker)
        if listener is None:
            deaf.setdefault(config.access.trouble_with(broker), []).append(broker.broker_id)
        elif listener.protocol not in config.kafka:
            name = next(name for name, number in PROTOCOLS.items() if number == listener.protocol)
            unanswered.setdefault(name, []).append(broker.broker_id)
    return [
        *(f"brokers {ids} have {trouble}" for trouble, ids in deaf.items()),
        *(
            f"brokers {ids} speak {name} to their controller, and this one does not listen so: add "
            f"{name.lower()}://HOST:PORT to --listen"
            for name, ids in unanswered.items()
        ),
    ]


def _of_strangers(cluster: Cluster, strangers: dict[int, Broker]) -> list[str]:
    holding = sorted(broker_id for broker_id in strangers if cluster.hosted.get(broker_id))
    return (
        [f"brokers {holding} hold replicas and are stubs: they cannot be told in Kafka's protocol"] if holding else []
    )
