"""Health: green, yellow or red, and every reason named."""

from __future__ import annotations

import pytest

from controller.api.warnings import NAMED_MAX
from controller.core.belief.cluster import Cluster
from controller.core.belief.duties import Deletion
from controller.core.belief.id_searches import IdSearch
from controller.core.causes import Cause
from controller.core.changes.cluster import BrokerLive, Committed
from controller.core.model import Broker, BrokerRefusal
from tests.api.api_support import (
    FakeHandle,
    View,
    a_broker,
    a_row,
    a_topic,
    asking,
)
from tests.builders import a_topic_fact

ORDERS = a_topic("orders", a_row(0, 1, [1, 2], [1, 2]), a_row(1, 2, [2, 1], [2, 1]))
BROKERS = [a_broker(1), a_broker(2)]


def a_handle() -> FakeHandle:
    handle = FakeHandle()
    handle.cluster = Cluster(controller_id=1, controller_epoch=4)
    return handle


async def health_of(view: View, handle: FakeHandle) -> tuple[int, str, list[str]]:
    async with asking(view, handle) as client, client.get("/healthz/cluster") as response:
        body = await response.json()
        return response.status, body["status"], body["reasons"]


async def test_a_cluster_that_lacks_nothing_is_green() -> None:
    assert await health_of(View(ORDERS, brokers=BROKERS), a_handle()) == (200, "green", [])


async def test_work_that_the_controller_left_undone_is_yellow_and_named() -> None:
    handle = a_handle()
    assert handle.cluster is not None
    handle.cluster.parked["topic payments"] = "a bug: no partition moves from New to New"
    handle.cluster.unreadable["logs", None] = ("not JSON", 7)
    handle.cluster.unreadable["orders", 1] = ("no leader", 8)
    handle.cluster.duties.deletions["old"] = Deletion(waits_for="broker 3 is gone")
    handle.cluster.duties.deletions["quick"] = Deletion()
    assert await health_of(View(ORDERS, brokers=BROKERS), handle) == (
        200,
        "yellow",
        [
            "topic payments is left out: a bug: no partition moves from New to New",
            "the znode of logs is unreadable: not JSON",
            "the znode of orders-1 is unreadable: no leader",
            "the deletion of old waits: broker 3 is gone",
        ],
    )


def a_refusal(code: int, request: str = "LeaderAndIsr") -> BrokerRefusal:
    return BrokerRefusal(request, code, 4, -1, 0, 0)


async def test_brokers_that_refuse_requests_are_named_with_some_partitions_and_a_remedy() -> None:
    handle = a_handle()
    assert handle.cluster is not None
    handle.cluster.duties.refusals = {
        2: {"": {-1: a_refusal(999, "UpdateMetadata")}, "orders": {number: a_refusal(103) for number in range(9)}},
        3: {"orders": {1: a_refusal(74, "StopReplica")}},
        1: {"orders": {1: a_refusal(11)}},
    }
    status, verdict, reasons = await health_of(View(ORDERS, brokers=BROKERS), handle)
    assert (status, verdict, len(reasons)) == (200, "yellow", 3)
    assert reasons[0] == (
        "broker 1 refuses what it is told of orders-1 (LeaderAndIsr: STALE_CONTROLLER_EPOCH): it knows a higher leader "
        "epoch; one above is written and told, and if this lasts, restart the broker"
    )
    assert reasons[1].startswith(
        "broker 2 refuses what it is told of the metadata (UpdateMetadata: code 999), orders-0 (LeaderAndIsr: "
        "INCONSISTENT_TOPIC_ID), orders-1 (LeaderAndIsr: INCONSISTENT_TOPIC_ID) and 7 more: "
    )
    assert "FENCED_LEADER_EPOCH): the replica stays on its disk" in reasons[2]
    async with asking(View(ORDERS, brokers=BROKERS), handle) as client, client.get("/v1/brokers/2") as response:
        assert (await response.json())["refused"] == 10


async def test_disputed_topic_ids_and_topics_without_a_live_replica_are_named_with_a_remedy() -> None:
    handle = a_handle()
    cluster = handle.cluster
    assert cluster is not None
    cluster.load([a_topic_fact("alone", [3], topic_id=None), a_topic_fact("asked", [1], topic_id=None)], [])
    cluster.apply([Committed(BrokerLive(Broker(1, 5, None, -1, ()), "joined", Cause.BROKER_JOINED))])
    cluster.duties.ids.open |= {"alone": IdSearch(9), "asked": IdSearch(9)}
    cluster.duties.ids.disputes["orders"] = {"x-id": (1, 3), "y-id": (2,), "z-id": ()}
    assert await health_of(View(ORDERS, brokers=BROKERS), handle) == (
        200,
        "yellow",
        [
            "2 of 4 partitions are new: never led",
            "the id of topic orders is disputed, and nobody is told of it: brokers 1, 3 know x-id, broker 2 knows "
            "y-id, its znode has z-id; write the right one into its znode (topic_id in /brokers/topics/orders), or "
            "delete the topic",
            "topic alone has no id, and none of its brokers [3] is live to be asked for it: start one, or write the id "
            "into its znode (topic_id in /brokers/topics/alone)",
        ],
    )


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        (1, "1 line of the state-change log could not be written in the last minutes"),
        (70, "70 lines of the state-change log could not be written in the last minutes"),
    ],
)
async def test_lost_lines_of_the_log_are_yellow(lost: int, reason: str) -> None:
    handle = a_handle()
    handle.lines_lost_lately = lost
    assert await health_of(View(ORDERS, brokers=BROKERS), handle) == (200, "yellow", [reason])


async def test_a_drain_is_yellow_until_nothing_is_led_there() -> None:
    led = View(ORDERS, brokers=[a_broker(1), a_broker(2, "draining")])
    moved = View(a_topic("orders", a_row(0, 1, [1, 2], [1, 2])), brokers=led.brokers)
    assert await health_of(led, a_handle()) == (200, "yellow", ["broker 2 is draining: it still leads 1"])
    assert await health_of(moved, a_handle()) == (200, "green", [])


async def test_brokers_of_the_other_kind_are_named() -> None:
    handle = a_handle()
    handle.foreign_brokers = {7: Broker(7, 70, "h", 9092, ("PLAINTEXT://h:9092",))}
    reasons = ["broker 7 is of the other kind: it is assigned nothing"]
    assert await health_of(View(ORDERS, brokers=BROKERS), handle) == (200, "yellow", reasons)


async def test_of_many_troubles_of_a_kind_a_few_are_named() -> None:
    handle = a_handle()
    assert handle.cluster is not None
    handle.cluster.unreadable.update({(f"t{n}", None): ("not JSON", n) for n in range(9)})
    _, status, reasons = await health_of(View(ORDERS, brokers=BROKERS), handle)
    assert status == "yellow"
    assert len(reasons) == NAMED_MAX + 1
    assert reasons[-1] == "4 more znodes are unreadable"


async def test_undone_work_never_hides_broken_partitions() -> None:
    handle = a_handle()
    handle.lines_lost_lately = 1
    view = View(a_topic("orders", a_row(0, -1, [3], [3])), brokers=BROKERS)
    status, verdict, reasons = await health_of(view, handle)
    assert (status, verdict) == (503, "red")
    assert reasons == [
        "1 of 1 partition is offline",
        "1 line of the state-change log could not be written in the last minutes",
    ]


async def test_a_seat_that_no_process_can_win_is_red_with_a_remedy() -> None:
    standby = FakeHandle()
    standby.stand_by(None)
    standby.seat_trouble = "no controller can be elected: /controller_epoch holds b'abc'; delete it"
    told = View(ORDERS, brokers=BROKERS)
    status, verdict, reasons = await health_of(told, standby)
    assert (status, verdict, reasons[1:]) == (503, "red", [standby.seat_trouble])
    assert reasons[0].startswith("no controller for ")
    async with asking(told, standby) as client:
        async with client.get("/v1/controller") as response:
            assert (await response.json())["phase"] == "vacant"
        async with client.delete("/v1/brokers/3", headers={"Content-Type": "application/json"}) as response:
            assert response.status == 503
            assert standby.seat_trouble in (await response.json())["detail"]


async def test_a_seat_without_an_acting_controller_is_vacant_whatever_broker_it_names() -> None:
    standby = FakeHandle()
    standby.stand_by((1, 0))
    standby.seat_trouble = "no controller can be elected: /controller goes with no session; delete it"
    status, verdict, reasons = await health_of(View(ORDERS, brokers=BROKERS), standby)
    assert (status, verdict, reasons[1:]) == (503, "red", [standby.seat_trouble])
