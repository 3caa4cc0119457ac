"""Why this leader: for each replica of a partition, whether it could lead now, and if not, why not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from controller.core.belief.cluster import Cluster
from controller.core.codes import name_of
from controller.core.elections import preferred, repaired, status_of
from controller.core.model import Leadership, Partition, Replicas
from controller.core.project.lines import Line
from controller.core.states import PartitionStatus

LEAVING: Final = "none: the topic is being deleted"


class ReplicaView(msgspec.Struct, frozen=True):
    """One replica: its state, whether it may be elected, and the reasons."""

    broker_id: int
    is_leader: bool
    is_in_sync: bool
    is_eligible: bool
    why: str


class PastDecision(msgspec.Struct, frozen=True):
    """One decision about the partition, as logged."""

    at_ms: int
    controller_epoch: int
    event_id: str | None
    source: str | None
    target: str | None
    reason: str | None
    cause: str | None
    leader: int | None
    leader_epoch: int | None
    isr: Replicas | None
    version: int | None

    @classmethod
    def of(cls, line: Line) -> PastDecision:
        return cls(
            line.at_ms,
            line.controller_epoch,
            line.event_id,
            line.source,
            line.target,
            line.reason,
            line.cause,
            line.leader,
            line.leader_epoch,
            line.isr,
            line.version,
        )


class Explanation(msgspec.Struct, frozen=True):
    """A partition's present, and the result of each election."""

    topic: str
    partition: int
    state: str
    leader: int
    leader_epoch: int
    controller_epoch: int
    version: int
    isr: Replicas
    assigned: Replicas
    adding: Replicas
    removing: Replicas
    replicas: list[ReplicaView]
    #: an offline election now: nothing to do, or the leader that it would choose
    offline_election: str
    preferred_election: str
    unclean_election: str
    #: past leaders with times and reasons, as far back as this term remembers; the oldest first
    story: list[PastDecision] = []


def explain(cluster: Cluster, topic: str, number: int, lines: Iterable[Line] = ()) -> Explanation:
    """The partition has to be known; `lines` are the log's lines about it."""
    known = cluster.topics[topic].partitions[number]
    state = known.state or Leadership(-1, -1, (), -1)
    online = cluster.serving_ids(topic, number, cluster.live_ids)
    is_leaving = cluster.duties.is_leaving(topic)
    return Explanation(
        topic=topic,
        partition=number,
        state=(PartitionStatus.OFFLINE if is_leaving else status_of(known.state, cluster.live_ids)).value,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        controller_epoch=state.controller_epoch,
        version=known.version,
        isr=state.isr,
        assigned=known.replicas,
        adding=known.adding,
        removing=known.removing,
        replicas=[_replica(cluster, topic, number, known, state, broker_id, online) for broker_id in known.replicas],
        offline_election=LEAVING
        if is_leaving
        else _offline(cluster, known, online, allow_unclean=cluster.is_unclean_allowed(topic)),
        preferred_election=LEAVING if is_leaving else _preferred(cluster, known, online),
        unclean_election=LEAVING if is_leaving else _offline(cluster, known, online, allow_unclean=True),
        story=[PastDecision.of(line) for line in lines],
    )


def _replica(
    cluster: Cluster,
    topic: str,
    number: int,
    known: Partition,
    state: Leadership,
    broker_id: int,
    online: frozenset[int],
) -> ReplicaView:
    reasons = []
    if broker_id not in cluster.live_ids:
        reasons.append("its broker is gone")
    elif broker_id not in online:
        reasons.append("its log directory has failed")
    if broker_id not in state.isr:
        reasons.append("not in sync")
    if cluster.duties.is_leaving(topic):
        reasons.append("its topic is being deleted")
    is_eligible = not reasons
    if broker_id in cluster.draining_ids:
        reasons.append("its broker drains: only if no other can")
    elif broker_id in cluster.avoided_ids:
        reasons.append(
            "its broker has a bad directory and did not say yet which replicas are on it: only if no other can"
        )
    refusal = cluster.duties.refusal_of(broker_id, topic, number)
    if refusal is not None:
        reasons.append(f"its broker refuses {refusal.request}: {name_of(refusal.code)}")
    if broker_id in known.adding:
        reasons.append("being added" if broker_id in state.isr else "being added: it cannot lead before it is in sync")
    if broker_id in known.removing:
        reasons.append("being removed")
    why = "; ".join(reasons) or "online and in sync"
    return ReplicaView(broker_id, broker_id == state.leader, broker_id in state.isr, is_eligible, why)


def _offline(cluster: Cluster, known: Partition, online: frozenset[int], *, allow_unclean: bool) -> str:
    if known.state is None:
        return "never led yet: the first replica online would lead"
    if known.state.leader in online:
        return f"not needed: broker {known.state.leader} leads"
    avoided = cluster.avoided_ids
    after = repaired(
        known.replicas,
        known.state,
        online,
        cluster.controller_epoch,
        draining=avoided,
        adding=known.adding,
        allow_unclean=allow_unclean,
    )
    if after is None or after.leader < 0:
        return "nobody can lead"
    return f"broker {after.leader} would lead, in sync: {list(after.isr)}"


def _preferred(cluster: Cluster, known: Partition, online: frozenset[int]) -> str:
    if known.state is None or known.state.leader == known.replicas[0]:
        return "not needed"
    able = online - cluster.avoided_ids
    after = preferred(known.replicas, known.state, able, cluster.controller_epoch)
    first = known.replicas[0]
    return f"broker {first} cannot lead now" if after is None else f"broker {first} would lead"
