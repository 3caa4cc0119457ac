"""Taking the seat from Kafka's brokers, and handing it back: vetoes, the checks before a takeover, and the API.

A veto is a reason why this controller must not have the seat of a cluster. Vetoes are looked up in a few reads before a
takeover, before a vacant seat is claimed, and before one is claimed from a broker by preference.

Before a takeover the cluster is loaded and decided on as a dry run, and a connection to each broker shows whether
brokers speak with this controller in the versions it needs. A silent broker may only stand still: it is passed over as
long as any other answers. All of this reads, and writes nothing. Reasons are sentences for the operator; one is enough
to refuse. `klamm takeover` and `klamm handback` ask the API here, over HTTP.
"""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple, TypeVar

import msgspec
from aiohttp import web

from controller.api.bodies import Nothing, answer, decode_body, read_body
from controller.api.ports import NotControllerError
from controller.api.problems import ProblemError, unavailable
from controller.base.config import Limits
from controller.core import formats
from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import Change, StateDecided
from controller.core.changes.duties import TopicIdSought
from controller.core.codes import Code
from controller.core.decide.dispatch import decide
from controller.core.model import NO_LEADER, Broker
from controller.core.project.znodes import BROKER_IDS, CONTROLLER, broker_path, numbers_in, topic_path
from controller.kafka.cluster.acl_keeper import ACLS
from controller.kafka.cluster.settings import DedicatedConfig
from controller.kafka.protocol.access import PROTOCOLS, Access, Listener, listeners_of
from controller.kafka.protocol.codec import WireError
from controller.kafka.protocol.levels import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Level
from controller.kafka.server.relay import versions_at
from controller.loop.reader import Reader
from controller.seat.claim import Seat, SeatTroubleError, read_epoch
from controller.term.controller import Handle
from controller.term.parts import TermParts
from controller.term.term import holding, started_for
from controller.wire import bodies
from controller.zookeeper.port import Node, ZooKeeper

NAMES: Final = {LEADER_AND_ISR: "LeaderAndIsr", STOP_REPLICA: "StopReplica", UPDATE_METADATA: "UpdateMetadata"}


async def vetoes_from_brokers(brokers: Iterable[Broker], access: Access, level: Level, limits: Limits) -> list[str]:
    """Why this controller cannot tell them anything, or not in the versions of this protocol level."""
    addresses = {one.broker_id: address for one in brokers if (address := access.listener_of(one)) is not None}
    said = dict(zip(addresses, await _all_said(addresses.values(), access, level, limits), strict=True))
    silent = [broker_id for broker_id, trouble in said.items() if trouble is None]
    by_trouble: dict[str, list[int]] = defaultdict(list)
    for broker_id, trouble in said.items():
        if trouble:
            by_trouble[trouble].append(broker_id)
    reasons = [f"brokers {ids} {trouble}" for trouble, ids in by_trouble.items()]
    if silent and len(silent) == len(said):
        reasons.append(f"brokers {silent} do not answer where they listen for this controller")
    return reasons


async def _all_said(addresses: Iterable[Listener], access: Access, level: Level, limits: Limits) -> list[str | None]:
    """Returns the answers in the same order; None where no answer came. Once one of them has answered, the others get
    little more time: an operator who takes the seat from a stopped controller is in a hurry."""
    first_s, rest_s = limits.kafka_probe_ms / 1000, limits.kafka_probe_rest_ms / 1000
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(_trouble_at(address, access, level, limits)) for address in addresses]
        if asked:
            await asyncio.wait(asked, timeout=first_s, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(asked, timeout=rest_s)
        for task in asked:
            task.cancel()
    return [None if task.cancelled() else task.result() for task in asked]


async def _trouble_at(address: Listener, access: Access, level: Level, limits: Limits) -> str:
    """Empty: all is well."""
    try:
        served = await versions_at(await access.open(address), limits.kafka_answer_max_bytes)
    except (OSError, EOFError, WireError, struct.error) as error:
        return f"cannot be spoken to by {address.name} ({str(error) or type(error).__name__})"
    low = [
        f"{name} from version {first} to {last} and not {level.version_of(key)}"
        for key, name in NAMES.items()
        for first, last in [served.get(key, (0, -1))]
        if not first <= level.version_of(key) <= last
    ]
    if not low:
        return ""
    return (
        f"take {', '.join(low)}, which protocol level {level.name} asks for: start this controller with --protocol and "
        "what they have as inter.broker.protocol.version"
    )


_T = TypeVar("_T")

#: registrations of protocol level 2.7 and later
REGISTRATION_SINCE_2_7: Final = 5
_NAMES: Final = {number: name for name, number in PROTOCOLS.items()}


async def vetoes_against(zk: ZooKeeper, config: DedicatedConfig) -> list[str]:
    """None, if it may be claimed."""
    found = await _registrations(zk)
    brokers = [one.broker for one in found]
    spoken_to = [one for one in brokers if not bodies.speaks_http(one.endpoints)]
    own_id = config.controller_id
    return [
        *await _in_zookeeper(zk),
        *([] if config.authorizer else await _of_authorizers(zk, is_without_authorizer=config.is_without_authorizer)),
        *_of_levels(found, config.level.name),
        *_of_listeners(spoken_to, config),
        *(
            [f"broker {own_id} is registered: give this controller another id"]
            if any(one.broker_id == own_id for one in brokers)
            else []
        ),
        *(["no broker that this controller can speak to is registered"] if brokers and not spoken_to else []),
    ]


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
        reasons.append(f"a znode is malformed: {error}")
    tokens = await zk.children("/delegation_token/tokens")
    if tokens is not None and tokens.names:
        reasons.append("delegation tokens are in use, and this controller does not expire them")
    return reasons


async def _of_authorizers(zk: ZooKeeper, *, is_without_authorizer: bool) -> list[str]:
    """Where brokers seem to have one, and this controller was told of none."""
    mend = "start it with --config and the authorizer.class.name, super.users and so on that brokers have"
    in_use = [path for path in (ACLS, f"{ACLS}-extended") if await _has_acls(zk, path)]
    reasons = [f"ACLs are in use ({path}), and this controller holds nobody to them: {mend}" for path in in_use]
    if not in_use and not is_without_authorizer and (await zk.exists(ACLS)).stat is not None:
        # without a rule it may still refuse everybody but super.users
        reasons.append(
            f"an authorizer has made {ACLS}, and this controller asks none: {mend}, or say --no-authorizer if brokers "
            "have none"
        )
    return reasons


class _KraftMarks(msgspec.Struct, frozen=True):
    """The content of `/controller` and `/migration` once KRaft comes."""

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
    """Whether there is an ACL of a resource. An authorizer makes the folders of types at its start, which do not
    count."""
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
    """Yields the brokers that we cannot reach, and those that could not reach us: leaders ask us by the name of the
    listener that brokers use among themselves, which is nowhere in ZooKeeper. Without a setting it may be any."""
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


WRITES_SHOWN_MAX: Final = 100


class Preflight(msgspec.Struct, frozen=True):
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


async def preflight(zk: ZooKeeper, config: DedicatedConfig, seat: Seat | None, parts: TermParts) -> Preflight:
    """Read everything once, as a term would."""
    own_id = config.controller_id
    reader = Reader(zk, parts.is_ours, watch=False)
    loaded = await reader.load_surely()
    epoch, _ = await read_epoch(zk)
    cluster = Cluster(controller_id=own_id, controller_epoch=epoch + 1, unclean_default=parts.unclean_default)
    for _ in cluster.loading(loaded.topics, loaded.states, loaded.duties()):
        await asyncio.sleep(0)
    reasons = [
        *await vetoes_against(zk, config),
        *await vetoes_from_brokers(loaded.brokers.values(), config.access, config.level, parts.limits),
        *_of_foreign_brokers(cluster, reader.foreign_brokers),
        *([] if loaded.brokers or reader.foreign_brokers else ["no broker is registered"]),
    ]
    changes: list[Change] = []
    for piece in decide(cluster, started_for(loaded, epoch + 1), round(parts.clock() * 1_000), 0):
        changes += piece.changes
        await asyncio.sleep(0)
    paths = [write.path for change in changes for write in change.writes(cluster)]
    # a topic without an id gets one as soon as brokers were asked for it
    paths += [topic_path(change.topic) for change in changes if isinstance(change, TopicIdSought)]
    return Preflight(
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


def _of_foreign_brokers(cluster: Cluster, foreign_brokers: dict[int, Broker]) -> list[str]:
    theirs = holding(cluster, foreign_brokers)
    return [f"brokers {theirs} hold replicas and are stubs: they cannot be told in Kafka's protocol"] if theirs else []


BODY_MAX_BYTES = 10_000


class TakeoverBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dry_run: bool = False


class TakenBody(msgspec.Struct, frozen=True):
    """`controller_epoch`: ours, when it was taken."""

    taken: bool
    controller_epoch: int | None
    check: Preflight | None


class TakeoverApi:
    """Of the controller in this process; nothing here is forwarded."""

    def __init__(self, handle: Handle, check: Callable[[], Awaitable[Preflight]]) -> None:
        self._handle = handle
        self._check = check

    def routes(self) -> Sequence[web.RouteDef]:
        return [web.post("/v1/takeover", self.take_over), web.post("/v1/handback", self.hand_back)]

    async def take_over(self, request: web.Request) -> web.Response:
        body = decode_body(await read_body(request, BODY_MAX_BYTES) or b"{}", TakeoverBody)
        try:
            if self._handle.controller_epoch is not None:
                return answer(TakenBody(True, self._handle.controller_epoch, None))
            found = await self._check()
            if found.reasons and not body.dry_run:
                raise ProblemError(409, Code.POLICY_VIOLATION.name, "; ".join(found.reasons))
            epoch = None if body.dry_run else await self._handle.take_over()
        except (NotControllerError, SeatTroubleError) as error:
            raise unavailable(Code.NOT_CONTROLLER.name, str(error)) from None
        return answer(TakenBody(epoch is not None, epoch, found))

    async def hand_back(self, request: web.Request) -> web.Response:
        decode_body(await read_body(request, BODY_MAX_BYTES) or b"{}", Nothing)
        cluster = self._handle.cluster
        if cluster is not None and not cluster.brokers:
            raise ProblemError(409, Code.BROKER_NOT_AVAILABLE.name, "no broker is live that could be the controller")
        try:
            await self._handle.hand_back()
        except NotControllerError as error:
            raise ProblemError(409, Code.NOT_CONTROLLER.name, f"{error}: there is nothing to give back") from None
        return answer({"handed_back": True})
