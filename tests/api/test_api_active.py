"""Requests that only the active controller serves: on a standby each is redirected, or passed on one hop."""

from __future__ import annotations

import socket

import aiohttp
import msgspec
import pytest
from aiohttp import web

from controller.api.ports import Reply
from controller.core.codes import Code
from controller.loop.inbox import ChangeReply
from tests.api.api_support import (
    CONFIG,
    FakeHandle,
    View,
    a_broker,
    a_row,
    a_topic,
    address_of,
    asking,
    reserved,
    served,
)
from tests.builders import a_cluster
from tests.support.deciding_support import BelievedView, DecidingHandle

HEADERS = {"Content-Type": "application/json"}
LED = [
    ("DELETE", "/v1/topics/orders", None),
    ("POST", "/v1/topics/orders/partitions", {"count": 3}),
    ("GET", "/v1/deletions", None),
    ("GET", "/v1/topics/orders/config", None),
    ("PATCH", "/v1/topics/orders/config", {"values": {"flush.ms": "1"}}),
    ("GET", "/v1/brokers/1/config", None),
    ("PATCH", "/v1/cluster/config", {"values": {"a": "1"}}),
    ("GET", "/v1/reassignments?limit=5", None),
    ("POST", "/v1/reassignments", {"partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}]}),
    ("DELETE", "/v1/reassignments/orders/0", None),
    ("POST", "/v1/elections", {"type": "preferred", "partitions": None}),
    ("GET", "/v1/brokers/1/drain", None),
    ("POST", "/v1/brokers/1/drain", {}),
    ("DELETE", "/v1/brokers/1/drain", None),
    ("GET", "/v1/partitions/orders/0/story", None),
    ("POST", "/v1/what-if", {"kill": [1]}),
    ("GET", "/v1/controller/history", None),
]


def a_standby_of(bound: socket.socket) -> tuple[View, FakeHandle]:
    port = int(address_of(bound).partition(":")[2])
    handle = FakeHandle()
    handle.stand_by((1, 77))
    return View(brokers=[a_broker(1, port=port), a_broker(2)], own_id=2), handle


@pytest.mark.parametrize(("method", "path", "body"), LED)
async def test_a_standby_sends_to_the_controller_or_asks_it_once(method: str, path: str, body: object) -> None:
    bound, cluster = reserved(), a_cluster(orders=[[1, 2]])
    async with (
        served(BelievedView(cluster), DecidingHandle(cluster), bound=bound),
        asking(*a_standby_of(bound)) as client,
    ):
        async with client.request(method, path, json=body, headers=HEADERS, allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (307, f"http://{address_of(bound)}{path}")
        headers = {**HEADERS, "Klamm-Forward": "1"}
        async with client.request(method, path, json=body, headers=headers, allow_redirects=False) as response:
            assert response.status in (200, 201, 202), await response.text()


async def test_a_client_of_another_listener_is_redirected_to_the_controllers_listener_of_that_name() -> None:
    """As Kafka's clients are; a forwarded request goes by the brokers' own listener."""
    bound, here, cluster = reserved(), reserved(), a_cluster(orders=[[1, 2]])
    led = msgspec.structs.replace(a_broker(1), endpoints=("HTTP://127.0.0.1:1", f"BROKERS://{address_of(bound)}"))
    own = msgspec.structs.replace(a_broker(2), endpoints=("HTTP://127.0.0.1:2", f"BROKERS://{address_of(here)}"))
    handle = FakeHandle()
    handle.stand_by((1, 77))
    config = msgspec.structs.replace(CONFIG, inter_broker_listener_name="BROKERS")
    async with (
        served(BelievedView(cluster), DecidingHandle(cluster), bound=bound),
        served(View(brokers=[led, own], own_id=2), handle, bound=here, config=config),
        aiohttp.ClientSession(f"http://{address_of(here)}") as client,
    ):
        async with client.get("/v1/reassignments", allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (
                307,
                f"http://{address_of(bound)}/v1/reassignments",
            )
        async with client.get("/v1/brokers") as response:
            told = (await response.json())["items"]
            assert [f"{each['host']}:{each['port']}" for each in told] == [address_of(bound), address_of(here)]
        host = {"Host": f"localhost:{address_of(here).partition(':')[2]}"}
        async with client.get("/v1/reassignments", allow_redirects=False, headers=host) as response:
            assert response.headers["Location"] == "http://127.0.0.1:1/v1/reassignments"
        async with client.get("/v1/reassignments", headers={**host, "Klamm-Forward": "1"}) as response:
            assert (response.status, await response.json()) == (200, {"items": [], "next_cursor": None})


@pytest.mark.parametrize(("method", "path", "body"), LED)
async def test_a_term_that_still_loads_answers_503(method: str, path: str, body: object) -> None:
    handle = FakeHandle()
    handle.stand_by((1, 77))
    handle.controller_epoch, handle.phase, handle.cluster = 4, "loading", a_cluster(orders=[[1, 2]])
    async with (
        asking(View(), handle) as client,
        client.request(method, path, json=body, headers=HEADERS, allow_redirects=False) as response,
    ):
        problem = await response.json(content_type="application/problem+json")
        assert (response.status, problem["code"], response.headers["Retry-After"]) == (503, "NOT_CONTROLLER", "1")


async def test_an_answer_names_the_term_it_rests_on() -> None:
    cluster = a_cluster()
    view = BelievedView(cluster)
    view.controller_epoch = 3  # told by the controller before
    async with asking(view, DecidingHandle(cluster)) as client, client.get("/v1/reassignments") as response:
        assert response.headers["Klamm-Controller-Epoch"] == "7"


async def test_a_read_that_was_not_answered_is_503_since_nothing_can_have_happened() -> None:
    bound = reserved()

    async def hang_up(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    app = web.Application()
    app.router.add_get("/v1/deletions", hang_up)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.SockSite(runner, bound).start()
    async with asking(*a_standby_of(bound)) as client, forwarded(client, "/v1/deletions") as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
    await runner.cleanup()


def forwarded(client: aiohttp.ClientSession, path: str) -> aiohttp.client._RequestContextManager:
    return client.get(path, headers={"Klamm-Forward": "1"}, allow_redirects=False)


@pytest.mark.parametrize("forward", [None, "1"])
@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (ChangeReply(event_id="4-17"), 201),
        (Reply(Code.INVALID_REPLICATION_FACTOR, "no", event_id="4-17"), 400),
        (Reply(Code.LEADER_NOT_AVAILABLE, "no", event_id="4-17"), 503),
        (Reply(is_unknown=True, event_id="4-17"), 504),
    ],
)
async def test_every_answer_of_the_controller_names_its_event_also_one_that_refuses_or_was_passed_on(
    forward: str | None, reply: Reply, status: int
) -> None:
    bound, headers = reserved(), HEADERS | ({} if forward is None else {"Klamm-Forward": forward})
    view = View(a_topic("orders", a_row(0, 1, [1], [1])))
    standby, handle = a_standby_of(bound)
    async with (
        served(view, FakeHandle(lambda _: reply), bound=bound) as url,
        asking(standby, handle) as client,
        aiohttp.ClientSession() as direct,
    ):
        asked = client.post if forward else direct.post
        body = {"name": "orders", "partitions": 1, "replication_factor": 1}
        async with asked("/v1/topics" if forward else f"{url}/v1/topics", json=body, headers=headers) as response:
            said = response.headers
            assert (response.status, said["Klamm-Event-Id"], said["Klamm-Controller-Epoch"]) == (status, "4-17", "4")
            assert said.get("Retry-After") == ("1" if status == 503 else None)


async def test_a_request_refused_before_it_reaches_the_controller_has_no_event() -> None:
    async with (
        asking(View(), FakeHandle()) as client,
        client.post("/v1/topics", json={"nonsense": 1}, headers=HEADERS) as response,
    ):
        assert (response.status, "Klamm-Event-Id" in response.headers) == (400, False)
