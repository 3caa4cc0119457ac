"""Attacks that no other file here tries: the attempt, and its result. The table is in SECURITY.md."""

from __future__ import annotations

import asyncio
import gzip
import io
import ssl
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Final

import aiohttp
import click
import pytest
import structlog
from click.testing import CliRunner

from controller.base import log
from controller.base.config import Limits
from controller.cli.output import Column, RefusedError, print_facts, print_table
from controller.security.tls import server_context_for
from tests.security.authority import Authority
from tests.security.roles import a_process
from tests.security.test_limits import PATIENT, close, the_api
from tests.security.test_secrets import ADMIN, ALL, READER
from tests.security.test_tls import a_config, served, status_of
from tests.waiting import DEADLINE_S

JSON: Final = {"Content-Type": "application/json"}
#: as part of a name: it sets a terminal's title, turns the rest red, and starts a line of its own
ESCAPES: Final = "orders\x1b]0;owned\x07\x1b[31m\rred\x9b2J"

# ---------------------------------------------------------------------- tokens


@pytest.mark.parametrize("where", ["?token=@", "?access_token=@", "?authorization=Bearer%20@", "?api_key=@"])
async def test_a_token_in_an_address_is_no_token_and_is_not_repeated(tmp_path: Path, where: str) -> None:
    async with a_process(tmp_path, ALL) as process:
        for method, token in (("GET", READER), ("POST", ADMIN)):
            url = f"{process.url}/v1/topics{where.replace('@', token)}"
            async with process.client.request(method, url, headers=JSON, data=b"{}") as response:
                assert response.status == 401
                assert token not in await response.text() + str(response.headers)


@pytest.mark.parametrize("cookie", ["Authorization=Bearer @", "KLAMM_API_TOKEN=@", "token=@"])
async def test_a_token_in_a_cookie_is_no_token(tmp_path: Path, cookie: str) -> None:
    async with a_process(tmp_path, ALL) as process:
        headers = {**JSON, "Cookie": cookie.replace("@", ADMIN)}
        async with process.client.post(f"{process.url}/v1/topics", headers=headers, data=b"{}") as response:
            assert response.status == 401


async def test_no_page_tells_where_it_came_from_and_none_may_be_framed(tmp_path: Path) -> None:
    async with a_process(tmp_path, ALL) as process:
        for path in ("/", "/docs"):
            async with process.client.get(process.url + path) as response:
                assert response.headers["Referrer-Policy"] == "no-referrer"
                assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]
                assert "Access-Control-Allow-Origin" not in response.headers


# ---------------------------------------------------------------------- HTTP

SMUGGLED: Final = b"DELETE /v1/topics/orders HTTP/1.1\r\nHost: @\r\nContent-Type: application/json\r\n\r\n"
HEAD: Final = b"POST /v1/what-if HTTP/1.1\r\nHost: @\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        HEAD + b"Content-Length: 0\r\nContent-Length: 200\r\n\r\n" + SMUGGLED,
        HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
        HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        HEAD + b"Content-Length: +0\r\n\r\n" + SMUGGLED,
        HEAD + b"Content-Length: 0x0\r\n\r\n" + SMUGGLED,
        HEAD + b"X: a\r\n Content-Length: 0\r\n\r\n" + SMUGGLED,
        HEAD + b"X: a\0b\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0_0\r\n\r\n" + SMUGGLED,
    ],
    ids=range(10),
)
async def test_a_request_whose_end_can_be_read_in_two_ways_is_refused_and_ends_its_connection(raw: bytes) -> None:
    """Otherwise a second one could hide in its body from a proxy before us."""
    async with the_api(PATIENT) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(raw.replace(b"@", f"{host}:{port}".encode()))
        said = await asyncio.wait_for(reader.read(), DEADLINE_S)
        await close(writer)
    assert said.split(b" ", 2)[1] == b"400", said
    assert said.count(b"HTTP/1.") == 1, said


async def test_a_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(b" " * 100_000_000)
    headers = {**JSON, "Content-Encoding": "gzip"}
    tracemalloc.start()
    try:
        async with the_api(Limits()) as (host, port), aiohttp.ClientSession() as client:
            async with client.post(f"http://{host}:{port}/v1/topics", data=bomb, headers=headers) as response:
                assert response.status == 400
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["%2e%2e%2fapp.js", "..%2f..%2fpyproject.toml", "%2fetc%2fpasswd", "app.js%00.html"])
@pytest.mark.parametrize("folder", ["docs", "dashboard"])
async def test_no_name_leads_out_of_a_folder_of_pages(folder: str, name: str) -> None:
    async with the_api(PATIENT) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        own = f"{host}:{port}"
        writer.write(f"GET /{folder}/{name} HTTP/1.1\r\nHost: {own}\r\nConnection: close\r\n\r\n".encode())
        said = await asyncio.wait_for(reader.read(), DEADLINE_S)
        await close(writer)
    assert said.startswith(b"HTTP/1.1 404 "), said


@pytest.mark.parametrize("name", ["..%2f..%2fcontroller", "%2e%2e", "a%00b", "a%0d%0aX-Evil:%201", "%2f"])
async def test_a_topic_s_name_leads_nowhere_else_and_into_no_header(tmp_path: Path, name: str) -> None:
    async with a_process(tmp_path, ALL) as process:
        headers = {**JSON, "Authorization": f"Bearer {ADMIN}"}
        for method, path in (("DELETE", ""), ("PATCH", "/config"), ("POST", "/partitions")):
            url = aiohttp.client.URL(f"{process.url}/v1/topics/{name}{path}", encoded=True)
            async with process.client.request(method, url, headers=headers, data=b"{}") as response:
                # a missing one is deleted already
                assert 400 <= response.status < 500 or (method, response.status) == ("DELETE", 200)
                assert "X-Evil" not in response.headers


# ---------------------------------------------------------------------- output for people


def test_foreign_text_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def fail() -> None:
        raise RefusedError(400, "INVALID", ESCAPES)

    print_table([Column("TOPIC", lambda item: item["topic"])], [{"topic": ESCAPES}])
    print_facts([("topic", ESCAPES, "")])
    said = capsys.readouterr().out + CliRunner().invoke(fail).output
    assert said.count("owned") == 3
    assert all(one.isprintable() or one == "\n" for one in said), said


def test_nothing_logged_starts_a_line_of_its_own_or_steers_a_terminal() -> None:
    for is_json in (True, False):
        said = io.StringIO()
        log.configure(said, json=is_json)
        structlog.get_logger().warning("topic.unreadable", topic=f"{ESCAPES}\nbroker.failed", reason="\u2028x")
        line = said.getvalue().removesuffix("\n")
        assert "owned" in line
        assert all(one.isprintable() for one in line), line


# ---------------------------------------------------------------------- TLS


async def test_a_certificate_that_has_expired_is_not_believed(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    context = server_context_for(a_config(ssl_keystore_location=ours.keystore("late", days=-1)))
    async with served(context) as address:
        assert await status_of(f"https://{address}/livez", a_config(ssl_truststore_location=ours.trust)) is None


async def test_a_client_without_tls_or_with_an_old_one_is_not_served_and_the_next_one_is(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    async with served(server_context_for(a_config(ssl_keystore_location=ours.keystore("one")))) as address:
        host, _, port = address.partition(":")
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(f"GET /livez HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        said = await asyncio.wait_for(reader.read(), DEADLINE_S)
        assert b"HTTP" not in said
        await close(writer)
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.load_verify_locations(ours.trust)
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, OSError)):
            await asyncio.open_connection(host, port, ssl=old)
        assert await status_of(f"https://{address}/livez", a_config(ssl_truststore_location=ours.trust)) == 200


# ---------------------------------------------------------------------- this machine


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--config", "@", "--set", f"klamm.api.token={ADMIN}"],
        ["run", "--config", "@", "--token", ADMIN],
        ["status", "--token", ADMIN],
        ["controller", "--zookeeper", "127.0.0.1:1", "--set", f"sasl.jaas.config={ADMIN}"],
    ],
    ids=["property", "run", "status", "jaas"],
)
def test_no_command_takes_a_secret_where_ps_shows_it(tmp_path: Path, words: list[str]) -> None:
    """In the environment, and in files of mode 0600, only their owner can read it."""
    config = tmp_path / "server.properties"
    config.write_text("zookeeper.connect=127.0.0.1:1\nlog.dirs=d\n")
    command = [Path(sys.executable).with_name("klamm"), *(word.replace("@", str(config)) for word in words)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done
    assert ADMIN not in done.stdout + done.stderr
