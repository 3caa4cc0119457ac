"""Decides whether a healed cluster has come to rest, and records how it ended: every view, the active controller, the
contents of disks.

It asks ZooKeeper and every broker. It changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from kazoo.exceptions import KazooException, NoNodeError

from tests.faults.chaos.target_cluster import Field
from tests.faults.checker.history import End, json_of
from tests.integration.cluster import Broker
from tests.integration.duties import on_disk

#: a process reports this about itself for ten minutes more
LOST_LINES = "of the state-change log could not be written"


async def unrest(field: Field) -> AsyncIterator[str]:
    """Yield each deviation from the state of a cluster at rest."""
    cluster = field.cluster
    if away := [broker_id for broker_id, broker in cluster.brokers.items() if broker.state != "running"]:
        yield f"brokers {away} do not run"
        return
    for broker in cluster.running:
        verdict = await broker.get("/healthz/cluster")
        if verdict is None or not all(LOST_LINES in one for one in verdict["reasons"]):
            yield f"broker {broker.broker_id} says {verdict}"
    active_ids = [broker.broker_id for broker in cluster.running if await _is_active(broker)]
    if len(active_ids) != 1:
        yield f"active: {active_ids}"
    try:
        for path in ("/admin/delete_topics", "/klamm/draining", "/isr_change_notification"):
            with suppress(NoNodeError):
                if left := await cluster.zookeeper("get_children", path):
                    yield f"{path} has {left}"
        for path in ("/admin/reassign_partitions", "/admin/preferred_replica_election"):
            if await cluster.zookeeper("exists", path):
                yield f"{path} is left"
        if not await cluster.is_agreed():
            yield "brokers were told otherwise than ZooKeeper has it"
        for broker_id, names in (await _strays(field)).items():
            yield f"broker {broker_id} holds {names}"
    except KazooException as error:
        yield f"ZooKeeper: {error!r}"


async def end_of(field: Field, rested_ms: int | None, allowed_s: float) -> End:
    """As the checker wants it."""
    views = {broker.broker_id: {key: (one.leader, one.leader_epoch, one.isr, one.version)
                                for key, one in (await broker.told()).items()}
             for broker in field.cluster.running}  # fmt: skip
    active_ids = [broker.broker_id for broker in field.cluster.running if await _is_active(broker)]
    strays = await _strays(field) if rested_ms is not None else {}
    return End(views, active_ids, strays, rested_ms, round(allowed_s * 1000))


async def _is_active(broker: Broker) -> bool:
    said = await broker.get("/v1/controller")
    return said is not None and said["phase"] == "active" and said["broker_id"] == broker.broker_id


async def _strays(field: Field) -> dict[int, list[str]]:
    """Replicas on disks that no assignment names, and that were not set aside."""
    read = field.cluster.zookeeper
    assigned: set[tuple[int, str | None, int]] = set()
    for topic in await read("get_children", "/brokers/topics"):
        with suppress(NoNodeError):
            said: Any = json_of((await read("get", f"/brokers/topics/{topic}"))[0])
            for number, replicas in said["partitions"].items():
                assigned |= {(broker_id, said.get("topic_id"), int(number)) for broker_id in replicas}
    found: dict[int, list[str]] = {}
    for broker_id, broker in field.cluster.brokers.items():
        names = [f"{topic_id}-{number}" for (topic_id, number), is_aside in on_disk(broker).items()
                 if not is_aside and (broker_id, topic_id, number) not in assigned]  # fmt: skip
        if names:
            found[broker_id] = names
    return found
