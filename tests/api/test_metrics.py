"""`/metrics`: the names that existing dashboards use, with values of this process and of its cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import ClientSession
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from controller.base.config import Limits
from controller.core.belief.duties import Deletion, Drain
from controller.core.changes.cluster import SubjectParked, WriteRefused
from controller.core.decide.dispatch import HANDLERS
from controller.core.events import AlterPartitionAsked
from controller.core.model import Broker, BrokerRefusal
from controller.core.states import ReplicaStatus
from controller.statelog.metrics import CONTROLLER_STATES, Meters
from controller.tell.outbox import OutboxStatus
from controller.term.term import TermRecord
from tests.api.api_support import (
    FakeHandle,
    View,
    a_broker,
    a_row,
    a_topic,
    asking,
)
from tests.builders import a_cluster
from tests.loop.admin_site import (
    a_site,
    belief,
    leading,
    proposal_for,
)
from tests.support.harness import state_of, until
from tests.waiting import DEADLINE_S

CONTROLLER = "kafka_controller_kafkacontroller_"
CHANNELS = "kafka_controller_controllerchannelmanager_"
REPLICAS = "kafka_server_replicamanager_"
#: 1 is offline; 2 lacks a replica and is led by its second one
ORDERS = a_topic("orders", a_row(0, 1, [1, 2], [1, 2]), a_row(1, -1, [3], [3, 1]), a_row(2, 1, [1], [2, 1]))
PAYMENTS = a_topic("payments", a_row(0, 2, [2, 1], [2, 1]))
HURT = View(ORDERS, PAYMENTS, brokers=[a_broker(1), a_broker(2, "draining"), a_broker(3, "gone")])

Samples = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


def registered(meters: Meters, name: str) -> float | None:
    return meters.registry.get_sample_value(name)


def an_active_handle() -> FakeHandle:
    """Of a controller that deletes two topics, one of which waits."""
    handle = FakeHandle()
    handle.seat = None  # as last read: before it was taken
    cluster = handle.cluster = a_cluster(live=(1, 2), old=[[1, 2]], older=[[1, 2]])
    cluster.gone = {3: Broker(3, 103, "127.0.0.1", 1, ())}
    deleted, ineligible = ReplicaStatus.DELETION_SUCCESSFUL, ReplicaStatus.DELETION_INELIGIBLE
    cluster.duties.deletions = {
        "old": Deletion(replicas={(0, 1): deleted}),
        "older": Deletion(replicas={(0, 1): ineligible}, waits_for="broker 3 is gone"),
    }
    return handle


def a_standby_handle(seat: tuple[int, int] | None = (2, 77)) -> FakeHandle:
    handle = FakeHandle()
    handle.stand_by(seat)
    return handle


async def samples_of(client: ClientSession) -> Samples:
    async with client.get("/metrics") as response:
        assert response.status == 200
        families = text_string_to_metric_families(await response.text())
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


async def scraped(view: View, handle: FakeHandle, limits: Limits | None = None) -> Samples:
    async with asking(view, handle, limits or Limits()) as client:
        return await samples_of(client)


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, tuple(sorted(labels.items()))))


# ---------------------------------------------------------------------- Kafka's names

GAUGES = {
    "activecontrollercount": 1,
    "offlinepartitionscount": 1,
    "preferredreplicaimbalancecount": 2,
    "controllerstate": 0,
    "globaltopiccount": 2,
    "globalpartitioncount": 4,
    "topicstodeletecount": 2,
    "topicsineligibletodeletecount": 1,
    "replicastodeletecount": 3,
    "replicasineligibletodeletecount": 1,
    "activebrokercount": 2,
    "fencedbrokercount": 1,
}


async def test_the_controller_exposes_kafkas_gauges_and_a_standby_zeros() -> None:
    active, standby = await scraped(HURT, an_active_handle()), await scraped(HURT, a_standby_handle())
    assert {name: value(active, CONTROLLER + name) for name in GAUGES} == GAUGES
    assert {name: value(standby, CONTROLLER + name) for name in GAUGES} == dict.fromkeys(GAUGES, 0)
    holder = "kafka_server_metadataloader_currentcontrollerid"
    assert (value(active, holder), value(standby, holder)) == (1, 2)
    assert value(await scraped(HURT, a_standby_handle(None)), holder) == -1


async def test_every_broker_exposes_its_own_replicas() -> None:
    for handle in (an_active_handle(), a_standby_handle()):
        samples = await scraped(HURT, handle)
        assert value(samples, REPLICAS + "leadercount") == 2
        assert value(samples, REPLICAS + "partitioncount") == 4
        assert value(samples, REPLICAS + "underreplicatedpartitions") == 1


async def test_queues_are_exposed_for_each_broker_and_together() -> None:
    handle = an_active_handle()
    handle.inbox_depth = 5
    handle.owed = {1: OutboxStatus(101, 0, 0, "4-1"), 2: OutboxStatus(102, 30, 1_500, None)}
    samples = await scraped(HURT, handle)
    assert value(samples, CHANNELS + "totalqueuesize") == 30
    assert [value(samples, CHANNELS + "queuesize", broker_id=one) for one in ("1", "2")] == [0, 30]
    assert [value(samples, "klamm_outbox_age_seconds", broker_id=one) for one in ("1", "2")] == [0, 1.5]
    assert value(samples, "kafka_controller_controllereventmanager_eventqueuesize") == 5


def test_every_event_has_kafkas_number_of_the_controller_state() -> None:
    assert {event.__name__ for event in HANDLERS} - set(CONTROLLER_STATES) == {"TermTold"}
    assert set(CONTROLLER_STATES) <= {event.__name__ for event in HANDLERS}


# ---------------------------------------------------------------------- kafka_exporter's names


async def test_the_controller_exposes_a_series_for_each_partition() -> None:
    samples = await scraped(HURT, an_active_handle())
    names = ("leader", "leader_is_preferred", "replicas", "in_sync_replica", "under_replicated_partition")
    found = {
        number: [value(samples, f"kafka_topic_partition_{name}", topic="orders", partition=number) for name in names]
        for number in ("0", "1", "2")
    }
    assert found == {"0": [1, 1, 2, 2, 0], "1": [-1, 0, 2, 1, 1], "2": [1, 0, 2, 1, 1]}
    assert value(samples, "kafka_topic_partitions", topic="orders") == 3
    assert value(samples, "kafka_brokers") == 2
    assert value(samples, "kafka_broker_info", id="2", address="http://127.0.0.1:8082") == 1
    assert value(samples, "klamm_partition_series_left_out") == 0


async def test_a_standby_leaves_them_out_so_that_sums_count_nothing_twice() -> None:
    names = {name for name, _ in await scraped(HURT, a_standby_handle())}
    assert not {name for name in names if name.startswith(("kafka_topic_", "kafka_broker"))}


async def test_over_the_limit_no_partition_has_a_series_and_one_metric_says_so() -> None:
    samples = await scraped(HURT, an_active_handle(), Limits(partitions_per_exposition=3))
    assert not {name for name, _ in samples if name.startswith("kafka_topic_")}
    assert value(samples, "klamm_partition_series_left_out") == 1
    assert value(samples, CONTROLLER + "globalpartitioncount") == 4


async def test_a_changed_partition_is_seen_by_the_next_scrape() -> None:
    view = View(PAYMENTS)
    async with asking(view, an_active_handle()) as client:
        labels = {"topic": "payments", "partition": "0"}
        assert value(await samples_of(client), "kafka_topic_partition_leader", **labels) == 2
        view.put(a_topic("payments", a_row(0, 1, [2, 1], [2, 1])))
        assert value(await samples_of(client), "kafka_topic_partition_leader", **labels) == 1


# ---------------------------------------------------------------------- ours


async def test_undone_work_and_the_last_failover_are_exposed() -> None:
    handle = an_active_handle()
    assert handle.cluster is not None
    handle.cluster.parked["topic payments"] = "a bug"
    for target in ("/brokers/topics/users", "/brokers/topics/users/partitions/0/state", "/klamm/brokers/2"):
        subject = "topic users" if "users" in target else "node /klamm/brokers/2"
        gone = SubjectParked(subject, "only its name counts")
        handle.cluster.refused[target] = WriteRefused(target, subject, gone, "write", target, -102, 0, 1_000)
    handle.cluster.unreadable.update({("logs", None): ("not JSON", 1), ("logs", 2): ("not JSON", 1)})
    handle.cluster.reassigning = {("orders", 0)}
    handle.cluster.duties.drains = {2: Drain(102, is_shutdown=False)}
    handle.cluster.brokers = {2: Broker(2, 102, "h", 1, ()), 3: Broker(3, 103, "h", 1, ())}
    refusal = BrokerRefusal("LeaderAndIsr", 103, 4, -1, 0, 0)
    handle.cluster.duties.refusals = {3: {"orders": {0: refusal, 1: refusal}, "payments": {0: refusal}}}
    handle.lines_lost = 7
    handle.terms = [
        TermRecord(3, 2, 1, 2, "session gone", {"claimed": 1.0}),
        TermRecord(4, 1, 3, None, None, {"claimed": 20.0, "acknowledged": 450.0}),
    ]
    samples = await scraped(HURT, handle)
    wanted = {
        "parked_subjects": 1,
        "refused_subjects": 2,
        "unreadable_znodes": 2,
        "reassigning_partitions": 1,
        "draining_brokers": 1,
        "log_lines_lost_total": 7,
        "under_replicated_partitions": 1,
        "controller_epoch": 4,
        "registered": 1,
    }
    assert {name: value(samples, f"klamm_{name}") for name in wanted} == wanted
    assert [value(samples, "klamm_refused_partitions", broker_id=one) for one in ("2", "3")] == [0, 3]
    phases = [value(samples, "klamm_failover_phase_seconds", phase=phase) for phase in ("claimed", "acknowledged")]
    assert phases == [0.02, 0.45]


async def test_a_controllers_work_is_counted() -> None:
    site, meters = await a_site(), Meters()
    async with leading(site, meters=meters) as node:
        await site.topic("orders", [1, 2])
        await node.ask(AlterPartitionAsked(1, belief(node).brokers[1].epoch, [proposal_for(node, 1)]))
        await node.ask(AlterPartitionAsked(1, belief(node).brokers[1].epoch, [proposal_for(node, 1, 2)]))
        site.server.expire(site.brokers[1])
        await until(lambda: (state_of(site.server, "orders", 0) or {}).get("leader") == 2)
        await until(lambda: meters.controller_state == 0)
    handle = FakeHandle()
    handle.meters = meters
    samples = await scraped(View(), handle)
    assert value(samples, REPLICAS + "isrshrinks_total") == 1
    assert value(samples, REPLICAS + "isrexpands_total") == 1
    assert value(samples, "klamm_leader_elections_total") == 1
    assert value(samples, "kafka_controller_controllerstats_uncleanleaderelections_total") == 0
    assert value(samples, "klamm_event_duration_seconds_count", event="AlterPartitionAsked") == 2
    assert value(samples, "klamm_request_wait_seconds_count") == 2
    assert value(samples, "klamm_turn_wait_seconds_count") == meters.queued.count > 2
    assert (value(samples, "klamm_transactions_total") or 0) >= 4
    assert value(samples, "klamm_transaction_writes_count") == value(samples, "klamm_transactions_total")


async def test_an_unclean_election_is_counted() -> None:
    site, meters = await a_site(), Meters()
    async with leading(site, meters=meters, unclean_default=True) as node:
        await site.topic("orders", [1, 2])
        await node.ask(AlterPartitionAsked(1, belief(node).brokers[1].epoch, [proposal_for(node, 1)]))
        site.server.expire(site.brokers[1])
        await until(lambda: (state_of(site.server, "orders", 0) or {}).get("leader") == 2)
        await until(lambda: meters.controller_state == 0)
    assert registered(meters, "kafka_controller_controllerstats_uncleanleaderelections_total") == 1


async def test_a_version_that_had_changed_is_counted_as_a_conflict() -> None:
    site, meters = await a_site(), Meters()
    async with leading(site, meters=meters) as node:
        await site.topic("orders", [1, 2])
        state = site.server.read("/brokers/topics/orders/partitions/0/state")
        assert state is not None
        before = registered(meters, "klamm_conflicts_total")
        await (await site.server.connect()).set("/brokers/topics/orders/partitions/0/state", state, 0)
        site.server.expire(site.brokers[1])
        await until(lambda: (state_of(site.server, "orders", 0) or {}).get("leader") == 2)
        assert node.handle.is_active
    assert registered(meters, "klamm_conflicts_total") == (before or 0) + 1


async def test_disconnects_from_zookeeper_are_counted() -> None:
    site, meters = await a_site(), Meters()
    prefix = "kafka_server_sessionexpirelistener_zookeeper"
    async with leading(site, meters=meters) as node:
        node.zk.disconnect()
        node.zk.come_back()
        await until(lambda: registered(meters, f"{prefix}syncconnects_total") == 1)
        assert registered(meters, f"{prefix}disconnects_total") == 1
        site.server.expire(node.zk)
        await until(lambda: registered(meters, f"{prefix}expires_total") == 1)


# ---------------------------------------------------------------------- how it is served


async def test_the_lag_of_the_event_loop_is_measured_while_the_api_is_served() -> None:
    handle = FakeHandle()
    async with asking(View(), handle), asyncio.timeout(DEADLINE_S):
        while True:
            if registered(handle.meters, "klamm_event_loop_lag_seconds_count"):
                break
            await asyncio.sleep(0.02)


async def test_a_scraper_that_accepts_openmetrics_gets_it() -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    async with asking(HURT, an_active_handle()) as client, client.get("/metrics", headers=accept) as response:
        assert response.content_type == "application/openmetrics-text"
        names = {family.name for family in openmetrics_families(await response.text())}
    assert CONTROLLER + "activecontrollercount" in names
