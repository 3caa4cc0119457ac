"""One id from a request through the znode writes and the RPCs into every broker's log."""

from __future__ import annotations

import json

import aiohttp
import pytest

from tests.faults.checker.evidence import BROKERS_KINDS
from tests.integration.cluster import Cluster
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.slow]


async def test_the_id_of_an_answer_is_in_every_log_that_the_request_has_left_a_trace_in(cluster: Cluster) -> None:
    await cluster.start()
    leader = cluster.controller
    body = {"name": "orders", "partitions": 3, "replication_factor": 3}
    standby = next(broker for broker in cluster.brokers.values() if broker is not leader)
    forward = {"Klamm-Forward": "1"}
    async with aiohttp.ClientSession() as client:
        async with client.post(f"{standby.url}/v1/topics", json=body, headers=forward) as response:
            assert response.status == 201
            event_id, request_id = response.headers["Klamm-Event-Id"], response.headers["Klamm-Request-Id"]
        async with client.post(f"{leader.url}/v1/topics", json={**body, "name": "more", "partitions": 0}) as response:
            assert response.status == 400
            refused_id = response.headers["Klamm-Event-Id"]
    assert event_id.startswith(f"{cluster.order.claims()[-1].controller_epoch}-")
    await cluster.whole()

    told = [
        line
        for text in (leader.folder / "state-change.log").read_text().splitlines()
        for line in (json.loads(text),)
        if line.get("event_id") == event_id and line["kind"] not in BROKERS_KINDS
    ]
    written = [line for line in told if line["kind"] != "move"]
    moved = [(line["source"], line["target"]) for line in told if line["kind"] == "move"]
    assert ("NonExistentPartition", "NewPartition") in moved
    assert ("NewPartition", "OnlinePartition") in moved
    assert sorted(line["partition"] for line in written if line["kind"] == "partition") == [0, 1, 2]
    assert all(line["zxid"] > 0 for line in written)

    [answered] = [line for line in leader.log("request.answered") if line["event_id"] == event_id]
    assert (answered["method"], answered["path"], answered["status"]) == ("POST", "/v1/topics", 201)
    assert answered["request_id"] == request_id
    [refused] = [line for line in leader.log("request.answered") if line["event_id"] == refused_id]
    assert refused["status"] == 400
    for broker in (standby, leader):  # the broker that was asked, and the one that decided
        [audited] = [line for line in broker.log("mutation.audited") if line["event_id"] == event_id]
        assert audited["request_id"] == request_id
    [settled] = [line for line in leader.log("event.settled") if line["event_id"] == event_id]
    assert settled["kind"] == "CreateTopicAsked"
    assert settled["newest_zxid"] == max(line["zxid"] for line in written)

    for broker in cluster.brokers.values():
        await until(
            lambda broker=broker: [line for line in broker.rpcs() if line.get("event_id") == event_id],
            f"broker {broker.broker_id} has logged the requests of {event_id}",
        )
