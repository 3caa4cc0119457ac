"""What a soak is judged by: what clients said, every record read again from offset 0, and ZooKeeper's own history."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from typing import Any, Final

import structlog

from tests.integration.order import Order
from tests.kafka.cluster import Cluster, events_in

TOPIC: Final = "soak"
#: detection: the longest session (ours, 6 s) and what ZooKeeper adds to it; and a second
LEADERLESS_MAX_S: Final = 6.0 + 1.0 + 1.0
WATCH_S: Final = 0.1

log = structlog.get_logger()


class Watcher:
    """How long partitions were without a live leader, as ZooKeeper says it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._since: dict[int, float] = {}
        self.longest_s = 0.0
        self.is_over = False

    async def run(self) -> None:
        while not self.is_over:
            now = time.monotonic()
            live, states = await asyncio.to_thread(self._read)
            for number, state in states.items():
                since = self._since.setdefault(number, now)
                self.longest_s = max(self.longest_s, now - since)
                if state["leader"] in live:
                    del self._since[number]
            await asyncio.sleep(WATCH_S)

    def _read(self) -> tuple[set[int], dict[int, dict[str, int]]]:
        live = {one for one in (1, 2, 3) if self._cluster.is_registered(one)}
        return live, dict(self._cluster.states(TOPIC))


async def records_in(cluster: Cluster, number: int, count: int) -> list[tuple[int, int]]:
    """Offset and value of every record of one partition, read from offset 0 on."""
    found: list[tuple[int, int]] = []
    for patience_ms in (8_000, 40_000):  # a machine that is busy needs longer before the first record
        if len(found) < max(count, 1):
            found = await _read(cluster, number, patience_ms)
    assert len(found) >= count, f"{TOPIC}-{number} has {len(found)} records, and {count} were acknowledged"
    return found


async def _read(cluster: Cluster, number: int, patience_ms: int) -> list[tuple[int, int]]:
    printed = await cluster.tool(
        *("consumer.ConsoleConsumer", "--topic", TOPIC, "--partition", str(number), "--offset", "0"),
        *("--property", "print.offset=true", "--timeout-ms", str(patience_ms)),
    )
    lines = [line.split("\t") for line in printed.splitlines() if line.startswith("Offset:")]
    return [(int(offset.partition(":")[2]), int(value)) for offset, value in lines]


def said_by(cluster: Cluster, client: str, name: str) -> list[dict[str, Any]]:
    """What a client printed of one kind."""
    printed = (cluster.directory / f"{client}.log").read_text(errors="replace")
    return [one for one in events_in(printed) if one["name"] == name]


def unconsumed(cluster: Cluster) -> set[tuple[int, int]]:
    """Acknowledged records that the consumer's group has not been given yet, by partition and offset."""
    sent = said_by(cluster, "VerifiableProducer", "producer_send_success")
    seen = said_by(cluster, "VerifiableConsumer", "record_data")
    return {(one["partition"], one["offset"]) for one in sent} - {(one["partition"], one["offset"]) for one in seen}


def idle_writes(order: Order) -> list[str]:
    """States that were written again with nothing changed but the writer, by ZooKeeper's own history."""
    last: dict[str, dict[str, Any]] = {}
    found = []
    for one in order.operations():
        if one.path is None or not one.path.endswith("/state") or one.kind not in ("create", "set", "delete"):
            continue
        told = json.loads(one.data) if one.data else {}
        said = {key: value for key, value in told.items() if key != "controller_epoch"}
        if one.kind == "set" and last.get(one.path) == said:
            found.append(f"{one.path} at zxid {one.zxid:#x}, by the controller of epoch {told['controller_epoch']}")
        last[one.path] = said
    return found


async def judge(cluster: Cluster, watcher: Watcher, order: Order) -> list[str]:
    """What is wrong; nothing if all is well."""
    wrong = []
    acknowledged: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for one in said_by(cluster, "VerifiableProducer", "producer_send_success"):
        acknowledged[one["partition"]].append((one["offset"], int(one["value"])))
    failed = said_by(cluster, "VerifiableProducer", "producer_send_error")
    for number, acked in sorted(acknowledged.items()):
        found = await records_in(cluster, number, len(acked))
        values = [value for _, value in found]
        if len(set(values)) != len(values):
            wrong.append(f"{TOPIC}-{number}: {len(values) - len(set(values))} records are there twice")
        if missing := set(acked) - set(found):
            wrong.append(f"{TOPIC}-{number}: {len(missing)} acknowledged records are not where they were: {missing}")
        if values != sorted(values):
            wrong.append(f"{TOPIC}-{number}: records are out of order")
    claims = order.claims()
    epochs = [claim.controller_epoch for claim in claims]
    if epochs != list(range(epochs[0], epochs[0] + len(epochs))):
        wrong.append(f"controller epochs are {epochs}")
    wrong += [f"written with nothing new: {one}" for one in idle_writes(order)]
    if watcher.longest_s > LEADERLESS_MAX_S:
        wrong.append(f"a partition had no live leader for {watcher.longest_s:.1f} s, more than {LEADERLESS_MAX_S} s")
    count = sum(map(len, acknowledged.values()))
    if not count:
        wrong.append("nothing was acknowledged")
    log.info(
        "soak.judged",
        acknowledged=count,
        refused=len(failed),
        controllers=len(claims),
        ours=sum(claim.broker_id == cluster.controller.controller_id for claim in claims),
        longest_without_leader_s=round(watcher.longest_s, 2),
    )
    return wrong
