"""The JSON bodies of the API, of requests and answers. Every key is always there; an unknown value is null.

A request's body is checked by its type: unknown fields and wrong types never get past `decode_body`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from controller.api.counts import (
    Counts,
    PartitionState,
    Summary,
    Verdict,
    add_to,
    live_ids_of,
    state_of,
    verdict_for,
)
from controller.api.ports import ClusterView, ControllerHandle, TopicView
from controller.api.problems import ProblemError, invalid
from controller.api.warnings import warnings_of
from controller.base.config import LIMITS, BrokerConfig
from controller.core.belief.cluster import Cluster
from controller.core.events import CreateTopicAsked
from controller.core.model import Int32, Replicas
from controller.wire.bodies import (
    HTTP_LISTENER,
    BrokerEntry,
    PartitionRow,
    address_of,
)

#: the whole body, once it was read: it is read once, for all middlewares and the handler
_RAW_BODY: Final = web.RequestKey("raw body", bytes)

#: of every list and map in a body: a body that fits may still ask for more than one decision should take
LISTED: Final = msgspec.Meta(max_length=LIMITS.api_list_max_items)
ReplicaIds = Annotated[tuple[Int32, ...], LISTED]
Assignment = Annotated[dict[Int32, ReplicaIds], LISTED]


class CreateTopicBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/topics: by counts, or by an explicit assignment. Counts that are left out are the controller's
    `num.partitions` and `default.replication.factor`."""

    name: str
    partitions: Int32 | None = None
    replication_factor: Int32 | None = None
    assignment: Assignment | None = None
    configs: Annotated[dict[str, str], LISTED] = {}


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body where there is nothing to say."""


class PartitionName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    partition: Int32


class PageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000
    cursor: str | None = None


class PartitionsQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    state: PartitionState | None = None
    topic: str | None = None
    broker: int | None = None


class Page(msgspec.Struct, frozen=True):
    """A piece of a list; `next_cursor` asks for the next one, null says that this was the last."""

    items: Sequence[object]
    next_cursor: str | None = None


class ControllerBody(msgspec.Struct, frozen=True):
    """Who the controller is. `since`, by its wall clock, and `age_ms`, for how long by its monotonic clock as it
    answered, are known to the active controller only. `kind`: `klamm`, or `kafka` where it is
    one of Kafka's own brokers; null where there is none."""

    broker_id: int
    controller_epoch: int
    since: str | None
    age_ms: int | None
    phase: str
    kind: str | None


class ClusterCounts(msgspec.Struct, frozen=True):
    brokers_live: int
    brokers_draining: int
    brokers_gone: int
    topics: int
    partitions: int
    online: int
    offline: int
    under_replicated: int
    not_preferred: int
    #: created and never led: neither online nor offline
    new: int


class ClusterBody(msgspec.Struct, frozen=True):
    id: str
    controller: ControllerBody
    counts: ClusterCounts
    health: Verdict


class BrokerBody(msgspec.Struct, frozen=True):
    id: int
    host: str | None
    port: int | None
    rack: str | None
    broker_epoch: int
    state: str
    leaders: int
    replicas: int
    endpoints: Sequence[str]
    #: of how many partitions it refuses what it is told; known to the active controller only
    refused: int | None


class TopicBody(msgspec.Struct, frozen=True):
    """A topic in numbers; its partitions are a list of their own. The id is null where nobody was told of the topic:
    all of its partitions are new, and this process is not the active controller."""

    name: str
    topic_id: str | None
    partitions: int
    replication_factor: int
    online: int
    offline: int
    under_replicated: int
    not_preferred: int
    #: created and never led: neither online nor offline
    new: int


class PartitionBody(msgspec.Struct, frozen=True, gc=False):
    """One partition. `state` is the worst that is true of it. `new` is a NewPartition: it has replicas and was never
    led, so leader, epochs and version are -1, and nobody is in sync; the active controller is asked for these."""

    topic: str
    partition: int
    state: str
    leader: int
    leader_epoch: int
    isr: Replicas
    replicas: Replicas
    adding: Replicas
    removing: Replicas
    version: int
    controller_epoch: int


def controller_body(view: ClusterView, handle: ControllerHandle) -> ControllerBody:
    """Returns the controller as far as this process knows: of its own term everything, of another's the metadata."""
    if handle.term is not None and handle.controller_epoch is not None:
        since = datetime.fromtimestamp(handle.term.since_ms / 1_000, UTC)
        since_text = since.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return ControllerBody(
            view.own_broker_id, handle.controller_epoch, since_text, handle.term.age_ms, handle.phase, "klamm"
        )
    if handle.seat is None or handle.seat_trouble is not None:
        return ControllerBody(-1, view.controller_epoch, None, None, "vacant", None)
    holder_id = handle.seat[0]
    has_told = holder_id == view.controller_id >= 0
    kind = "kafka" if view.is_led_by_kafka else "klamm" if holder_id >= 0 else None
    return ControllerBody(holder_id, view.controller_epoch, None, None, "active" if has_told else "loading", kind)


def cluster_body(view: ClusterView, handle: ControllerHandle, summary: Summary, health: Verdict) -> ClusterBody:
    states = [broker.state for broker in view.brokers]
    counts = ClusterCounts(
        brokers_live=states.count("live"),
        brokers_draining=states.count("draining"),
        brokers_gone=states.count("gone"),
        topics=summary.topics,
        **msgspec.structs.asdict(summary.counts),
    )
    return ClusterBody(view.cluster_id, controller_body(view, handle), counts, health)


def own_verdict(view: ClusterView, handle: ControllerHandle, summary: Summary) -> Verdict:
    """Returns the verdict from this process's own knowledge. A standby does not know whether a controller decides."""
    phase = controller_body(view, handle).phase
    warnings = warnings_of(view, handle, summary)
    return verdict_for(phase, view.brokers, summary.counts, is_cut_off=not handle.is_registered, warnings=warnings)


def broker_body(broker: BrokerEntry, summary: Summary, listener: str, believed: Cluster | None) -> BrokerBody:
    """With the address of that listener; a broker without it is listed under its first."""
    address = urlsplit(address_of(broker.endpoints, listener) or next(iter(broker.endpoints), ""))
    return BrokerBody(
        id=broker.id,
        host=address.hostname,
        port=address.port,
        rack=broker.rack,
        broker_epoch=broker.epoch,
        state=broker.state,
        leaders=summary.leaders[broker.id],
        replicas=summary.replicas[broker.id],
        endpoints=broker.endpoints,
        refused=None if believed is None else believed.duties.refused_by(broker.id),
    )


def listener_asked(request: web.Request, view: ClusterView) -> str:
    """Returns which of our listeners the caller came by: its answers name the others' addresses there, as Kafka's
    do."""
    own = next((broker.endpoints for broker in view.brokers if broker.id == view.own_broker_id), ())
    for endpoint in own:
        name, _, address = endpoint.partition("://")
        if address.lower() == request.host.lower():
            return name
    return HTTP_LISTENER


class TopicCount:
    """A topic in numbers, counted piece by piece."""

    def __init__(self) -> None:
        self._counts = Counts()
        self._factor = 0

    def add(self, rows: Sequence[PartitionRow], live_ids: Collection[int]) -> None:
        add_to(self._counts, rows, live_ids)
        self._factor = max([self._factor, *(len(row.replicas) - len(row.adding) for row in rows)])

    def body(self, topic: TopicView) -> TopicBody:
        counts = msgspec.structs.asdict(self._counts)
        return TopicBody(topic.topic, topic.topic_id or None, replication_factor=self._factor, **counts)


def topic_body(topic: TopicView, brokers: Iterable[BrokerEntry]) -> TopicBody:
    count = TopicCount()
    count.add(topic.partitions, live_ids_of(brokers))
    return count.body(topic)


def partition_body(topic: str, row: PartitionRow, live_ids: Collection[int]) -> PartitionBody:
    return PartitionBody(
        topic=topic,
        partition=row.partition,
        state=state_of(row, live_ids),
        leader=row.leader,
        leader_epoch=row.leader_epoch,
        isr=row.isr,
        replicas=row.replicas,
        adding=row.adding,
        removing=row.removing,
        version=row.version,
        controller_epoch=row.controller_epoch,
    )


def creation_for(body: CreateTopicBody, config: BrokerConfig) -> CreateTopicAsked:
    """Returns the request to the controller. Counts that are not given are those of the configuration."""
    if body.assignment is None:
        partitions = config.num_partitions if body.partitions is None else body.partitions
        factor = config.default_replication_factor if body.replication_factor is None else body.replication_factor
        return CreateTopicAsked(body.name, partitions, factor, None, body.configs)
    if body.partitions is not None or body.replication_factor is not None:
        raise invalid("give either an assignment or partitions and replication_factor, not both")
    return CreateTopicAsked(body.name, None, None, body.assignment, body.configs)


_T = TypeVar("_T")


def decode_body(raw: bytes, kind: type[_T]) -> _T:
    """Returns the body as a value of `kind`, or raises a refusal that says the fault in it."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise invalid(f"the body is not what is expected here: {error}") from None
    except RecursionError:
        raise invalid("the body is nested too deeply") from None


def query_of(request: web.Request, kind: type[_T]) -> _T:
    """Returns the query string as a value of `kind`."""
    query: Mapping[str, str] = dict(request.query)
    if len(query) != len(request.query):
        raise invalid("a query parameter was given twice")
    try:
        return msgspec.convert(query, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(f"the query is not what is expected here: {error}") from None


def number_in_path(request: web.Request, name: str) -> int:
    """Returns a part of the path that must be a number."""
    text = request.match_info[name]
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise invalid(f"{text[:20]!r} in the path is no {name}")
    return int(text)


async def read_body(request: web.Request, body_max_bytes: int, timeout_ms: int = LIMITS.body_timeout_ms) -> bytes:
    """Returns the whole body, unless it is larger than allowed or comes too slowly: then a refusal, before all was
    taken in."""
    if _RAW_BODY in request:
        return request[_RAW_BODY]
    raw = bytearray()
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            async for piece in request.content.iter_any():
                raw += piece
                if len(raw) > body_max_bytes:
                    raise ProblemError(413, "BODY_TOO_LARGE", f"a body may have {body_max_bytes} bytes here")
    except TimeoutError:
        raise ProblemError(
            408, "REQUEST_TIMED_OUT", "the body took too long", headers={"Connection": "close"}
        ) from None
    except web.RequestPayloadError as error:
        raise invalid(f"the body cannot be read: {error}") from None
    except ConnectionError:
        raise invalid("the connection ended before the body did") from None
    request[_RAW_BODY] = whole = bytes(raw)
    return whole


def answer(body: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
