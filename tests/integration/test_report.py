"""The jobs' conclusions from the logs of a real cluster of ours equal a replay of ZooKeeper's own transaction log."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

import pytest

from sparkjobs.commands.inputs import inputs_of
from sparkjobs.report.verdict import summary_for
from sparkjobs.rules.rules import Answers
from sparkjobs.tables.silver import SilverEvent
from tests.faults.checker.evidence import history_of
from tests.faults.checker.replay import State, replay
from tests.integration.cluster import Cluster
from tests.spark.plain import answers_for
from tests.spark.reading import silver_of
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.slow]

#: a line is written after its commit, by a process of the same machine


class Stood(NamedTuple):
    """One version of one state znode, as ZooKeeper took it."""

    state: State
    zxid: int
    at_ms: int


Key = tuple[str, int, int]  # topic id, partition, version


def stood_in(cluster: Cluster) -> dict[Key, Stood]:
    """Every version of every state znode that a controller wrote."""
    folders = [broker.folder for broker in cluster.brokers.values()]
    history = history_of(cluster.servers, cluster.chroot, folders, session_timeout_ms=4_000)
    found = {}
    for step, _ in replay(history):
        for change in step.states:
            if change.after is not None:
                key = (change.topic_id or "", change.key[1], change.after.version)
                assert key not in found
                found[key] = Stood(change.after, step.commit.zxid, step.commit.at_ms)
    return found


def answers_of(cluster: Cluster) -> tuple[list[SilverEvent], Answers]:
    logs = [f"{broker.folder}/state-change.log*" for broker in cluster.brokers.values()]
    silver = silver_of(inputs_of(logs, "ours", [], None))
    assert {row.reason for row in silver.ingested.quarantine} <= {"torn"}
    return silver.ingested.events, answers_for(silver.ingested.events)


async def go_through_it(cluster: Cluster) -> None:
    """Kill the controller, freeze the next, move replicas, kill a follower; whole again after each."""
    await cluster.start()
    assert await cluster.controller.create_topic("orders", partitions=6) == 201
    await cluster.whole()
    for harm in ("kill", "freeze"):
        old, claim = cluster.controller, cluster.order.claims()[-1]
        if harm == "kill":
            await old.kill()
        else:
            old.freeze()
        await cluster.claim_after(claim)
        await until(cluster.is_agreed, "the others were told")
        if harm == "kill":
            await old.start()
        else:
            old.thaw()
        await cluster.whole()
    plan = [{"topic": "orders", "partition": number, "replicas": [3, 1]} for number in range(3)]
    data = json.dumps({"version": 1, "partitions": plan}).encode()
    await cluster.zookeeper("create", "/admin/reassign_partitions", data)

    async def has_moved() -> bool:
        topic, _ = await cluster.zookeeper("get", "/brokers/topics/orders")
        assigned: dict[str, Any] = json.loads(topic)
        is_running = assigned["adding_replicas"] or assigned["removing_replicas"]
        return not is_running and assigned["partitions"]["0"] == [3, 1]

    await until(has_moved, "the replicas have moved")
    await cluster.whole()
    follower = next(broker for broker in cluster.running if broker is not cluster.controller)
    await follower.kill()
    await until(cluster.is_agreed, "the others were told")
    await follower.start()
    await cluster.whole()


@pytest.mark.long
async def test_every_version_of_every_state_is_told_once_and_as_zookeeper_holds_it(cluster: Cluster) -> None:
    await go_through_it(cluster)
    stood = stood_in(cluster)
    events, answers = answers_of(cluster)

    decided = Counter(
        (event.topic_id, event.partition, event.version)
        for event in {event.event_id: event for event in events}.values()
        if event.event == "partition_changed" and event.version is not None and event.reason != "found"
    )
    assert {key: times for key, times in decided.items() if times > 1} == {}
    rows: list[Any] = list(answers["isr_timeline"])
    told = {(row.topic_id, row.partition, row.version): row for row in rows}
    assert len(told) == len(rows)
    assert told.keys() == stood.keys()
    assert len(stood) > 30
    in_order = sorted(rows, key=lambda row: (row.topic_id, row.partition, row.version))
    assert in_order == sorted(in_order, key=lambda row: (row.topic_id, row.partition, row.from_ms))
    for key, one in stood.items():
        row, state = told[key], one.state
        assert (row.leader, row.leader_epoch, row.isr) == (state.leader, state.leader_epoch, state.isr), key
        assert row.controller_epoch == state.controller_epoch, key
        assert row.from_ms >= one.at_ms, key

    claims = cluster.order.claims()
    tenures: list[Any] = list(answers["controller_tenures"])
    assert [(t.controller_epoch, t.broker) for t in tenures] == [(c.controller_epoch, c.broker_id) for c in claims]
    for tenure, claim in zip(tenures, claims, strict=True):
        assert tenure.from_ms >= claim.at_ms
        assert tenure.from_lo_ms <= claim.at_ms or tenure is tenures[0]  # nothing bounds the first but its own line
    _assert_outages_are_those(answers, stood)


def _assert_outages_are_those(answers: Answers, stood: dict[Key, Stood]) -> None:
    """Leaders are replaced in one write, so no partition lacks one in ZooKeeper; this bounds the clients' outages."""
    assert [key for key, one in stood.items() if one.state.leader == -1] == []
    lost: list[Any] = list(answers["failovers"])
    assert len(lost) == 3
    replaced = {(key[1], one.state.leader_epoch) for key, one in stood.items() if one.state.leader_epoch}
    outages: list[Any] = list(answers["partition_outages"])
    assert outages
    for outage in outages:
        assert (outage.partition, outage.leader_epoch) in replaced
        assert outage.evidence == "inferred"
        assert outage.first_broker in {one.broker for one in lost}
    summary = dict(summary_for(answers))
    assert summary["Is it over?"].startswith("Yes")
    assert summary["Was data lost?"].startswith("No sign")
    assert list(answers["stuck_ops"]) == list(answers["illegal_transitions"]) == []
