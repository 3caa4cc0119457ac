"""A leader asks for another ISR, on real processes: the answer is the controller's, and the same twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from brokerstub.lab.zookeeper import ZooKeeperServer
from controller.core.codes import Code
from tests.faults.checker.history import BrokerRequest, IsrProposal
from tests.integration.cluster import REQUEST_TIMEOUT_MS, Broker, now_ms
from tests.integration.duties import a_duty_cluster, a_standby, as_json, topic_id_of, with_topics
from tests.waiting import until

pytestmark = pytest.mark.java


async def test_an_isr_asked_for_twice_is_granted_once_and_a_standby_has_no_verdict(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    async with a_duty_cluster(zookeeper, tmp_path) as cluster:
        cluster.brokers[3].hold("orders", 0)  # it does not come back meanwhile
        await with_topics(cluster, orders=[[1, 2, 3]])
        epochs = {broker_id: cluster.order.registrations(broker_id)[-1].zxid for broker_id in (1, 2)}
        before = (await cluster.states())["orders", 0]
        topic_id = await topic_id_of(cluster, "orders")
        members = [[broker_id, epoch] for broker_id, epoch in epochs.items()]
        row = [0, before.leader_epoch, before.version, 0, members]
        question = as_json({"topics": [{"topic_id": topic_id, "partitions": [row]}]})
        proposal = IsrProposal(topic_id, 0, tuple(epochs.items()), None, before.version, before.leader_epoch)
        # asked in its leader's place, by none of the ways that are listened to
        cluster.witness.broker_requests.append(
            BrokerRequest(now_ms(), "alter-partition", 1, epochs[1], None, (proposal,))
        )

        async def asked(broker: Broker) -> dict[str, Any]:
            headers = {"Klamm-Sender": f"1 {epochs[1]}", "Content-Type": "application/json"}
            url = f"{broker.url}/rpc/v1/alter-partition"

            async def verdict() -> bytes | None:
                status, body = await cluster.http.post(url, question, headers, REQUEST_TIMEOUT_MS)
                assert status in (200, 503), body
                return body if status == 200 else None  # 503: later, nothing was looked at

            answer: dict[str, Any] = json.loads(await until(verdict, "it is asked when it can answer"))
            return answer

        assert (await asked(a_standby(cluster)))["error_code"] == Code.NOT_CONTROLLER
        assert (await cluster.states())["orders", 0] == before
        for _ in range(2):
            (granted,) = (await asked(cluster.controller))["topics"][0]["partitions"]
            assert granted == [0, Code.NONE, 1, before.leader_epoch, [1, 2], before.version + 1, 0]
        await until(cluster.is_agreed, "every live broker was told")
        assert (await cluster.states())["orders", 0].isr == (1, 2)
