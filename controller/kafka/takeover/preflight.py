"""Before the seat is taken from Kafka's controller: what we would meet, why we would not, and what we would decide.

It reads, and writes nothing. Reasons are sentences for the operator; one is enough to refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec

from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import Change, StateDecided
from controller.core.changes.duties import TopicIdSought
from controller.core.decide.dispatch import decide
from controller.core.model import NO_LEADER, Broker
from controller.core.project.znodes import topic_path
from controller.kafka.cluster.settings import DedicatedConfig
from controller.kafka.takeover.broker_probe import vetoes_from_brokers
from controller.kafka.takeover.vetoes import vetoes_against
from controller.loop.reader import Reader
from controller.seat.claim import Seat, read_epoch
from controller.term.parts import TermParts
from controller.term.term import holding, started_for
from controller.zookeeper.port import ZooKeeper

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
        *_of_strangers(cluster, reader.strangers),
        *([] if loaded.brokers or reader.strangers else ["no broker is registered"]),
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


def _of_strangers(cluster: Cluster, strangers: dict[int, Broker]) -> list[str]:
    theirs = holding(cluster, strangers)
    return [f"brokers {theirs} hold replicas and are stubs: they cannot be told in Kafka's protocol"] if theirs else []
