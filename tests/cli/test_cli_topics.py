"""`klamm topics`: creation over redirects and failovers, and its output."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from controller.api.ports import BusyError, Reply
from controller.cli.group import klamm
from controller.cli.output import UnreachableClusterError
from controller.cli.remote import Remote
from controller.core.codes import Code
from controller.core.events import CreateTopicAsked, Event
from controller.security.secrets import Secrets
from tests.api.api_support import (
    FakeHandle,
    View,
    a_broker,
    a_row,
    a_topic,
    address_of,
    creating,
    reserved,
    served_in_thread,
)

CREATE = ("topics", "create", "orders", "--partitions", "2", "--replication-factor", "2")


def run(*words: str, **env: str) -> Result:
    return CliRunner().invoke(klamm, words, env={"COLUMNS": "80", **env}, prog_name="klamm")


def test_create_prints_the_topic_and_again_that_it_exists() -> None:
    view = View()
    made = (
        "\n"
        "topic        orders\n"
        "topic id     id-of-orders\n"
        "partitions   2, each with 2 replicas\n"
        "state        online\n"
        "\n"
        "PARTITION   STATE    LEADER   EPOCH   ISR   REPLICAS\n"
        "orders-0    online        1       7   1,2   1,2\n"
        "orders-1    online        1       7   1,2   1,2\n"
    )
    with served_in_thread((view, FakeHandle(creating(view)), reserved())) as (url,):
        first, second = run(*CREATE, "--url", url), run(*CREATE, "--url", url)
        assert (first.exit_code, first.stdout) == (0, "created orders\n" + made)
        assert (second.exit_code, second.stdout) == (
            0,
            "orders is there already, just so: nothing was changed\n" + made,
        )
        described = run("topics", "describe", "orders", "--url", url)
        assert (described.exit_code, "\n" + described.stdout) == (0, made)


def test_create_by_assignment_and_configs_asks_just_that() -> None:
    view = View()
    handle = FakeHandle(creating(view))
    with served_in_thread((view, handle, reserved())) as (url,):
        words = ["topics", "create", "a", "--assignment", "1:2,2:3", "--config", "retention.ms=1", "--config", "x=a=b"]
        result = run(*words, "-o", "json", KLAMM_URL=url)
    assert result.exit_code == 0
    asked = CreateTopicAsked("a", assignment={0: (1, 2), 1: (2, 3)}, configs={"retention.ms": "1", "x": "a=b"})
    assert handle.asked == [asked]
    document = json.loads(result.stdout)
    assert list(document) == ["topic", "partitions"]
    assert [partition["replicas"] for partition in document["partitions"]] == [[1, 2], [2, 3]]


def test_every_flag_has_an_environment_variable() -> None:
    view = View()
    with served_in_thread((view, FakeHandle(creating(view)), reserved())) as (url,):
        env = {"PARTITIONS": "3", "REPLICATION_FACTOR": "1"}
        result = run(
            "topics",
            "create",
            "a",
            KLAMM_URL=url,
            KLAMM_OUTPUT="name",
            **{f"KLAMM_TOPICS_CREATE_{key}": value for key, value in env.items()},
        )
    assert (result.exit_code, result.stdout) == (0, "a\n")
    assert len(view.by_name["a"].partitions) == 3


def test_topics_are_listed_with_the_worst_of_their_partitions() -> None:
    view = View(
        a_topic("bad", a_row(0, -1, [1], [1])),
        a_topic("good", a_row(0, 1, [1], [1])),
        a_topic("hurt", a_row(0, 1, [1], [1, 2])),
    )
    with served_in_thread((view, FakeHandle(), reserved())) as (url,):
        result = run("topics", "list", "--url", url)
        assert (result.exit_code, result.stdout) == (
            0,
            "TOPIC   STATE              PARTITIONS   REPLICAS   OFFLINE   UNDER-REPLICATED\n"
            "bad     offline                     1          1         1                  0\n"
            "good    online                      1          1         0                  0\n"
            "hurt    under-replicated            1          2         0                  1\n",
        )
        assert run("topics", "list", "--url", url, "-o", "name").stdout == "bad\ngood\nhurt\n"
        keys = "name topic_id partitions replication_factor online offline under_replicated not_preferred new"
        for topic in json.loads(run("topics", "list", "--url", url, "-o", "json").stdout):
            assert list(topic) == keys.split()


def test_a_refusal_is_exit_1_with_one_line_and_the_next_step() -> None:
    handle = FakeHandle(lambda _: Reply(Code.TOPIC_ALREADY_EXISTS, "orders has 3 partitions"))
    with served_in_thread((View(), handle, reserved())) as (url,):
        created = run(*CREATE, "--url", url)
        described = run("topics", "describe", "a/b", "--url", url)
    assert (created.exit_code, created.stdout, created.stderr) == (
        1,
        "",
        "klamm: orders has 3 partitions (TOPIC_ALREADY_EXISTS); `klamm topics describe` shows how it differs\n",
    )
    assert len(handle.asked) == 1
    assert (described.exit_code, described.stderr) == (
        1,
        "klamm: there is no topic a/b (UNKNOWN_TOPIC_OR_PARTITION); `klamm topics list` shows what there is\n",
    )


def failing_first(failures: list[Reply | BusyError], then: Callable[[Event], Reply]) -> Callable[[Event], Reply]:
    def answer(event: Event) -> Reply:
        if not failures:
            return then(event)
        failure = failures.pop()
        if isinstance(failure, BusyError):
            raise failure
        return failure

    return answer


def test_a_failover_is_waited_out_until_the_timeout() -> None:
    view = View()
    handle = FakeHandle(failing_first([BusyError("suspended"), Reply(is_unknown=True)], creating(view)))
    with served_in_thread((view, handle, reserved())) as (url,):
        result = run(*CREATE, "--url", url)
        assert (result.exit_code, len(handle.asked)) == (0, 3)
        handle.answer = failing_first([BusyError("suspended")] * 99, creating(view))
        result = run(*CREATE, "--url", url, "--timeout", "300ms")
    assert (result.exit_code, result.stderr) == (1, "klamm: suspended (BUSY)\n")


def test_a_redirect_to_a_listed_broker_is_followed() -> None:
    bound = reserved()
    brokers = [a_broker(1, port=int(address_of(bound).partition(":")[2])), a_broker(2)]
    view, standby = View(brokers=brokers), FakeHandle()
    standby.stand_by((1, 77))
    active = FakeHandle(creating(view))
    with served_in_thread((View(brokers=brokers, own_id=2), standby, reserved()), (view, active, bound)) as urls:
        result = run(*CREATE, "--url", urls[0], "-o", "name")
    assert (result.exit_code, result.stdout, len(active.asked)) == (0, "orders\n", 1)


@asynccontextmanager
async def answering(routes: dict[str, tuple[int, object]]) -> AsyncIterator[str]:
    """A server that is not quite ours; `@` in an answer stands for its port."""
    app, bound = web.Application(), reserved()
    for path, (status, body) in routes.items():

        async def respond(request: web.Request, status: int = status, body: object = body) -> web.Response:
            text = json.dumps(body).replace("@", str(request.url.port))
            return web.Response(text=text, status=status, content_type="application/json")

        app.router.add_route("*", path, respond)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.SockSite(runner, bound).start()
    try:
        yield f"http://{address_of(bound)}"
    finally:
        await runner.cleanup()


CONTROLLER = {"broker_id": 1, "controller_epoch": 4, "since": None, "phase": "active", "kind": "klamm"}


@pytest.mark.parametrize("location", ["http://127.0.0.1:1/v1/topics", "http://evil.example/v1/topics", "nonsense", ""])
async def test_a_redirect_to_anywhere_else_is_not_followed(location: str) -> None:
    routes: dict[str, tuple[int, object]] = {
        "/v1/controller": (200, CONTROLLER),
        "/v1/brokers": (200, {"items": [{"host": "127.0.0.1", "port": 8081}], "next_cursor": None}),
        "/v1/topics": (307, {"location": location}),
    }
    async with answering(routes) as url, Remote([url]) as remote:
        with pytest.raises(UnreachableClusterError, match="will not follow a redirect to"):
            await remote.write("/v1/topics", {}, 0)


async def test_a_token_goes_to_no_registered_address() -> None:
    """As the command deletes a topic while a claimed seat sends it to a registered address."""
    told = list[Mapping[str, str]]()

    async def note(request: web.Request) -> web.Response:
        told.append(request.headers)
        return web.json_response({}, status=200)

    evil = web.Application()
    evil.router.add_route("*", "/{path:.*}", note)
    runner = web.AppRunner(evil)
    await runner.setup()
    bound = reserved()
    port = int(address_of(bound).partition(":")[2])
    await web.SockSite(runner, bound).start()
    routes: dict[str, tuple[int, object]] = {
        "/v1/controller": (200, CONTROLLER),
        "/v1/brokers/1": (200, {"host": "127.0.0.1", "port": port}),
        "/v1/brokers": (200, {"items": [{"host": "127.0.0.1", "port": port}], "next_cursor": None}),
        "/v1/topics": (307, {"location": f"http://127.0.0.1:{port}/v1/topics"}),
    }
    secrets = Secrets(api_tokens=("t" * 32,), read_tokens=("r" * 32,))
    try:
        async with answering(routes) as url, Remote([url], secrets) as remote:
            with pytest.raises(UnreachableClusterError, match="with a token; name it with --url"):
                await remote.write("/v1/topics", {}, 0)
            await remote.controller()
    finally:
        await runner.cleanup()
    assert len(told) == 1
    assert "Authorization" not in told[0]


async def test_brokers_that_send_one_around_are_given_up() -> None:
    routes: dict[str, tuple[int, object]] = {
        "/v1/controller": (200, CONTROLLER),
        "/v1/brokers": (200, {"items": [{"host": "127.0.0.1", "port": "@"}], "next_cursor": None}),
        "/v1/topics": (307, {"location": "http://127.0.0.1:@/v1/topics"}),
    }
    async with answering(routes) as url, Remote([url]) as remote:
        with pytest.raises(UnreachableClusterError, match="send each other's clients around"):
            await remote.write("/v1/topics", {}, 0)


@pytest.mark.parametrize(
    ("status", "body", "trouble"),
    [
        (200, ["hello"], "no broker of ours"),
        (404, {}, "no broker of ours"),
        (403, {"code": "FOREIGN_HOST", "detail": "not here"}, "not here"),
    ],
)
async def test_a_server_that_is_not_ours_is_not_believed(status: int, body: object, trouble: str) -> None:
    async with answering({"/v1/controller": (status, body)}) as url, Remote([url]) as remote:
        with pytest.raises(UnreachableClusterError, match=trouble):
            await remote.home()
