"""RPCs that brokers send to the active controller. Kafka's numbers travel in the body; 4xx is for no request at all."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from controller.api.bodies import decode_body, read_body
from controller.api.ports import ControllerHandle, NotControllerError, term_of
from controller.api.problems import invalid, unknown_outcome
from controller.base.config import Limits
from controller.core.codes import Code
from controller.core.events import AlterPartitionAsked, DrainAsked, Event, IsrProposal, ProducerIdsAsked
from controller.loop.inbox import IsrReply, ProducerIdsReply, Reply, ShutdownReply
from controller.wire import bodies


class Rpcs:
    """Handlers of the RPCs."""

    def __init__(self, handle: ControllerHandle, limits: Limits) -> None:
        self._handle = handle
        self._limits = limits

    def routes(self) -> Sequence[web.RouteDef]:
        return [
            web.post(bodies.ALTER_PARTITION, self.alter_partition),
            web.post(bodies.CONTROLLED_SHUTDOWN, self.controlled_shutdown),
            web.post(bodies.PRODUCER_IDS, self.producer_ids),
        ]

    async def alter_partition(self, request: web.Request) -> web.Response:
        broker_id, broker_epoch = sender_of(request)
        raw = await read_body(request, self._limits.rpc_body_max_bytes)
        proposals = proposals_of(decode_body(raw, bodies.AlterPartitionRequest))
        if len(proposals) > self._limits.partitions_per_rpc:
            raise invalid(f"{len(proposals)} partitions in one request; at most {self._limits.partitions_per_rpc}")
        event = AlterPartitionAsked(broker_id, broker_epoch, proposals)
        reply = await self._asked(event, "what became of it is not known; ask again, the answer says what stands")
        topics = reply.topics if isinstance(reply, IsrReply) else ()
        return _answer(bodies.AlterPartitionAnswer(reply.code, topics))

    async def controlled_shutdown(self, request: web.Request) -> web.Response:
        """Moves leaderships off a broker that stops, and says which remain."""
        broker_id, broker_epoch = sender_of(request)
        decode_body(await read_body(request, self._limits.rpc_body_max_bytes), dict[str, object])
        event = DrainAsked(broker_id, broker_epoch, is_shutdown=True)
        reply = await self._asked(event, "whether its leaderships were moved is not known; ask again")
        remaining = reply.remaining if isinstance(reply, ShutdownReply) else ()
        return _answer(bodies.ControlledShutdownAnswer(reply.code, remaining))

    async def producer_ids(self, request: web.Request) -> web.Response:
        """Grants a broker a block of ids for idempotent producers."""
        broker_id, broker_epoch = sender_of(request)
        decode_body(await read_body(request, self._limits.rpc_body_max_bytes), dict[str, object])
        event = ProducerIdsAsked(broker_id, broker_epoch)
        reply = await self._asked(event, "whether a block was given is not known; ask again, it costs a block at most")
        start, size = (reply.start, reply.size) if isinstance(reply, ProducerIdsReply) else (0, 0)
        return _answer(bodies.ProducerIdsAnswer(reply.code, start, size))

    async def _asked(self, event: Event, unknown: str) -> Reply:
        """Returns the reply: NOT_CONTROLLER if the term is over. Refuses with `unknown` if the outcome is not known."""
        try:
            reply = await term_of(self._handle).ask(event)
        except NotControllerError:
            return Reply(Code.NOT_CONTROLLER)
        if reply.is_unknown:
            raise unknown_outcome(unknown)
        return reply


def sender_of(request: web.Request) -> tuple[int, int]:
    """Returns id and broker epoch of the broker that asks."""
    sender = bodies.sender_in(request.headers.get(bodies.SENDER, ""))
    if sender is None:
        raise invalid(f"the header {bodies.SENDER} must be '<broker id> <broker epoch>'")
    return sender


def proposals_of(body: bodies.AlterPartitionRequest) -> list[IsrProposal]:
    return [
        IsrProposal(
            topic_id=topic.topic_id,
            partition=row.partition,
            leader_epoch=row.leader_epoch,
            version=row.version,
            recovery=row.recovery,
            isr=tuple((member.broker_id, member.broker_epoch) for member in row.isr),
        )
        for topic in body.topics
        for row in topic.partitions
    ]


def _answer(body: object) -> web.Response:
    return web.Response(body=bodies.encode(body), content_type="application/json")
