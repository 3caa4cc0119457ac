"""The judgement of a soak: by its clients' output, every record read again from offset 0, and ZooKeeper's history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import structlog

from brokerstub.lab.kafka import TOOL_TIMEOUT_S
from tests.integration.order import Order
from tests.real_brokers.cluster import Cluster, events_in
from tests.real_brokers.past import Dead, Past, Wait

TOPIC: Final = "soak"
OUR_ID: Final = 100
#: records a second that the producer sends, and how many of them at least have to be acknowledged
RATE: Final = 100
ACKNOWLEDGED_MIN: Final = 0.8
#: beside the detection of deaths: the second that may pass until a controller has decided
UNDECIDED_MAX_MS: Final = 1_000
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
        within_s=TOOL_TIMEOUT_S + patience_ms / 1_000,
    )
    lines = [line.split("\t") for line in printed.splitlines() if line.startswith("Offset:")]
    return [(int(offset.partition(":")[2]), int(value)) for offset, value in lines]


def said_by(cluster: Cluster, client: str, name: str) -> list[dict[str, Any]]:
    """Returns the lines of one kind that a client printed."""
    printed = (cluster.directory / f"{client}.log").read_text(errors="replace")
    return [one for one in events_in(printed) if one["name"] == name]


def unconsumed(cluster: Cluster) -> set[tuple[int, int, int]]:
    """Acknowledged records that the consumer's group has not been given yet, by partition, offset and value."""
    sent = said_by(cluster, "VerifiableProducer", "producer_send_success")
    seen = said_by(cluster, "VerifiableConsumer", "record_data")
    return {_record(one) for one in sent} - {_record(one) for one in seen}


def _record(said: dict[str, Any]) -> tuple[int, int, int]:
    return said["partition"], said["offset"], int(said["value"])


class Produced(NamedTuple):
    """A producer's record from one moment to another: its acknowledgements with their times, and its refusals."""

    from_ms: int
    to_ms: int
    acknowledged_ms: Sequence[int]
    refused: int

    @property
    def silence_s(self) -> float:
        """The longest time without an acknowledgement, up to its end."""
        at_ms = [self.from_ms, *sorted(one for one in self.acknowledged_ms if one < self.to_ms), self.to_ms]
        return max(after - before for before, after in pairwise(at_ms)) / 1_000

    def faults(self) -> list[str]:
        found, count = [], len(self.acknowledged_ms)
        wanted = ACKNOWLEDGED_MIN * RATE * (self.to_ms - self.from_ms) / 1_000
        if self.silence_s > SILENCE_MAX_S:
            found.append(f"nothing was acknowledged for {self.silence_s:.0f} s")
        if count < wanted:
            found.append(f"only {count} records were acknowledged, and not {wanted:.0f}")
        if self.refused:
            found.append(f"{self.refused} records were refused, though there was time to try again")
        return found


async def judge(
    cluster: Cluster,
    order: Order,
    dead: Sequence[Dead],
    stuck: Sequence[Dead],
    times_ms: tuple[int, int],
    *,
    leaders_write: bool = False,
) -> list[str]:
    """Returns the violations; none if all is well. `stuck`: while a bug of Kafka's kept its controller from deciding;
    `times_ms`: when the producer began, and when it was asked to end."""
    sent = said_by(cluster, "VerifiableProducer", "producer_send_success")
    failed = said_by(cluster, "VerifiableProducer", "producer_send_error")
    produced = Produced(*times_ms, [one["timestamp"] for one in sent], len(failed))
    wrong = [*produced.faults(), *await _of_records(cluster, sent)]
    claims, past = order.claims(), Past.of(order.operations(), dead, stuck, leaders_write=leaders_write)
    epochs = [claim.controller_epoch for claim in claims]
    if epochs != list(range(epochs[0], epochs[0] + len(epochs))):
        wrong.append(f"controller epochs are {epochs}")
    wrong += past.wrong
    for of, whose in ((_by_ours, "ours had the seat"), (_by_others, "ours did not have the seat")):
        late = [f"{name} {of(wait)} ms" for name, wait in past.waits if of(wait) > UNDECIDED_MAX_MS]
        if late:
            wrong.append(
                f"without a live leader beyond detection and {UNDECIDED_MAX_MS} ms while {whose}: {', '.join(late)}"
            )
    log.info(
        "soak.judged",
        acknowledged=len(sent),
        refused=len(failed),
        controllers=len(claims),
        ours=sum(claim.broker_id == cluster.controller.controller_id for claim in claims),
        longest_without_leader_s=_longest_s(past, lambda wait: wait.total_ms),
        undecided_by_ours_s=_longest_s(past, _by_ours),
        undecided_by_others_s=_longest_s(past, _by_others),
        longest_silence_s=produced.silence_s,
    )
    return wrong


async def _of_records(cluster: Cluster, sent: Sequence[dict[str, Any]]) -> list[str]:
    """Each acknowledged record is where it was said to be, once and in order."""
    wrong = []
    acknowledged: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for one in sent:
        number, *record = _record(one)
        acknowledged[number].add((record[0], record[1]))
    for number, acked in sorted(acknowledged.items()):
        found = await records_in(cluster, number, len(acked))
        values = [value for _, value in found]
        if len(set(values)) != len(values):
            wrong.append(f"{TOPIC}-{number}: {len(values) - len(set(values))} records are there twice")
        if missing := acked - set(found):
            wrong.append(f"{TOPIC}-{number}: {len(missing)} acknowledged records are not where they were: {missing}")
        if values != sorted(values):
            wrong.append(f"{TOPIC}-{number}: records are out of order")
    return wrong


def _longest_s(past: Past, of: Callable[[Wait], int]) -> float:
    return max((of(wait) for _, wait in past.waits), default=0) / 1_000


def _by_ours(wait: Wait) -> int:
    return wait.undecided_ms.get(OUR_ID, 0)


def _by_others(wait: Wait) -> int:
    """By Kafka's controllers, and while the seat was vacant."""
    return sum(wait.undecided_ms.values()) - _by_ours(wait)
