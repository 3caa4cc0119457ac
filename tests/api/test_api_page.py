"""The dashboard's files and its way to a lab, over real HTTP."""

from __future__ import annotations

import re
from importlib import resources

import msgspec
import pytest
from aiohttp import web

from controller.api.serve.app import policy_for
from controller.dashboard import CONTENT_TYPES
from tests.api.api_support import (
    CONFIG,
    FakeHandle,
    View,
    asking,
    reserved,
)

PAGE_MAX_BYTES = 200_000
FILES = sorted(
    one.name for one in resources.files("controller.dashboard").iterdir() if one.name.endswith(tuple(CONTENT_TYPES))
)


async def test_the_page_is_served_with_everything_that_it_names() -> None:
    async with asking(View(), FakeHandle()) as client:
        sizes, named = 0, {"/"}
        for path in ["/", *(f"/dashboard/{name}" for name in FILES)]:
            async with client.get(path) as response:
                assert response.status == 200, path
                text = await response.text()
                sizes += len(text)
                named |= set(re.findall(r'<(?:script|link|img)[^>]*(?:href|src)="(/[^"]*)"', text))
                named |= {f"/dashboard/{name}" for name in re.findall(r'from "\./([^"]*)"', text)}
        assert named - {"/"} == {f"/dashboard/{name}" for name in FILES} - {"/dashboard/index.html"}
        assert sizes < PAGE_MAX_BYTES


def test_the_page_has_nothing_inline_and_nothing_from_elsewhere() -> None:
    for name in FILES:
        text = (resources.files("controller.dashboard") / name).read_text(encoding="utf-8")
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)[^\s`]*", text) == [], name
        assert re.findall(r"<script(?![^>]* src=)|<style|\son\w+=\"|\sstyle=\"", text) == [], name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), name


async def test_a_page_may_load_and_ask_only_the_brokers() -> None:
    async with asking(View(), FakeHandle()) as client, client.get("/") as response:
        policy = response.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'self'; ")
        assert policy.endswith("connect-src 'self' http://127.0.0.1:8081 http://127.0.0.1:8082 http://127.0.0.1:8083")


@pytest.mark.parametrize(
    "address", ["", "http://a:1; script-src *", "http://a:1\r\nX: y", "ftp://a:1", "http://*:80", "http://a"]
)
def test_an_address_that_is_not_plain_does_not_get_into_the_policy(address: str) -> None:
    assert policy_for([address, "http://a.example:80"]).endswith("connect-src 'self' http://a.example:80")


@pytest.mark.parametrize("name", ["nope.js", "__init__.py", "..%2Fconfig.py", "%2Fetc%2Fpasswd", ".", "index"])
async def test_nothing_but_the_page_is_served(name: str) -> None:
    async with asking(View(), FakeHandle()) as client, client.get(f"/dashboard/{name}") as response:
        assert response.status == 404


async def test_an_order_goes_to_the_labs_supervisor_and_its_answer_comes_back() -> None:
    heard: list[tuple[str, bytes]] = []

    async def supervise(request: web.Request) -> web.Response:
        heard.append((f"{request.method} {request.path}", await request.read()))
        return web.json_response({"changed": True}, status=409 if request.path.endswith("stop") else 200)

    supervisor, bound = web.Application(), reserved()
    supervisor.router.add_route("*", "/{path:.*}", supervise)
    runner = web.AppRunner(supervisor)
    await runner.setup()
    await web.SockSite(runner, bound).start()
    config = msgspec.structs.replace(CONFIG, klamm_lab_url=f"http://127.0.0.1:{bound.getsockname()[1]}")
    async with asking(View(), FakeHandle(), config=config) as client:
        async with client.get("/v1/lab") as response:
            assert (response.status, await response.json()) == (200, {"changed": True})
        for verb, status in (("kill", 200), ("stop", 409), ("down", 404), ("hold", 404)):
            async with client.post(f"/v1/lab/{verb}", json={"broker": 2}) as response:
                assert response.status == status, verb
        assert heard == [
            ("GET /lab/v1/ps", b""),
            ("POST /lab/v1/kill", b'{"broker": 2}'),
            ("POST /lab/v1/stop", b'{"broker": 2}'),
        ]
        await runner.cleanup()
        async with client.post("/v1/lab/kill", json={"broker": 2}) as response:
            assert (response.status, (await response.json(content_type=None))["code"]) == (503, "NO_LAB")


async def test_outside_a_lab_nothing_runs_and_there_is_no_supervisor_to_ask() -> None:
    async with asking(View(), FakeHandle()) as client:
        async with client.get("/v1/lab") as response:
            assert (response.status, await response.json()) == (200, {"processes": []})
        async with client.post("/v1/lab/kill", json={"broker": 1}) as response:
            assert (response.status, (await response.json(content_type=None))["code"]) == (404, "NO_LAB")
