"""Every path times every role. The table is written by hand: a path that is not in it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web

from brokerstub.server import add_routes
from controller import wire
from controller.api.access import (
    AUTHENTICATION_FAILED,
    AUTHENTICATION_REQUIRED,
    NOT_ALLOWED,
    Access,
    Role,
    access_for,
)
from controller.api.app import build_app
from controller.api.connections import Connections, Site
from controller.api.operations import OPERATIONS
from controller.config import Limits
from controller.http import HttpClient
from controller.secrets import NO_SECRETS, Secrets
from controller.signing import Incarnation, Signer
from tests.brokerstub.cluster import Node
from tests.builders import a_cluster
from tests.security.test_secrets import ADMIN, ALL, READER, RPC
from tests.shell.api_support import CONFIG, address_of, reserved
from tests.shell.deciding_support import BelievedView, DecidingDoor

OPEN, READ, ADMIN_ONLY, BROKER = Access.OPEN, Access.READ, Access.ADMIN, Access.BROKER
TABLE: Final[Mapping[tuple[str, str], Access]] = {
    ("GET", "/livez"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/docs"): OPEN,
    ("GET", "/docs/{name}"): OPEN,
    ("GET", "/"): OPEN,
    ("GET", "/dashboard/{name}"): OPEN,
    ("GET", "/healthz/cluster"): READ,
    ("GET", "/metrics"): READ,
    ("GET", "/v1/cluster"): READ,
    ("GET", "/v1/controller"): READ,
    ("GET", "/v1/controller/history"): READ,
    ("GET", "/v1/reports/latest"): READ,
    ("GET", "/v1/brokers"): READ,
    ("GET", "/v1/brokers/{id}"): READ,
    ("GET", "/v1/brokers/{broker}/drain"): READ,
    ("GET", "/v1/brokers/{broker}/config"): READ,
    ("GET", "/v1/cluster/config"): READ,
    ("GET", "/v1/topics"): READ,
    ("GET", "/v1/topics/{topic}"): READ,
    ("GET", "/v1/topics/{topic}/config"): READ,
    ("GET", "/v1/topics/{topic}/partitions"): READ,
    ("GET", "/v1/partitions"): READ,
    ("GET", "/v1/partitions/{topic}/{partition}/story"): READ,
    ("GET", "/v1/matrix"): READ,
    ("GET", "/v1/deletions"): READ,
    ("GET", "/v1/reassignments"): READ,
    ("GET", "/v1/events"): READ,
    ("GET", "/v1/lab"): READ,
    ("POST", "/v1/what-if"): READ,
    ("POST", "/v1/topics"): ADMIN_ONLY,
    ("DELETE", "/v1/topics/{topic}"): ADMIN_ONLY,
    ("POST", "/v1/topics/{topic}/partitions"): ADMIN_ONLY,
    ("PATCH", "/v1/topics/{topic}/config"): ADMIN_ONLY,
    ("PATCH", "/v1/brokers/{broker}/config"): ADMIN_ONLY,
    ("PATCH", "/v1/cluster/config"): ADMIN_ONLY,
    ("POST", "/v1/reassignments"): ADMIN_ONLY,
    ("DELETE", "/v1/reassignments/{topic}/{partition}"): ADMIN_ONLY,
    ("POST", "/v1/elections"): ADMIN_ONLY,
    ("POST", "/v1/brokers/{broker}/drain"): ADMIN_ONLY,
    ("DELETE", "/v1/brokers/{broker}/drain"): ADMIN_ONLY,
    ("DELETE", "/v1/brokers/{id}"): ADMIN_ONLY,
    ("POST", "/v1/lab/{verb}"): ADMIN_ONLY,
    ("POST", wire.LEADER_AND_ISR): BROKER,
    ("POST", wire.UPDATE_METADATA): BROKER,
    ("POST", wire.STOP_REPLICA): BROKER,
    ("POST", wire.ALTER_PARTITION): BROKER,
    ("POST", wire.CONTROLLED_SHUTDOWN): BROKER,
    ("POST", wire.FETCH): BROKER,
}
#: what each role gets: nothing for let in, else the code of the refusal
GIVES: Final[Mapping[Access, Mapping[str, str | None]]] = {
    OPEN: dict.fromkeys(("none", "wrong", "reader", "admin", "broker")),
    READ: {
        "none": AUTHENTICATION_REQUIRED,
        "wrong": AUTHENTICATION_FAILED,
        "reader": None,
        "admin": None,
        "broker": AUTHENTICATION_FAILED,
    },
    ADMIN_ONLY: {
        "none": AUTHENTICATION_REQUIRED,
        "wrong": AUTHENTICATION_FAILED,
        "reader": NOT_ALLOWED,
        "admin": None,
        "broker": AUTHENTICATION_FAILED,
    },
    BROKER: {
        "none": AUTHENTICATION_FAILED,
        "wrong": AUTHENTICATION_FAILED,
        "reader": AUTHENTICATION_FAILED,
        "admin": AUTHENTICATION_FAILED,
        "broker": None,
    },
}
REFUSALS: Final = {AUTHENTICATION_REQUIRED: 401, AUTHENTICATION_FAILED: 401, NOT_ALLOWED: 403}
PARTS: Final = {"name": "nothing", "id": "1", "broker": "1", "topic": "orders", "partition": "0", "verb": "kill"}
#: a table is walked through faster than anybody may change a cluster
UNHURRIED: Final = Limits(changes_at_once=10_000_000)
OWN: Final = Incarnation(1, 100)


class Process:
    """A broker's API and RPCs, an active controller in it, and what it was asked."""

    def __init__(self, url: str, door: DecidingDoor, node: Node, client: aiohttp.ClientSession) -> None:
        self.url, self.door, self.node, self.client = url, door, node, client
        self.signer, self.wrong_signer = Signer([RPC]), Signer(["another-secret-of-the-tests"])

    async def ask(self, method: str, path: str, role: str) -> tuple[int, str | None]:
        headers = {"Content-Type": "application/json"}
        match role:
            case "wrong":
                headers["Authorization"] = "Bearer no-token-of-this-cluster"
            case "reader" | "admin":
                headers["Authorization"] = f"Bearer {READER if role == 'reader' else ADMIN}"
            case "broker":
                headers |= self.signed(method, path)
        async with self.client.request(method, self.url + path, headers=headers, data=b"{}") as response:
            is_problem = response.content_type == "application/problem+json"
            return response.status, (await response.json(content_type=None))["code"] if is_problem else None

    def signed(self, method: str, path: str, **more: Any) -> dict[str, str]:
        heads = {wire.CONTROLLER_ID: "2", wire.CONTROLLER_EPOCH: "7", wire.EVENT_ID: "7-1", **more}
        return self.signer.headers_for(
            method, self.url + path, b"{}", sender=Incarnation(2, 200), receiver=OWN, more=heads
        )


@asynccontextmanager
async def a_process(tmp_path: Path, secrets: Secrets) -> AsyncIterator[Process]:
    http, cluster, bound = HttpClient(), a_cluster(orders=[[1, 2]]), reserved()
    door, node = DecidingDoor(cluster), Node(1, tmp_path, http, lambda: 0)
    node.broker.begin(100)
    app = build_app(
        BelievedView(cluster),
        door,
        listeners=[address_of(bound)],
        config=CONFIG,
        secrets=secrets,
        limits=UNHURRIED,
        own=lambda: node.broker.incarnation,
    )
    add_routes(app, node.broker, node.lines.extend, lambda: 0)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    port = bound.getsockname()[1]
    bound.close()
    await Site(runner, Connections(), "127.0.0.1", port).start()
    async with aiohttp.ClientSession() as client:
        yield Process(f"http://127.0.0.1:{port}", door, node, client)
    await runner.cleanup()
    await http.close()
    node.broker.close()


def test_every_path_has_a_row_and_needs_what_it_says() -> None:
    assert {(one.method, one.path) for one in OPERATIONS} <= TABLE.keys()
    assert {key: access_for(*key) for key in TABLE} == TABLE


def test_a_path_that_nobody_thought_of_needs_the_highest_right() -> None:
    assert access_for("POST", "/v1/nothing") is Access.ADMIN
    assert access_for("POST", "/") is Access.ADMIN
    assert access_for("OPTIONS", "/v1/topics") is Access.ADMIN
    assert access_for("GET", "/v1/nothing") is Access.READ
    assert access_for("GET", "/rpc/v1/nothing") is Access.BROKER


@pytest.mark.parametrize("role", ["none", "wrong", "reader", "admin", "broker"])
async def test_each_role_may_do_what_the_table_says_and_a_refusal_changes_nothing(tmp_path: Path, role: str) -> None:
    async with a_process(tmp_path, ALL) as process:
        for (method, path), access in TABLE.items():
            expected = GIVES[access][role]
            if path == "/v1/events" and expected is None:
                continue  # its answer does not end; who may hear it is what the refusals prove
            asked, told = len(process.door.asked), len(process.node.lines)
            status, code = await process.ask(method, path.format(**PARTS), role)
            if expected is None:
                assert code not in REFUSALS, (method, path, code)
                assert status not in (401, 500), (method, path, code)
            else:
                assert (status, code) == (REFUSALS[expected], expected), (method, path)
                assert (len(process.door.asked), len(process.node.lines)) == (asked, told), (method, path)


async def test_where_no_secret_is_set_everybody_may_do_everything(tmp_path: Path) -> None:
    async with a_process(tmp_path, NO_SECRETS) as process:
        for method, path in TABLE:
            if path != "/v1/events":
                _, code = await process.ask(method, path.format(**PARTS), "none")
                assert code not in REFUSALS, (method, path)


async def test_with_a_token_for_writes_only_reads_stay_open(tmp_path: Path) -> None:
    async with a_process(tmp_path, Secrets(api_tokens=(ADMIN,))) as process:
        assert (await process.ask("GET", "/v1/topics", "none"))[0] == 200
        assert await process.ask("POST", "/v1/topics", "none") == (401, AUTHENTICATION_REQUIRED)


@pytest.mark.parametrize(
    "header",
    [
        f"Basic {ADMIN}",
        f"Bearer {ADMIN}x",
        f"Bearer {ADMIN[:-1]}",
        "Bearer",
        "Bearer ",
        f"Bearer {ADMIN} {ADMIN}",
        ADMIN,
        "Bearer \xff\xfe",
    ],
)
async def test_nothing_but_the_token_is_the_token(tmp_path: Path, header: str) -> None:
    async with a_process(tmp_path, ALL) as process:
        headers = {"Authorization": header, "Content-Type": "application/json"}
        async with process.client.post(f"{process.url}/v1/topics", headers=headers, data=b"{}") as response:
            assert response.status == 401
            assert response.headers["WWW-Authenticate"].startswith("Bearer")
            assert ADMIN not in await response.text()


@pytest.mark.parametrize(
    ("role", "path", "code"),
    [
        (Role.ADMIN, "/v1/elections", None),
        (Role.READER, "/v1/elections", NOT_ALLOWED),
        (Role.NONE, "/v1/elections", NOT_ALLOWED),
        (Role.NONE, "/v1/what-if", NOT_ALLOWED),
        (Role.BROKER, "/v1/elections", NOT_ALLOWED),
    ],
)
async def test_what_a_broker_passes_on_may_do_what_its_caller_may(
    tmp_path: Path, role: Role, path: str, code: str | None
) -> None:
    async with a_process(tmp_path, ALL) as process:
        headers = process.signed("POST", path, **{wire.ROLE: role.value})
        async with process.client.post(process.url + path, headers=headers, data=b"{}") as response:
            problem = (await response.json(content_type=None)).get("code")
        assert (problem if problem in REFUSALS else None) == code


async def test_a_request_taken_once_is_refused_the_second_time_and_changes_nothing(tmp_path: Path) -> None:
    async with a_process(tmp_path, ALL) as process:
        headers = process.signed("POST", wire.LEADER_AND_ISR)
        for status in (200, 401):
            async with process.client.post(process.url + wire.LEADER_AND_ISR, headers=headers, data=b"{}") as response:
                assert response.status == status
        assert len(process.node.lines) == 1
