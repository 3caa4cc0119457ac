"""The cost of a changed partition in clusters of different sizes: `python -m tests.bench.scaling [--changed 3000]`.

The same number of partitions changes in each: brokers that host so many, and nothing else, die one after the other. The
time is the CPU's, for the controller's own work between a fact and the bytes of its requests: decide, project, pack,
believe, tell, record. ZooKeeper and brokers are in `python -m tests.bench`.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Iterator

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import Committed
from controller.core.decide.dispatch import decide
from controller.core.events import BrokersSeen, StateFact, TopicFact
from controller.core.model import Assignment, Broker, Leadership
from controller.core.project.lines import Stamp, lines_for
from controller.core.project.requests import Telling, requests_for
from controller.loop.planned_writes import ops_for, planned_writes_for
from controller.tell.dialects import Request
from controller.tell.dialects.http import encode_states
from controller.wire.bodies import LEADER_AND_ISR, UPDATE_METADATA, encode
from controller.zookeeper.codec import pack_transaction
from tests.bench.world import BROKERS, replicas_of, topic_id_of

SIZES = (10_000, 100_000, 1_000_000)
PARTITIONS_PER_TOPIC = 100
DEATHS = 3
CHANGES_PER_TRANSACTION = 500
GOAL = 1.5


def the_cluster(partitions: int, changed: int) -> Cluster:
    """Each of DEATHS further brokers has the first replica of `changed` partitions, the same ones in each cluster."""
    facts, states = [], []
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        name = f"topic-{number}"
        assignment = {}
        for partition in range(PARTITIONS_PER_TOPIC):
            at = number * PARTITIONS_PER_TOPIC + partition
            replicas = replicas_of(name, partition)
            if at < changed * DEATHS:
                replicas = (BROKERS + at % DEATHS, *replicas[1:])
            assignment[partition] = Assignment(replicas)
            states.append(StateFact(name, partition, Leadership(replicas[0], 0, replicas, 1), 0, 5))
        facts.append(TopicFact(name, 0, 5, 5, topic_id_of(name), assignment))
    cluster = Cluster(controller_id=0, controller_epoch=2)
    cluster.load(facts, states)
    settle(cluster, BrokersSeen({b: a_broker(b) for b in range(BROKERS + DEATHS)}, 6))
    return cluster


def a_broker(broker_id: int) -> Broker:
    return Broker(broker_id, 100 + broker_id, "h", 1, (f"HTTP://127.0.0.1:{8081 + broker_id}",))


def settle(cluster: Cluster, event: BrokersSeen) -> int:
    """As the loop does, but for the waiting; returns how many changes that were."""
    steps: dict[int, list[Committed]] = {}
    for piece in decide(cluster, event, 0, 1):
        steps.setdefault(piece.step, []).extend(Committed(change, 1, event.zxid) for change in piece.changes)
    count = 0
    for number in sorted(steps):
        committed = steps[number]
        planned = list(planned_writes_for(cluster, [one.change for one in committed], {}))
        for start in range(0, len(planned), CHANGES_PER_TRANSACTION):
            pack_transaction(ops_for(planned[start : start + CHANGES_PER_TRANSACTION])[0])
        cluster.apply(committed)
        for request in told(requests_for(cluster, committed)):
            encode_states(request)
        encode(list(lines_for(cluster, committed, Stamp(0, "bench", 0, 2, "2-1"))))
        count += len(planned)
    return count


def told(telling: Telling) -> Iterator[Request]:
    view = Request(path="", brokers=telling.brokers, live_ids=telling.live_ids, row_cache={})
    for rows in telling.leaderships.values():
        yield Request(path=LEADER_AND_ISR, brokers=(), live_ids=view.live_ids, rows=rows, row_cache=view.row_cache)
    yield Request(
        path=UPDATE_METADATA, brokers=(), live_ids=view.live_ids, rows=telling.metadata, row_cache=view.row_cache
    )


def microseconds_per_change(partitions: int, changed: int) -> list[float]:
    cluster = the_cluster(partitions, changed)
    gc.collect()
    gc.freeze()
    taken = []
    for gone in range(DEATHS):
        live = range(BROKERS + gone + 1, BROKERS + DEATHS)
        event = BrokersSeen({b: a_broker(b) for b in (*range(BROKERS), *live)}, 10 + gone)
        started = time.process_time()
        count = settle(cluster, event)
        taken.append((time.process_time() - started) / count * 1_000_000)
        assert count == changed, count
    gc.unfreeze()
    return taken


@click.command()
@click.option("--changed", default=3_000, show_default=True, help="Partitions that change, in each cluster.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def main(changed: int, output: str) -> None:
    """Whether a changed partition costs more where there are more that do not change."""
    console = Console(stderr=True)
    sizes = {
        size: microseconds_per_change(size, changed)
        for size in track(SIZES, "clusters", console=console, transient=True)
    }
    middles = {size: statistics.median(taken) for size, taken in sizes.items()}
    worst = max(middles.values()) / min(middles.values())
    verdict = f"{worst:.2f} times at most, {'within' if worst <= GOAL else 'missing'} the goal of {GOAL} times"
    if output == "json":
        result = {"changed": changed, "microseconds_per_change": sizes, "times": worst, "goal": GOAL}
        click.echo(json.dumps({**result, "is_within": worst <= GOAL}))
        return
    table = Table(title=f"{changed:,} partitions change", caption=verdict)
    for column in ("partitions in the cluster", "CPU time per changed partition, µs", "times the least"):
        table.add_column(column, justify="right")
    for size, taken in sizes.items():
        spread = f"{middles[size]:.1f} ({min(taken):.1f}-{max(taken):.1f})"
        table.add_row(f"{size:,}", spread, f"{middles[size] / min(middles.values()):.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
