"""The log ends of a partition over real HTTP: each broker that keeps records is asked once for all waiting readers."""

from __future__ import annotations

from controller.api.v1.records import PartitionLogs, ReplicaLog
from controller.wire.bodies import Truncation
from tests.api.api_support import FakeHandle, View, asking

PATH = "/v1/partitions/orders/0/log"


class Logs:
    """Partition 0 of `orders`, of which broker 2 has lost something."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    async def logs_of(self, topic: str, partition: int) -> PartitionLogs | None:
        self.asked.append((topic, partition))
        if (topic, partition) != ("orders", 0):
            return None
        replicas = [ReplicaLog(1, True, True, 0, 7, 5, 0), ReplicaLog(2, False, False, None, 3, None, 4, "gone")]
        return PartitionLogs(True, 1, 5, 2, replicas, [Truncation(2, 1_000, 1, 5, 3, 7, 2, 4)])


async def test_the_log_ends_of_the_partition_that_is_asked_for_are_told() -> None:
    logs = Logs()
    async with asking(View(), FakeHandle(), logs=logs) as client, client.get(PATH) as response:
        body = await response.json()
    assert (body["kept"], body["leader"], body["leader_epoch"], body["records_lost"]) == (True, 1, 5, 2)
    assert [(one["log_end"], one["high_watermark"], one["lag"]) for one in body["replicas"]] == [
        (7, 5, 0),
        (3, None, 4),
    ]
    assert body["truncations"] == [
        {
            "broker_id": 2,
            "at_ms": 1_000,
            "leader": 1,
            "leader_epoch": 5,
            "start": 3,
            "end": 7,
            "committed": 2,
            "records_epoch": 4,
        }
    ]


async def test_however_many_ask_the_brokers_are_asked_once() -> None:
    logs = Logs()
    async with asking(View(), FakeHandle(), logs=logs) as client:
        for _ in range(5):
            async with client.get(PATH) as response:
                assert response.status == 200
    assert logs.asked == [("orders", 0)]


async def test_without_records_the_answer_says_so() -> None:
    async with asking(View(), FakeHandle()) as client, client.get(PATH) as response:
        assert (response.status, (await response.json())["kept"]) == (200, False)


async def test_of_a_partition_that_is_not_there_nothing_is_told() -> None:
    async with asking(View(), FakeHandle(), logs=Logs()) as client:
        async with client.get("/v1/partitions/orders/7/log") as response:
            assert (response.status, (await response.json())["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
        async with client.get("/v1/partitions/orders/x/log") as response:
            assert response.status == 400
