"""Creating topics over real HTTP: every outcome, on the active controller and on a standby."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from controller.api.middleware.access import nobody
from controller.api.ports import BusyError, Reply, TopicView
from controller.api.routing.active import ActiveController, Forwarding
from controller.api.v1.writes import Writes
from controller.base.config import LIMITS, BrokerConfig
from controller.core.codes import Code
from controller.core.events import CreateTopicAsked, Event
from controller.wire.signing import Signer
from tests.api.api_support import (
    FakeHandle,
    View,
    a_broker,
    a_row,
    a_topic,
    address_of,
    asking,
    creating,
    reserved,
    served,
)
from tests.waiting import until

CONFIG = BrokerConfig(zookeeper_connect="", log_dirs="d")
ORDERS = {"name": "orders", "partitions": 2, "replication_factor": 3}
ORDERS_BODY = {
    "name": "orders",
    "topic_id": "id-of-orders",
    "partitions": 2,
    "replication_factor": 3,
    "online": 2,
    "offline": 0,
    "under_replicated": 0,
    "not_preferred": 0,
    "new": 0,
}


async def test_a_topic_created_is_201_and_the_same_again_is_200() -> None:
    view = View()
    handle = FakeHandle(creating(view))
    async with asking(view, handle) as client:
        for status in (201, 200):
            async with client.post("/v1/topics", json=ORDERS) as response:
                assert (response.status, await response.json()) == (status, ORDERS_BODY)
    assert handle.asked == [CreateTopicAsked("orders", 2, 3)] * 2


async def test_an_assignment_and_configs_reach_the_controller_as_given() -> None:
    view = View()
    handle = FakeHandle(creating(view))
    body = {"name": "a", "assignment": {"0": [1, 2], "1": [2, 3]}, "configs": {"retention.ms": "1"}}
    async with asking(view, handle) as client, client.post("/v1/topics", json=body) as response:
        assert response.status == 201
    assert handle.asked == [CreateTopicAsked("a", assignment={0: (1, 2), 1: (2, 3)}, configs={"retention.ms": "1"})]


async def test_counts_that_are_left_out_are_the_configured_ones() -> None:
    view = View()
    handle = FakeHandle(creating(view))
    async with asking(view, handle) as client:
        for body in ({"name": "a"}, {"name": "b", "partitions": 3}):
            async with client.post("/v1/topics", json=body) as response:
                assert response.status == 201
    assert handle.asked == [CreateTopicAsked("a", 1, 1), CreateTopicAsked("b", 3, 1)]


async def test_an_answer_does_not_wait_for_ever_to_be_told() -> None:
    view, handle = View(), FakeHandle()
    app = web.Application()
    app.add_routes(
        Writes(
            view, ActiveController(view, handle, LIMITS, Forwarding(Signer(), nobody)), CONFIG, told_within_ms=30
        ).routes()
    )
    async with TestClient(TestServer(app)) as client, client.post("/v1/topics", json=ORDERS) as response:
        assert response.status == 201
        assert await response.json() == {**ORDERS_BODY, "topic_id": None, "online": 0, "new": 2}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"name":"\xff"}',
        b'{"name":"\\ud800"}',
        b"{" * 100_000,
        b'{"name":' + b"[" * 100_000,
        b'{"partitions":1,"replication_factor":1}',
        b'{"name":1,"partitions":1,"replication_factor":1}',
        b'{"name":"a","partitions":"1","replication_factor":1}',
        b'{"name":"a","partitions":1.5,"replication_factor":1}',
        b'{"name":"a","partitions":true,"replication_factor":1}',
        b'{"name":"a","partitions":99999999999999999999,"replication_factor":1}',
        b'{"name":"a","partitions":1,"replication_factor":1,"colour":"red"}',
        b'{"name":"a","partitions":1,"replication_factor":1,"assignment":{"0":[1]}}',
        b'{"name":"a","assignment":{"x":[1]}}',
        b'{"name":"a","assignment":{"0":["1"]}}',
        b'{"name":"a","assignment":{"0":1}}',
        b'{"name":"a","assignment":{"0":[4294967297]}}',
        b'{"name":"a","partitions":1,"replication_factor":1,"configs":{"a":1}}',
    ],
)
async def test_a_malformed_request_is_400_and_reaches_no_controller(body: bytes) -> None:
    handle = FakeHandle()
    async with (
        asking(View(), handle) as client,
        client.post("/v1/topics", data=body, headers={"Content-Type": "application/json"}) as response,
    ):
        problem = await response.json(content_type="application/problem+json")
        assert (response.status, problem["code"]) == (400, "INVALID_REQUEST")
    assert handle.asked == []


def raise_busy(_: Event) -> Reply:
    raise BusyError("the queue is full", retry_after_ms=2_500)


@pytest.mark.parametrize(
    ("reply", "status", "code", "retry_after"),
    [
        (Reply(Code.TOPIC_ALREADY_EXISTS, "it has 3 partitions"), 409, "TOPIC_ALREADY_EXISTS", None),
        (Reply(Code.INVALID_REPLICATION_FACTOR, "4 of 3"), 400, "INVALID_REPLICATION_FACTOR", None),
        (Reply(Code.INVALID_TOPIC_EXCEPTION, "bad \ud800 name"), 400, "INVALID_TOPIC_EXCEPTION", None),
        (Reply(Code.REQUEST_TIMED_OUT, "waited 15 s"), 503, "REQUEST_TIMED_OUT", "1"),
        (Reply(is_unknown=True), 504, "OUTCOME_UNKNOWN", None),
        (raise_busy, 503, "BUSY", "3"),
    ],
)
async def test_a_verdict_of_the_controller_becomes_a_status_and_a_stable_code(
    reply: object, status: int, code: str, retry_after: str | None
) -> None:
    handle = FakeHandle(reply if callable(reply) else lambda _: reply)  # type: ignore[arg-type,return-value]
    async with asking(View(), handle) as client, client.post("/v1/topics", json=ORDERS) as response:
        problem = await response.json(content_type="application/problem+json")
        assert (response.status, problem["code"]) == (status, code)
        assert response.headers.get("Retry-After") == retry_after


async def test_an_unknown_outcome_names_the_resource_to_read() -> None:
    async with (
        asking(View(), FakeHandle(lambda _: Reply(is_unknown=True))) as client,
        client.post("/v1/topics", json=ORDERS) as response,
    ):
        assert "GET /v1/topics/orders" in (await response.json(content_type=None))["detail"]


@pytest.mark.parametrize("seat", [None, (1, 77), (9, 77)])
async def test_without_an_active_controller_a_write_is_503_with_retry_after(seat: tuple[int, int] | None) -> None:
    handle = FakeHandle()
    handle.stand_by(seat)  # vacant; own, so still loading; of a broker whose address is unknown
    async with asking(View(), handle) as client:
        for headers in ({}, {"Klamm-Forward": "1"}):
            async with client.post("/v1/topics", json=ORDERS, headers=headers, allow_redirects=False) as response:
                assert (response.status, response.headers["Retry-After"]) == (503, "1")
                assert (await response.json(content_type=None))["code"] == "NOT_CONTROLLER"


@asynccontextmanager
async def a_standby_of(bound: socket.socket) -> AsyncIterator[aiohttp.ClientSession]:
    """Broker 2, on standby; broker 1 at `bound` holds the seat."""
    port = int(address_of(bound).partition(":")[2])
    view, handle = View(brokers=[a_broker(1, port=port), a_broker(2)], own_id=2), FakeHandle()
    handle.stand_by((1, 77))
    async with asking(view, handle) as client:
        yield client


async def test_a_standby_redirects_a_write_to_the_advertised_address() -> None:
    with reserved() as bound:
        location = f"http://{address_of(bound)}/v1/topics?a=b%20c"
        async with (
            a_standby_of(bound) as client,
            client.post("/v1/topics?a=b%20c", json=ORDERS, allow_redirects=False) as response,
        ):
            problem = await response.json(content_type="application/problem+json")
            assert (response.status, response.headers["Location"]) == (307, location)
            assert (problem["code"], problem["location"]) == ("NOT_CONTROLLER", location)


async def forwarded(client: aiohttp.ClientSession) -> tuple[int, str | None, dict[str, object]]:
    headers = {"Klamm-Forward": "1"}
    async with client.post("/v1/topics", json=ORDERS, headers=headers, allow_redirects=False) as response:
        return response.status, response.headers.get("Retry-After"), await response.json(content_type=None)


async def test_a_write_is_forwarded_one_hop_when_asked_so() -> None:
    bound, view = reserved(), View()
    async with served(view, FakeHandle(creating(view)), bound=bound), a_standby_of(bound) as client:
        assert await forwarded(client) == (201, None, ORDERS_BODY)


async def test_a_refusal_of_the_controller_is_passed_back_as_it_is() -> None:
    bound = reserved()
    handle = FakeHandle(lambda _: Reply(Code.TOPIC_ALREADY_EXISTS, "it has 3 partitions"))
    async with served(View(), handle, bound=bound), a_standby_of(bound) as client:
        status, _, problem = await forwarded(client)
        assert (status, problem["code"], problem["detail"]) == (409, "TOPIC_ALREADY_EXISTS", "it has 3 partitions")


async def test_a_forwarded_write_is_not_forwarded_again() -> None:
    bound, handle = reserved(), FakeHandle()
    handle.stand_by((3, 77))
    async with served(View(a_topic("a", a_row(0, 1, [1], [1]))), handle, bound=bound), a_standby_of(bound) as client:
        status, retry_after, problem = await forwarded(client)
        assert (status, retry_after, problem["code"]) == (503, "1", "NOT_CONTROLLER")


async def test_a_controller_that_cannot_be_reached_changed_nothing() -> None:
    with reserved() as bound:  # bound, but no server listens
        async with a_standby_of(bound) as client:
            status, retry_after, problem = await forwarded(client)
            assert (status, retry_after, problem["code"]) == (503, "1", "NOT_CONTROLLER")


async def hang_up(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def say_nothing(_: web.Request) -> web.Response:
    return web.Response(status=500)


async def send_a_page(_: web.Request) -> web.Response:
    return web.Response(text="<h1>Bad Gateway</h1>", content_type="text/html", status=502)


async def send_no_json(_: web.Request) -> web.Response:
    return web.Response(body=b'\xff{"', content_type="application/json", status=201)


@pytest.mark.parametrize("handler", [hang_up, say_nothing, send_a_page, send_no_json])
async def test_without_an_answer_of_the_controllers_own_the_outcome_is_unknown(
    handler: Callable[[web.Request], Awaitable[web.Response]],
) -> None:
    with reserved() as bound:
        app = web.Application()
        app.router.add_post("/v1/topics", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.SockSite(runner, bound).start()
        async with a_standby_of(bound) as client:
            status, _, problem = await forwarded(client)
            assert (status, problem["code"]) == (504, "OUTCOME_UNKNOWN")
        await runner.cleanup()


async def test_a_creation_is_answered_as_soon_as_this_broker_is_told_of_it() -> None:
    """By the notification itself: no task polls."""
    view, handle = View(), FakeHandle()
    looks: list[str] = []
    seen = view.topic

    def look(name: str) -> TopicView | None:
        looks.append(name)
        return seen(name)

    view.topic = look  # type: ignore[method-assign]
    async with asking(view, handle) as client:
        creating = asyncio.create_task(client.post("/v1/topics", json=ORDERS))
        await until(lambda: looks, "the creation waits")
        view.put(a_topic("others", a_row(0, 1, [1], [1])))  # news of something else
        await until(lambda: len(looks) == 2, "it looked again")
        view.put(a_topic("orders", a_row(0, 1, [1], [1]), a_row(1, 1, [1], [1])))
        async with await creating as response:
            assert (response.status, (await response.json())["online"]) == (201, 2)
    assert len(looks) == 3
