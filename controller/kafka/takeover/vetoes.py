"""Why this controller must not have the seat of a cluster, whoever offers it: what can be seen in a few reads.

Asked before a takeover, before a vacant seat is claimed, and before one is claimed from a broker by preference. Reasons
are sentences for the operator; one is enough to refuse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

import msgspec

from controller.core import formats
from controller.core.model import Broker
from controller.core.project.znodes import (
    BROKER_IDS,
    CONTROLLER,
    broker_path,
    numbers_in,
)
from controller.kafka.cluster.settings import DedicatedConfig
from controller.kafka.protocol.nodes import PROTOCOLS, listeners_of
from controller.wire import bodies
from controller.zookeeper.port import Node, ZooKeeper

_T = TypeVar("_T")

#: registrations of protocol level 2.7 and later
REGISTRATION_SINCE_2_7: Final = 5
ACLS: Final = "/kafka-acl"
_NAMES: Final = {number: name for name, number in PROTOCOLS.items()}


async def vetoes_against(zk: ZooKeeper, config: DedicatedConfig) -> list[str]:
    """None, if it may be claimed."""
    found = await _registrations(zk)
    brokers = [one.broker for one in found]
    spoken_to = [one for one in brokers if not bodies.speaks_http(one.endpoints)]
    own_id = config.controller_id
    return [
        *await _in_zookeeper(zk, is_without_authorizer=config.is_without_authorizer),
        *_of_levels(found, config.level.name),
        *_of_listeners(spoken_to, config),
        *(
            [f"broker {own_id} is registered: give this controller another id"]
            if any(one.broker_id == own_id for one in brokers)
            else []
        ),
        *(["no broker that this controller can speak to is registered"] if brokers and not spoken_to else []),
    ]


async def _in_zookeeper(zk: ZooKeeper, *, is_without_authorizer: bool) -> list[str]:
    reasons = []
    try:
        marks = [await _content(zk, path, _KraftMarks) for path in ("/migration", CONTROLLER)]
        if any(one is not None and max(one.kraftControllerEpoch, one.kraft_controller_id) >= 0 for one in marks):
            reasons.append("a migration to KRaft is under way: its controller writes here, and must go on to do so")
        feature = await _content(zk, "/feature", formats.FeatureZnode)
        if feature is not None and feature.features:
            reasons.append("features are finalised in /feature, and this controller does not hold brokers to them")
    except formats.FormatError as error:
        reasons.append(f"a znode is malformed: {error}")
    in_use = [path for path in (ACLS, f"{ACLS}-extended") if await _has_acls(zk, path)]
    reasons += [f"ACLs are in use ({path}), and this controller holds nobody to them" for path in in_use]
    if not in_use and not is_without_authorizer and (await zk.exists(ACLS)).stat is not None:
        # without a rule it may still refuse everybody but super.users
        reasons.append(
            f"an authorizer has made {ACLS}, and this controller asks none: say --no-authorizer if brokers have none"
        )
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
    for _ in range(2 if root == ACLS else 3):  # the extended tree has one level more: the kind of pattern
        found = [(path, await zk.children(path)) for path in pending]
        pending = [f"{path}/{name}" for path, nodes in found if nodes is not None for name in nodes.names]
    return bool(pending)


class _Registration(NamedTuple):
    """`version`: of its format, the only trace of a protocol level in ZooKeeper."""

    broker: Broker
    version: int


async def _registrations(zk: ZooKeeper) -> list[_Registration]:
    """A malformed registration is of a broker that is not alive, as for everybody else."""
    found = await zk.children(BROKER_IDS)
    ids = numbers_in(() if found is None else found.names)
    nodes = await zk.get_many([broker_path(broker_id) for broker_id in ids])
    registrations = []
    for broker_id, node in zip(ids, nodes, strict=True):
        if isinstance(node, Node):
            with suppress(formats.FormatError):
                broker = formats.decode_broker(node.data, broker_id, node.stat.czxid)
                registrations.append(_Registration(broker, formats.decode(node.data, formats.BrokerZnode).version))
    return registrations


def _of_levels(found: Iterable[_Registration], level: str) -> list[str]:
    """Brokers below protocol level 2.7 register in version 4."""
    major, minor = (int(part) for part in level.partition("-")[0].split("."))
    old = [broker.broker_id for broker, version in found if version < REGISTRATION_SINCE_2_7]
    if old and (major, minor) >= (2, 7):
        return [
            f"brokers {old} register as those below inter.broker.protocol.version 2.7 do: start this controller with "
            "--protocol and the version that they have"
        ]
    return []


def _of_listeners(brokers: Iterable[Broker], config: DedicatedConfig) -> list[str]:
    """Whom we cannot reach, and who could not reach us: leaders ask us by the name of the listener that brokers use
    among themselves, which is nowhere in ZooKeeper. Unless it was said, it may be any."""
    deaf: dict[str, list[int]] = defaultdict(list)
    unanswered: dict[str, list[int]] = defaultdict(list)
    possible: dict[tuple[str, str], list[int]] = defaultdict(list)
    for broker in brokers:
        listener = config.access.listener_of(broker)
        if listener is None:
            deaf[config.access.trouble_with(broker)].append(broker.broker_id)
        elif listener.protocol not in config.kafka:
            unanswered[_NAMES[listener.protocol]].append(broker.broker_id)
        elif config.access.listener is None:
            for other in listeners_of(broker):
                if other.protocol not in config.kafka:
                    possible[other.name, _NAMES[other.protocol]].append(broker.broker_id)
    return [
        *(f"brokers {ids} have {trouble}" for trouble, ids in deaf.items()),
        *(
            f"brokers {ids} speak {name} to their controller, and this one does not listen so: add "
            f"{name.lower()}://HOST:PORT to --listen"
            for name, ids in unanswered.items()
        ),
        *(
            f"brokers {ids} have a listener {listener} of {name}, too, by which this one does not listen: say with "
            f"--listener-name which one they use among themselves, or add {name.lower()}://HOST:PORT to --listen"
            for (listener, name), ids in possible.items()
        ),
    ]
