"""TLS by files: a client asks only servers it trusts, a server that wants certificates serves only clients with one."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from controller.api.middleware.connections import BoundedListener, Connections
from controller.api.serve.app import build_app
from controller.base.config import BrokerConfig, ConfigError
from controller.security.tls import client_context_for, server_context_for
from controller.wire.bodies import address_of
from controller.wire.client import ExchangeError, HttpClient
from tests.api.api_support import CONFIG, FakeHandle, View
from tests.security.authority import Authority
from tests.waiting import until


def a_config(**properties: str) -> BrokerConfig:
    return BrokerConfig(zookeeper_connect="", log_dirs="d", **properties)  # type: ignore[arg-type]


@asynccontextmanager
async def served(context: ssl.SSLContext) -> AsyncIterator[str]:
    port = free_port()
    app = build_app(View(), FakeHandle(), listeners=[f"127.0.0.1:{port}"], config=CONFIG)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await BoundedListener(runner, Connections(), "127.0.0.1", port, context).start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def status_of(url: str, config: BrokerConfig) -> int | None:
    """None when no answer came."""
    client = HttpClient(tls=client_context_for(config))
    try:
        return (await client.get(url, {}, 5_000))[0]
    except ExchangeError:
        return None
    finally:
        await client.close()


def test_a_listener_named_https_is_asked_by_tls() -> None:
    endpoints = ("HTTP://h:1", "HTTPS://h:2", "BROKERS_HTTPS://h:3")
    assert address_of(endpoints) == "http://h:1"
    assert address_of(endpoints, "HTTPS") == "https://h:2"
    assert address_of(endpoints, "BROKERS_HTTPS") == "https://h:3"


async def test_a_server_is_believed_by_its_authority_and_its_name(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    trusting = a_config(ssl_truststore_location=ours.trust)
    async with served(server_context_for(a_config(ssl_keystore_location=ours.keystore("one")))) as address:
        assert await status_of(f"https://{address}/livez", trusting) == 200
        assert await status_of(f"https://{address}/livez", a_config()) is None
        assert await status_of(f"https://{address}/livez", a_config(ssl_truststore_location=theirs.trust)) is None
        assert await status_of(f"http://{address}/livez", trusting) is None
    elsewhere = ours.keystore("two", "DNS:elsewhere.example")
    async with served(server_context_for(a_config(ssl_keystore_location=elsewhere))) as address:
        assert await status_of(f"https://{address}/livez", trusting) is None


async def test_where_certificates_are_required_only_clients_with_one_are_served(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    server = a_config(
        ssl_keystore_location=ours.keystore("one"), ssl_truststore_location=ours.trust, ssl_client_auth="required"
    )
    async with served(server_context_for(server)) as address:
        url = f"https://{address}/livez"
        assert await status_of(url, server) == 200
        assert await status_of(url, a_config(ssl_truststore_location=ours.trust)) is None
        foreign = a_config(ssl_truststore_location=ours.trust, ssl_keystore_location=theirs.keystore("three"))
        assert await status_of(url, foreign) is None


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    keystore = Authority(tmp_path, "ours").keystore("one")
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location"):
        server_context_for(a_config())
    with pytest.raises(ConfigError, match=r"ssl\.client\.auth"):
        server_context_for(a_config(ssl_keystore_location=keystore, ssl_client_auth="perhaps"))
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location"):
        server_context_for(a_config(ssl_keystore_location=keystore, ssl_client_auth="required"))
    (tmp_path / "nonsense").write_text("nonsense")
    with pytest.raises(ConfigError, match="no PEM file"):
        client_context_for(a_config(ssl_truststore_location=str(tmp_path / "nonsense")))
    Path(keystore).chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        server_context_for(a_config(ssl_keystore_location=keystore))


@pytest.mark.java
@pytest.mark.slow
async def test_brokers_and_commands_speak_tls_to_each_other(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    ports, processes = [free_port() for _ in range(2)], []
    try:
        for number, port in enumerate(ports, start=1):
            path = tmp_path / f"{number}.properties"
            path.write_text(
                f"broker.id={number}\nzookeeper.connect={zookeeper.address}/tls\nlog.dirs={tmp_path / str(number)}\n"
                f"listeners=HTTPS://127.0.0.1:{port}\ninter.broker.listener.name=HTTPS\nssl.client.auth=required\n"
                f"ssl.keystore.location={authority.keystore(f'broker-{number}')}\n"
                f"ssl.truststore.location={authority.trust}\nzookeeper.session.timeout.ms=4000\n"
            )
            with (tmp_path / f"{number}.log").open("wb") as log:
                command = (sys.executable, "-m", "brokerstub", "--config", str(path))
                processes.append(await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log))
        environment = {"KLAMM_TLS_CA": authority.trust, "KLAMM_TLS_CERT": authority.keystore("command"), "PATH": ""}
        create = ("topics", "create", "orders", "--partitions", "2", "--replication-factor", "2")
        for words in (create, ("wait", "--for", "healthy", "--timeout", "60s")):

            async def is_done(words: tuple[str, ...] = words) -> bool:
                return (await klamm(environment, ports[0], *words))[0] == 0

            await until(is_done, f"{words}: {tmp_path}/1.log says why not")
        assert (await klamm({"PATH": ""}, ports[0], "status"))[0] == 3
    finally:
        for process in processes:
            process.kill()
            await process.wait()


async def klamm(environment: dict[str, str], port: int, *words: str) -> tuple[int | None, bytes]:
    """Exit code and all that it said."""
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-c",
            "from controller.cli import main; main()",
            *words,
            "--url",
            f"https://127.0.0.1:{port}",
        ),
        env={**environment, "PYTHONPATH": ":".join(sys.path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode, said
