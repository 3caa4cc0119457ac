"""Every path times every role, on a broker's API and RPCs, a controller for real brokers and a lab's supervisor.

The table is in `roles.py`, written by hand: a path that is served and not in it fails.
"""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from brokerstub.lab.server import build_app as build_lab
from controller.api.middleware.access import (
    AUTHENTICATION_REQUIRED,
    NOT_ALLOWED,
    Access,
    Role,
    access_for,
)
from controller.security.secrets import NO_SECRETS, Secrets
from controller.wire import bodies
from tests.api.api_support import routes_of
from tests.security.lab import Lab, a_lab
from tests.security.roles import GIVES, LAB_TABLE, REFUSALS, ROLES, TABLE, Asker, a_process, target_of
from tests.security.test_secrets import ADMIN, ALL


async def test_every_path_has_a_row_and_needs_its_role(tmp_path: Path) -> None:
    async with a_process(tmp_path, ALL) as process:
        assert routes_of(process.app) == TABLE.keys()
    assert routes_of(build_lab(Lab(ALL), 1)) == LAB_TABLE.keys()
    every = {**TABLE, **LAB_TABLE}
    assert {key: access_for(*key) for key in every} == every


def test_an_unlisted_path_needs_the_highest_right() -> None:
    assert access_for("POST", "/v1/nothing") is Access.ADMIN
    assert access_for("POST", "/") is Access.ADMIN
    assert access_for("OPTIONS", "/v1/topics") is Access.ADMIN
    assert access_for("GET", "/v1/nothing") is Access.READ
    assert access_for("GET", "/rpc/v1/nothing") is Access.BROKER


@pytest.mark.parametrize("role", ROLES)
async def test_each_role_has_the_rights_of_the_table_and_a_refusal_changes_nothing(tmp_path: Path, role: str) -> None:
    async with a_process(tmp_path, ALL) as process:
        for (method, path), access in TABLE.items():
            expected = GIVES[access][role]
            before = process.changes
            status, code = await process.ask(method, target_of(path), role)
            if expected is None:
                assert code not in REFUSALS, (method, path, code)
                assert status not in (401, 500), (method, path, code)
            else:
                assert (status, code) == (REFUSALS[expected], expected), (method, path)
                assert process.changes == before, (method, path)


@pytest.mark.parametrize("role", ROLES)
async def test_the_seat_moves_for_an_administrator_only(tmp_path: Path, role: str) -> None:
    async with a_process(tmp_path, ALL) as process:
        process.handle.controller_epoch = None
        for path in ("/v1/takeover", "/v1/handback"):
            await process.ask("POST", path, role)
        assert process.handle.moves == (["hand back"] if role == "admin" else [])


@pytest.mark.parametrize("role", ROLES)
async def test_a_supervisor_obeys_an_administrator_only(role: str) -> None:
    async with a_lab(ALL) as (lab, url), aiohttp.ClientSession() as client:
        asker, obeyed = Asker(url, client), []
        for (method, path), access in LAB_TABLE.items():
            status, code = await asker.ask(method, path, role, lab.order_for(path))
            if (expected := GIVES[access][role]) is None:
                assert (status, code) in ((200, None), (202, None)), (method, path)
                obeyed += [path.rpartition("/")[2]] if method == "POST" else []
            else:
                assert (status, code) == (REFUSALS[expected], expected), (method, path)
        assert lab.obeyed == obeyed


async def test_where_no_secret_is_set_everybody_may_do_everything(tmp_path: Path) -> None:
    async with a_process(tmp_path, NO_SECRETS) as process:
        for method, path in TABLE:
            _, code = await process.ask(method, target_of(path), "none")
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
async def test_a_forwarded_request_has_the_rights_of_its_caller(
    tmp_path: Path, role: Role, path: str, code: str | None
) -> None:
    async with a_process(tmp_path, ALL) as process:
        headers = process.signed("POST", path, **{bodies.ROLE: role.value})
        async with process.client.post(process.url + path, headers=headers, data=b"{}") as response:
            problem = (await response.json(content_type=None)).get("code")
        assert (problem if problem in REFUSALS else None) == code


async def test_a_request_taken_once_is_refused_the_second_time_and_changes_nothing(tmp_path: Path) -> None:
    async with a_process(tmp_path, ALL) as process:
        headers = process.signed("POST", bodies.LEADER_AND_ISR)
        for status in (200, 401):
            async with process.client.post(
                process.url + bodies.LEADER_AND_ISR, headers=headers, data=b"{}"
            ) as response:
                assert response.status == status
        assert len(process.node.lines) == 1
