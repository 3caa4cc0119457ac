"""Requests about many partitions, each with an outcome of its own: reassignments and elections.

Parsed here, decided by the active controller. A request that was taken is answered with 200, whatever the outcomes of
its partitions; their codes are Kafka's names.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from aiohttp import web

from controller.api.bodies import (
    LISTED,
    Nothing,
    Page,
    PageQuery,
    PartitionName,
    ReplicaIds,
    answer,
    decode_body,
    number_in_path,
    query_of,
)
from controller.api.listing import Cursor, cursor_of
from controller.api.problems import invalid, refusal_for
from controller.api.routing.active import ActiveController
from controller.core.belief.cluster import Cluster
from controller.core.codes import Code
from controller.core.events import ElectAsked, ReassignAsked
from controller.core.model import NO_LEADER, Int32, Replicas
from controller.loop.inbox import OutcomesReply

PATH = "/v1/reassignments"


class TargetBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of Kafka's reassignment JSON; `replicas` null cancels, as in Kafka's own request."""

    topic: str
    partition: Int32
    replicas: ReplicaIds | None
    log_dirs: Annotated[tuple[str, ...], LISTED] | None = None


class ReassignBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    partitions: Annotated[Sequence[TargetBody], LISTED]
    version: Literal[1] = 1


class ElectBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`partitions` null: wherever an election is needed."""

    type: Literal["preferred", "unclean"]
    partitions: Annotated[Sequence[PartitionName], LISTED] | None


class OutcomeBody(msgspec.Struct, frozen=True):
    """What became of one partition; `code` is NONE when it was done."""

    topic: str
    partition: int
    code: str
    detail: str


class OutcomesBody(msgspec.Struct, frozen=True):
    partitions: Sequence[OutcomeBody]


class ReassigningBody(msgspec.Struct, frozen=True):
    """A reassignment that runs. `waits_for` are target replicas that are not in sync, `gone` those that are away."""

    topic: str
    partition: int
    leader: int
    isr: Replicas
    replicas: Replicas
    adding: Replicas
    removing: Replicas
    target: Replicas
    waits_for: Replicas
    gone: Replicas


class PartitionRequests:
    """Handlers of reassignments and elections."""

    def __init__(self, active: ActiveController) -> None:
        self._active = active

    def routes(self) -> Sequence[web.RouteDef]:
        return [
            self._active.route("GET", PATH, self.reassignments),
            self._active.route("POST", PATH, self.reassign),
            self._active.route("DELETE", f"{PATH}/{{topic}}/{{partition}}", self.cancel),
            self._active.route("POST", "/v1/elections", self.elect),
        ]

    async def reassignments(self, request: web.Request, raw: bytes) -> web.Response:
        query, cluster = query_of(request, PageQuery), self._active.cluster
        after = ("", -1) if query.cursor is None else msgspec.structs.astuple(cursor_of(query.cursor))
        found = heapq.nsmallest(query.limit + 1, (key for key in cluster.reassigning if key > after))
        page = found[: query.limit]
        next_cursor = str(Cursor(*page[-1])) if len(found) > len(page) else None
        return answer(Page([reassigning_body(cluster, *key) for key in page], next_cursor))

    async def reassign(self, request: web.Request, raw: bytes) -> web.Response:
        asked = reassignment_for(decode_body(raw, ReassignBody))
        return answer(outcomes_body(await self._active.granted(asked, OutcomesReply, PATH)))

    async def cancel(self, request: web.Request, raw: bytes) -> web.Response:
        key = request.match_info["topic"], number_in_path(request, "partition")
        decode_body(raw or b"{}", Nothing)
        ended = Code.NO_REASSIGNMENT_IN_PROGRESS
        reply = await self._active.ask(ReassignAsked({key: None}), PATH, accept=(Code.NONE, ended))
        outcome = outcomes_body(reply).partitions[0] if isinstance(reply, OutcomesReply) else None
        if outcome is None:
            outcome = OutcomeBody(*key, reply.code.name, reply.detail)
        elif outcome.code not in (Code.NONE.name, ended.name):  # the caller wanted that it no longer runs
            raise refusal_for(Code[outcome.code], outcome.detail)
        return answer(outcome)

    async def elect(self, request: web.Request, raw: bytes) -> web.Response:
        asked = election_for(decode_body(raw, ElectBody))
        return answer(outcomes_body(await self._active.granted(asked, OutcomesReply, "/v1/partitions")))


def reassignment_for(body: ReassignBody) -> ReassignAsked:
    targets = {(one.topic, one.partition): one.replicas for one in body.partitions}
    _check_names(list(targets), len(body.partitions))
    for one in body.partitions:
        if any(log_dir != "any" for log_dir in one.log_dirs or ()):
            raise invalid("replicas cannot be moved to a log directory by name; write any, or leave out log_dirs")
    return ReassignAsked(targets)


def election_for(body: ElectBody) -> ElectAsked:
    if body.partitions is None:
        return ElectAsked(body.type == "unclean")
    names = list(dict.fromkeys((one.topic, one.partition) for one in body.partitions))
    _check_names(names, len(body.partitions))
    return ElectAsked(body.type == "unclean", names)


def outcomes_body(reply: OutcomesReply) -> OutcomesBody:
    return OutcomesBody(
        [OutcomeBody(one.topic, one.partition, Code(one.code).name, one.detail) for one in reply.outcomes]
    )


def reassigning_body(cluster: Cluster, topic: str, number: int) -> ReassigningBody:
    one = cluster.topics[topic].partitions[number]
    isr = () if one.state is None else one.state.isr
    target = tuple(broker_id for broker_id in one.replicas if broker_id not in one.removing)
    waits_for = tuple(broker_id for broker_id in target if broker_id not in isr)
    return ReassigningBody(
        topic=topic,
        partition=number,
        leader=NO_LEADER if one.state is None else one.state.leader,
        isr=isr,
        replicas=one.replicas,
        adding=one.adding,
        removing=one.removing,
        target=target,
        waits_for=waits_for,
        gone=tuple(broker_id for broker_id in waits_for if broker_id not in cluster.live_ids),
    )


def _check_names(names: Sequence[tuple[str, int]], given: int) -> None:
    if not names:
        raise invalid("name at least one partition")
    if len(names) != given:
        raise invalid("a partition is named twice")
