"""`/metrics`: Kafka's timers as quantiles, and the ISRs that are too small."""

from __future__ import annotations

from controller.statelog.metrics import Timings
from controller.tell.outbox import OutboxStatus
from tests.api.test_metrics import (
    CHANNELS,
    HURT,
    REPLICAS,
    a_standby_handle,
    an_active_handle,
    scraped,
    value,
)


async def test_kafkas_timers_are_exposed_as_quantiles_with_their_counts() -> None:
    handle = an_active_handle()
    for took_ms in range(1, 101):
        handle.meters.handled[2].add(took_ms)
    handle.meters.queued.add(7)
    handle.meters.zookeeper_answers.add(3)
    waits = Timings()
    waits.add(11)
    handle.owed = {2: OutboxStatus(102, 30, 1_500, None, waits)}
    samples = await scraped(HURT, handle)
    elections = "kafka_controller_controllerstats_leaderelectionrateandtimems"
    assert [value(samples, elections, quantile=one) for one in ("0.5", "0.95", "0.999")] == [51, 96, 100]
    assert value(samples, f"{elections}_count") == 100
    others = {
        "kafka_controller_controllereventmanager_eventqueuetimems": 7,
        "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms": 3,
    }
    assert {name: value(samples, name, quantile="0.99") for name in others} == others
    assert value(samples, CHANNELS + "requestrateandqueuetimems", broker_id="2", quantile="0.5") == 11
    for state in ("controllerchange", "topicdeletion", "autoleaderbalance", "controlledshutdown", "isrchange"):
        assert value(samples, f"kafka_controller_controllerstats_{state}rateandtimems_count") == 0


async def test_too_small_isrs_are_counted_against_the_configuration_in_force() -> None:
    handle = an_active_handle()
    assert handle.cluster is not None
    names = [REPLICAS + "underminisrpartitioncount", REPLICAS + "atminisrpartitioncount"]
    assert [value(await scraped(HURT, handle), name) for name in names] == [0, 1]  # of three that are led, one has one
    handle.cluster.duties.topic_configs["orders"] = {"min.insync.replicas": "2"}
    assert [value(await scraped(HURT, handle), name) for name in names] == [1, 1]
    handle.cluster.duties.broker_configs["<default>"] = {"min.insync.replicas": "3"}
    assert [value(await scraped(HURT, handle), name) for name in names] == [2, 1]
    assert [value(await scraped(HURT, a_standby_handle()), name) for name in names] == [0, 0]
