"""Decides whether a simulated cluster has come to rest, and lists the deviations. It changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.faults.checker.history import json_of
from tests.faults.checker.replay import state_of, topic_of

if TYPE_CHECKING:
    from tests.faults.simulate.cluster import SimCluster
    from tests.faults.simulate.member import Member

REST_POLL_S = 0.25


def unrest(cluster: SimCluster) -> Iterator[str]:
    """Yield each deviation from the state of a cluster at rest."""
    if len(cluster.active_ids) != 1:
        yield f"active: {cluster.active_ids}"
    states: dict[tuple[str, int], Any] = {}
    topics = cluster.zookeeper.tree.nodes.get("/brokers/topics")
    if topics is None:
        yield "/brokers/topics is not there"
    for topic in () if topics is None else topics.children:
        yield from _unrest_of(cluster, topic, states)
    for parent in ("/admin/delete_topics", "/isr_change_notification", "/log_dir_event_notification"):
        node = cluster.zookeeper.tree.nodes.get(parent)
        yield from (f"{parent}/{name}" for name in (node.children if node else ()))
    for path in ("/admin/reassign_partitions", "/admin/preferred_replica_election"):
        if cluster.zookeeper.read(path) is not None:
            yield path
    for broker_id in cluster.broker_ids:
        member = cluster.members.get(broker_id)
        if member is None or member.broker is None or not _is_registered(cluster, member):
            yield f"broker {broker_id} is not there"
        elif cluster.view_of(member) != states:
            yield f"broker {broker_id} was told otherwise"
    yield from (f"broker {one} holds {names}" for one, names in cluster.strays().items())


def _is_registered(cluster: SimCluster, member: Member) -> bool:
    node = cluster.zookeeper.tree.nodes.get(f"/brokers/ids/{member.broker_id}")
    is_own = node is not None and member.zk is not None and node.owner == member.zk.session_id
    return is_own and node is not None and member.broker is not None and member.broker.broker_epoch == node.czxid


def _unrest_of(cluster: SimCluster, topic: str, states: dict[tuple[str, int], Any]) -> Iterator[str]:
    said = json_of(cluster.zookeeper.read(f"/brokers/topics/{topic}") or b"")
    if topic_of(cluster.zookeeper.read(f"/brokers/topics/{topic}") or b"", 0) is None:
        return
    if said.get("adding_replicas") or said.get("removing_replicas"):
        yield f"{topic} is being reassigned"
    for number, replicas in said["partitions"].items():
        path = f"/brokers/topics/{topic}/partitions/{number}/state"
        node = cluster.zookeeper.tree.nodes.get(path)
        if node is None:
            yield f"{topic}-{number} was never led"
            continue
        state = json_of(node.data)
        if state_of(node.data, node.version) is None:
            yield f"the state of {topic}-{number} is malformed"
            continue
        key = (topic, int(number))
        states[key] = (state["leader"], state["leader_epoch"], tuple(state["isr"]), node.version)
        if state["leader"] < 0 or set(state["isr"]) != set(replicas):
            yield f"{topic}-{number} has ISR {state['isr']} of {replicas}, leader {state['leader']}"


async def come_to_rest(cluster: SimCluster, within_s: float) -> int | None:
    """Milliseconds until everything was as it should be; None when it never was."""
    begun_s = cluster.loop.time()
    while cluster.loop.time() - begun_s < within_s:
        for broker_id in cluster.broker_ids:  # a broker may still have been stopping when everything was healed
            cluster.start(broker_id)
        if next(unrest(cluster), None) is None:
            return round((cluster.loop.time() - begun_s) * 1000)
        await asyncio.sleep(REST_POLL_S)
    return None
