"""Health: green, yellow or red, and every reason named."""

from __future__ import annotations

import pytest

from controller.api.troubles import NAMED_MAX
from controller.core.cluster import Cluster
from controller.core.duties import Deletion
from controller.core.model import Broker
from tests.shell.api_support import Door, View, a_broker, a_row, a_topic, asking

ORDERS = a_topic("orders", a_row(0, 1, [1, 2], [1, 2]), a_row(1, 2, [2, 1], [2, 1]))
BROKERS = [a_broker(1), a_broker(2)]


def a_door() -> Door:
    door = Door()
    door.cluster = Cluster(controller_id=1, controller_epoch=4)
    return door


async def health_of(view: View, door: Door) -> tuple[int, str, list[str]]:
    async with asking(view, door) as client, client.get("/healthz/cluster") as response:
        body = await response.json()
        return response.status, body["status"], body["reasons"]


async def test_a_cluster_that_lacks_nothing_is_green() -> None:
    assert await health_of(View(ORDERS, brokers=BROKERS), a_door()) == (200, "green", [])


async def test_what_the_controller_left_undone_is_yellow_and_named() -> None:
    door = a_door()
    assert door.cluster is not None
    door.cluster.parked["topic payments"] = "a bug: no partition moves from New to New"
    door.cluster.unreadable["logs", None] = ("not JSON", 7)
    door.cluster.unreadable["orders", 1] = ("no leader", 8)
    door.cluster.duties.deletions["old"] = Deletion(waits_for="broker 3 is gone")
    door.cluster.duties.deletions["quick"] = Deletion()
    assert await health_of(View(ORDERS, brokers=BROKERS), door) == (
        200,
        "yellow",
        [
            "topic payments is left out: a bug: no partition moves from New to New",
            "the znode of logs is unreadable: not JSON",
            "the znode of orders-1 is unreadable: no leader",
            "the deletion of old waits: broker 3 is gone",
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
    door = a_door()
    door.lines_lost_lately = lost
    assert await health_of(View(ORDERS, brokers=BROKERS), door) == (200, "yellow", [reason])


async def test_a_drain_is_yellow_until_nothing_is_led_there() -> None:
    led = View(ORDERS, brokers=[a_broker(1), a_broker(2, "draining")])
    moved = View(a_topic("orders", a_row(0, 1, [1, 2], [1, 2])), brokers=led.brokers)
    standby = Door()
    standby.stand_by((1, 77))
    for door in (a_door(), standby):
        assert await health_of(led, door) == (200, "yellow", ["broker 2 is draining: it still leads 1"])
        assert await health_of(moved, door) == (200, "green", [])


async def test_brokers_of_the_other_kind_are_named() -> None:
    door = a_door()
    door.strangers = {7: Broker(7, 70, "h", 9092, ("PLAINTEXT://h:9092",))}
    reasons = ["broker 7 is of the other kind: it is assigned nothing"]
    assert await health_of(View(ORDERS, brokers=BROKERS), door) == (200, "yellow", reasons)


async def test_of_many_troubles_of_a_kind_a_few_are_named() -> None:
    door = a_door()
    assert door.cluster is not None
    door.cluster.unreadable.update({(f"t{n}", None): ("not JSON", n) for n in range(9)})
    _, status, reasons = await health_of(View(ORDERS, brokers=BROKERS), door)
    assert status == "yellow"
    assert len(reasons) == NAMED_MAX + 1
    assert reasons[-1] == "4 more znodes are unreadable"


async def test_what_is_left_undone_never_hides_what_is_broken() -> None:
    door = a_door()
    door.lines_lost_lately = 1
    view = View(a_topic("orders", a_row(0, -1, [3], [3])), brokers=BROKERS)
    status, verdict, reasons = await health_of(view, door)
    assert (status, verdict) == (503, "red")
    assert reasons == [
        "1 of 1 partition is offline",
        "1 line of the state-change log could not be written in the last minutes",
    ]
