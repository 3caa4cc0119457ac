"""What a soak is judged by: what clients said, every record read again from offset 0, and ZooKeeper's own history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import structlog

from tests.integration.order import Order
from tests.kafka.cluster import Cluster, events_in
from tests.kafka.past import Dead, Past, Wait

TOPIC: Final = "soak"
OUR_ID: Final = 100
#: beside the detection of those who died: the second that may pass until ours has decided
UNDECIDED_MAX_MS: Final = 1_000
#: and what Kafka's controllers, which share two cores with all the others, get for an election and a failover
UNDECIDED_BY_OTHERS_MAX_MS: Final = 5_000
#: a request to a leader that died is given up after 30 s
SILENCE_MAX_S: Final = 45.0

log = structlog.get_logger()


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


def unconsumed(cluster: Cluster) -> set[tuple[int, int, int]]:
    """Acknowledged records that the consumer's group has not been given yet, by partition, offset and value."""
    sent = said_by(cluster, "VerifiableProducer", "producer_send_success")
    seen = said_by(cluster, "VerifiableConsumer", "record_data")
    return {_record(one) for one in sent} - {_record(one) for one in seen}


def _record(said: dict[str, Any]) -> tuple[int, int, int]:
    return said["partition"], said["offset"], int(said["value"])


def silence_s(cluster: Cluster) -> float:
    """The longest time between two acknowledgements."""
    at_ms = sorted(one["timestamp"] for one in said_by(cluster, "VerifiableProducer", "producer_send_success"))
    return max((after - before for before, after in pairwise(at_ms)), default=0) / 1_000


async def judge(cluster: Cluster, order: Order, dead: Sequence[Dead], stuck: Sequence[Dead]) -> list[str]:
    """What is wrong; nothing if all is well. `stuck`: while a bug of Kafka's kept its controller from deciding."""
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
    claims, past = order.claims(), Past.of(order.operations(), dead, stuck)
    epochs = [claim.controller_epoch for claim in claims]
    if epochs != list(range(epochs[0], epochs[0] + len(epochs))):
        wrong.append(f"controller epochs are {epochs}")
    wrong += past.wrong
    for of, max_ms, whose in (
        (_by_ours, UNDECIDED_MAX_MS, "ours had the seat"),
        (_by_others, UNDECIDED_BY_OTHERS_MAX_MS, "ours did not have the seat"),
    ):
        late = [f"{name} {of(wait)} ms" for name, wait in past.waits if of(wait) > max_ms]
        if late:
            wrong.append(f"without a live leader beyond detection and {max_ms} ms while {whose}: {', '.join(late)}")
    if (silent_s := silence_s(cluster)) > SILENCE_MAX_S:
        wrong.append(f"nothing was acknowledged for {silent_s:.0f} s")
    count = sum(map(len, acknowledged.values()))
    if not count:
        wrong.append("nothing was acknowledged")
    log.info(
        "soak.judged",
        acknowledged=count,
        refused=len(failed),
        controllers=len(claims),
        ours=sum(claim.broker_id == cluster.controller.controller_id for claim in claims),
        longest_without_leader_s=_longest_s(past, lambda wait: wait.total_ms),
        undecided_by_ours_s=_longest_s(past, _by_ours),
        undecided_by_others_s=_longest_s(past, _by_others),
        longest_silence_s=silent_s,
    )
    return wrong


def _longest_s(past: Past, of: Callable[[Wait], int]) -> float:
    return max((of(wait) for _, wait in past.waits), default=0) / 1_000


def _by_ours(wait: Wait) -> int:
    return wait.undecided_ms.get(OUR_ID, 0)


def _by_others(wait: Wait) -> int:
    """By Kafka's controllers, and while the seat was vacant."""
    return sum(wait.undecided_ms.values()) - _by_ours(wait)
