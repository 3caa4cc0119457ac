"""Every process tells the same health: the controller's own or, without a controller, unknown."""

from __future__ import annotations

import asyncio
import re
import socket

import aiohttp
import pytest

from controller.core.belief.cluster import Cluster
from controller.wire.bodies import BrokerEntry
from tests.api.api_support import (
    FakeHandle,
    View,
    a_broker,
    a_row,
    a_topic,
    address_of,
    reserved,
    served,
)
from tests.contract.virtual import in_virtual_time

ORDERS = a_topic("orders", a_row(0, 1, [1, 2], [1, 2]))
UNKNOWN = r"no controller for \d+\.\d s(; figures of \d\d:\d\d:\d\d)?"


def two_brokers(bound: socket.socket) -> list[BrokerEntry]:
    return [a_broker(1, port=int(address_of(bound).partition(":")[2])), a_broker(2)]


def a_standby(seat: tuple[int, int] | None = (1, 77)) -> FakeHandle:
    handle = FakeHandle()
    handle.stand_by(seat)
    return handle


async def verdicts(url: str) -> tuple[int, str, list[str]]:
    """Of the probe, which the cluster's page agrees with."""
    async with aiohttp.ClientSession(url) as client:
        async with client.get("/healthz/cluster") as response:
            status, body = response.status, await response.json()
        async with client.get("/v1/cluster") as response:
            health = (await response.json())["health"]
    assert health["status"] == body["status"]
    return status, body["status"], body["reasons"]


async def test_a_standby_tells_the_controllers_own_health() -> None:
    bound = reserved()
    brokers, active = two_brokers(bound), FakeHandle()
    active.cluster = Cluster(controller_id=1, controller_epoch=4)
    active.cluster.parked["topic payments"] = "a bug"
    async with (
        served(View(ORDERS, brokers=brokers), active, bound=bound) as first,
        served(View(ORDERS, brokers=brokers, own_id=2), a_standby()) as second,
    ):
        said = await verdicts(first)
        assert said == (200, "yellow", ["topic payments is left out: a bug"])
        assert await verdicts(second) == said


async def test_a_standby_that_is_cut_off_says_so_beside_the_controllers_health() -> None:
    bound = reserved()
    brokers, standby = two_brokers(bound), a_standby()
    standby.is_registered = False
    async with (
        served(View(ORDERS, brokers=brokers), FakeHandle(), bound=bound),
        served(View(ORDERS, brokers=brokers, own_id=2), standby) as second,
    ):
        assert (await verdicts(second))[1] == "yellow"
        assert "cut off from ZooKeeper" in (await verdicts(second))[2][-1]


@in_virtual_time
async def test_without_a_controller_health_is_unknown_and_since_when_is_said() -> None:
    bound = reserved()
    brokers, standby = two_brokers(bound), a_standby()
    async with served(View(ORDERS, brokers=brokers, own_id=2), standby) as second:
        async with served(View(ORDERS, brokers=brokers), FakeHandle(), bound=bound):
            assert await verdicts(second) == (200, "green", [])
        await asyncio.sleep(3.5)  # it died
        status, verdict, (reason,) = await verdicts(second)
        assert (status, verdict) == (503, "unknown")
        assert re.fullmatch(UNKNOWN, reason)
        assert "figures of" in reason
        await asyncio.sleep(10)
        standby.stand_by(None)  # its session is over
        _, verdict, (later,) = await verdicts(second)
        assert verdict == "unknown"
        assert seconds_in(later) - seconds_in(reason) >= 10
        async with aiohttp.ClientSession(second) as client:
            for probe in ("/livez", "/readyz"):  # of the process, which must not be restarted for that
                async with client.get(probe) as response:
                    assert response.status == 200


@pytest.mark.parametrize("seat", [(1, 77), (7, 77), None])
async def test_without_an_answer_figures_that_look_well_are_not_green(seat: tuple[int, int] | None) -> None:
    with reserved() as frozen:
        frozen.listen()  # the kernel accepts, no process answers
        async with served(View(ORDERS, brokers=two_brokers(frozen), own_id=2), a_standby(seat)) as second:
            status, verdict, (reason, *rest) = await verdicts(second)
    assert (status, verdict) == (503, "unknown")
    assert re.fullmatch(UNKNOWN, reason)
    assert set(rest) <= {"a new controller is taking over"}


async def test_two_standbys_that_take_each_other_for_the_controller_end_after_one_question() -> None:
    one, other = reserved(), reserved()
    ports = [int(address_of(bound).partition(":")[2]) for bound in (one, other)]
    brokers = [a_broker(1, port=ports[0]), a_broker(2, port=ports[1])]
    async with (
        served(View(ORDERS, brokers=brokers), a_standby((2, 7)), bound=one) as first,
        served(View(ORDERS, brokers=brokers, own_id=2), a_standby((1, 7)), bound=other) as second,
    ):
        assert [(await verdicts(url))[1] for url in (first, second)] == ["unknown", "unknown"]


def seconds_in(reason: str) -> float:
    return float(reason.removeprefix("no controller for ").partition(" s")[0])
