"""The dialect of our own brokers: JSON over HTTP.

It owns bodies, headers and the answer's meaning. It never tries again and never chooses the states to tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Final

import msgspec

from controller.base.config import LIMITS, Limits
from controller.core.model import (
    LEADER_REMOVED,
    NO_VERSION,
    RECOVERED,
    Broker,
    Leadership,
    Partition,
    Replicas,
)
from controller.core.project.requests import KnownBroker
from controller.tell.dialects import (
    Envelope,
    NotAcknowledgedError,
    Request,
    Unwanted,
)
from controller.tell.dialects.row_cache import rows_for
from controller.wire import bodies
from controller.wire.client import NO_ADDRESS, ExchangeError, HttpClient
from controller.wire.signing import Incarnation, Signer

NO_EPOCH: Final = -1


def headers_for(broker: Broker, envelope: Envelope) -> dict[str, str]:
    """Everything that differs per broker, but for the signature."""
    return {
        bodies.CONTROLLER_ID: str(envelope.controller_id),
        bodies.CONTROLLER_EPOCH: str(envelope.controller_epoch),
        bodies.BROKER_EPOCH: str(broker.epoch),
        bodies.EVENT_ID: envelope.event_id,
    }


class HttpDialect:
    """Keeps the interface `Dialect`."""

    def __init__(
        self,
        client: HttpClient,
        listener: str = bodies.HTTP_LISTENER,
        limits: Limits = LIMITS,
        *,
        signer: Signer | None = None,
        own_epoch: int | None = None,
    ) -> None:
        """`own_epoch` is the broker epoch of the process that controls."""
        self._client = client
        self._listener = listener
        self._limits = limits
        self._signer = signer or Signer()
        self._own_epoch = own_epoch

    def encode(self, request: Request) -> bytes:
        if request.path == bodies.STOP_REPLICA:
            return bodies.encode(bodies.StopReplicaRequest(_stops_for(request.stops)))
        if request.path == bodies.DESCRIBE_TOPICS:
            return bodies.encode(bodies.DescribeTopicsRequest(request.names))
        return encode_states(request)

    async def send(self, broker: Broker, request: Request, body: bytes, envelope: Envelope) -> bodies.Answer:
        path = request.path
        endpoint = bodies.address_of(broker.endpoints, self._listener)
        if endpoint is None:
            raise NotAcknowledgedError(f"broker {broker.broker_id} has no listener named {self._listener}")
        try:
            headers = self._signer.headers_for(
                "POST",
                endpoint + path,
                body,
                sender=Incarnation(envelope.controller_id, self._own_epoch),
                receiver=Incarnation(broker.broker_id, broker.epoch),
                more=headers_for(broker, envelope),
            )
            status, answer = await self._client.post(endpoint + path, body, headers, self._limits.rpc_timeout_ms)
        except (ExchangeError, *NO_ADDRESS) as error:
            raise NotAcknowledgedError(str(error)) from error
        if status == 404 and path == bodies.DESCRIBE_TOPICS:  # a broker that is older than the question knows no answer
            return bodies.DescribeTopicsAnswer()
        if status != 200:
            hint = ": is KLAMM_RPC_SECRET the same everywhere?" if status == 401 else ""
            raise NotAcknowledgedError(f"{endpoint}{path} answered {status}{hint}")
        try:
            return bodies.decode(
                answer, bodies.DescribeTopicsAnswer if path == bodies.DESCRIBE_TOPICS else bodies.Answer
            )
        except msgspec.DecodeError as error:
            raise NotAcknowledgedError(f"{endpoint}{path} gave a malformed answer: {error}") from error


def encode_states(request: Request) -> bytes:
    """Returns the body of a LeaderAndIsr or UpdateMetadata."""
    return bodies.encode(
        bodies.UndecodedStatesRequest(
            full=request.full,
            part=request.part,
            parts=request.parts,
            brokers=[_entry_for(known) for known in request.brokers] if request.tells_brokers else (),
            topics=_topics_for(request),
        )
    )


def _entry_for(known: KnownBroker) -> bodies.BrokerEntry:
    broker = known.broker
    return bodies.BrokerEntry(broker.broker_id, broker.epoch, known.state, broker.rack, broker.endpoints)


def _topics_for(request: Request) -> list[bodies.UndecodedTopicRows]:
    """Returns a row for each partition that was ever led or is removed."""
    topics = []
    gone_of = cache(partial(_gone_of, request.live_ids))  # many have the same replicas
    for key, partitions in request.rows.items():
        topic, topic_id = key
        assert topic_id, "a topic without an id is never told"
        make = partial(_made, request, topic, gone_of)
        if body := b",".join(rows_for(request.row_cache, key, partitions, request.new, make)):
            topics.append(bodies.UndecodedTopicRows(topic, topic_id, msgspec.Raw(b"[%b]" % body)))
    return topics


def _made(
    request: Request,
    topic: str,
    gone_of: Callable[[Replicas], Replicas],
    partitions: Mapping[int, Partition | None],
    is_new: bool,
) -> Iterable[bytes]:
    rows, failed_dirs = [], request.failed_dirs
    for number, partition in partitions.items():
        if partition is None:
            rows.append(_removal_of(number))
        elif partition.state is not None:
            offline = gone_of(partition.replicas)
            if failed_dirs and not failed_dirs.keys().isdisjoint(partition.replicas):
                offline = _offline(request, topic, number, partition)
            rows.append(row_for(number, partition, partition.state, offline, is_new=is_new))
    lines = bodies.encode_lines(rows).splitlines()
    if len(lines) == len(partitions):
        return lines
    made = dict.fromkeys(partitions, b"")
    made.update(zip([row.partition for row in rows], lines, strict=True))
    return made.values()


def row_for(
    number: int, partition: Partition, state: Leadership, offline: Replicas, *, is_new: bool
) -> bodies.PartitionRow:
    """Returns a partition that is led, as brokers are told of it."""
    return bodies.PartitionRow(
        number,
        state.controller_epoch,
        state.leader,
        state.leader_epoch,
        state.isr,
        partition.version,
        partition.replicas,
        partition.adding,
        partition.removing,
        offline,
        is_new,
        state.recovery,
    )


def _gone_of(live_ids: frozenset[int], replicas: Replicas) -> Replicas:
    return tuple([each for each in replicas if each not in live_ids])


def _offline(request: Request, topic: str, number: int, partition: Partition) -> Replicas:
    """Returns the replicas on brokers that are gone, or whose directory has failed."""
    live_ids, failed_dirs = request.live_ids, request.failed_dirs
    return tuple(
        each for each in partition.replicas if each not in live_ids or (topic, number) in failed_dirs.get(each, ())
    )


def _stops_for(stops: Unwanted) -> list[bodies.TopicStops]:
    topics = []
    for (topic, topic_id), partitions in stops.items():
        assert topic_id, "a topic without an id is never told"
        rows = [bodies.StopRow(number, stop.leader_epoch, stop.delete) for number, stop in partitions.items()]
        topics.append(bodies.TopicStops(topic, topic_id, rows))
    return topics


def _removal_of(number: int) -> bodies.PartitionRow:
    nothing: Replicas = ()
    return bodies.PartitionRow(
        number, NO_EPOCH, LEADER_REMOVED, NO_EPOCH, nothing, NO_VERSION, nothing, nothing, nothing, nothing, False,
        RECOVERED,
    )  # fmt: skip
