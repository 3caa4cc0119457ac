"""Before the seat is taken from Kafka's controller: what we would meet, why we would not, and what we would decide.

It reads, and writes nothing. Reasons are sentences for the operator; one is enough to refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec

from controller.claim import Seat
from controller.core import formats
from controller.core.changes import Change, StateDecided
from controller.core.cluster import Cluster
from controller.core.decide import decide
from controller.core.model import NO_LEADER, Broker
from controller.core.znodes import CONTROLLER_EPOCH, writes_for
from controller.kafka.reach import reasons_of_reach
from controller.kafka.reasons import reasons_against
from controller.kafka.settings import DedicatedConfig
from controller.reader import Reader
from controller.term import holding, started_for
from controller.tools import Tools
from controller.zk_model import ZooKeeper

WRITES_SHOWN_MAX: Final = 100


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
    for _ in cluster.loading(loaded.topics, loaded.states, loaded.duties()):
        await asyncio.sleep(0)
    reasons = [
        *await reasons_against(zk, config),
        *await reasons_of_reach(loaded.brokers.values(), config.access, config.level, tools.limits),
        *_of_strangers(cluster, reader.strangers),
        *([] if loaded.brokers or reader.strangers else ["no broker is registered"]),
    ]
    changes: list[Change] = []
    for piece in decide(cluster, started_for(loaded, epoch + 1), tools.now_ms(), 0):
        changes += piece.changes
        await asyncio.sleep(0)
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


def _of_strangers(cluster: Cluster, strangers: dict[int, Broker]) -> list[str]:
    theirs = holding(cluster, strangers)
    return [f"brokers {theirs} hold replicas and are stubs: they cannot be told in Kafka's protocol"] if theirs else []
