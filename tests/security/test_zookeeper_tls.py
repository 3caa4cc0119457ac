"""TLS to ZooKeeper: by a real server that asks for certificates, with strangers on either side refused."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from controller.base.config import BrokerConfig, ConfigError, broker_config_for
from controller.core.operations import Create, Set
from controller.security.tls import NETTY, server_context_for, zookeeper_context_for
from controller.zookeeper import client as zk
from controller.zookeeper.connection import Connection, open_streams
from controller.zookeeper.port import SessionState
from tests.contract.labs import eventually, stays
from tests.contract.test_connecting import EmptyBufferGuard
from tests.security.authority import Authority
from tests.waiting import DEADLINE_S, until

ENABLED = {"zookeeper.ssl.client.enable": "true"}


def a_config(**properties: str) -> BrokerConfig:
    """Properties with `_` in the place of dots."""
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return broker_config_for({"zookeeper.connect": "unused", "log.dirs": "d", **given})


def to_zookeeper(authority: Authority, name: str | None, **more: str) -> dict[str, str]:
    """The properties of a client that trusts this authority, and shows its certificate of that name."""
    shown = {} if name is None else {"zookeeper_ssl_keystore_location": authority.keystore(name)}
    return {
        "zookeeper_ssl_client_enable": "true",
        "zookeeper_ssl_truststore_location": authority.trust,
        **shown,
        **more,
    }


@asynccontextmanager
async def a_secure_server(directory: Path, authority: Authority, address: str = "IP:127.0.0.1") -> AsyncIterator[int]:
    """The port of a server for clients with a certificate of this authority. It has a plain one for its keeper."""
    port = free_port()
    settings = {
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": authority.keystore("zookeeper", address),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": authority.trust,
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
    }
    server = ZooKeeperServer(directory / "zookeeper", free_port(), fsync=False, settings=settings)
    await server.start(int(DEADLINE_S * 1_000))  # with Netty it takes longer than the lab's own: all its classes
    try:
        yield port
    finally:
        await server.stop()


async def connected(port: int, config: BrokerConfig, **how: Any) -> zk.ZooKeeperClient:
    timeouts = {"session_timeout_ms": 60_000, "connect_timeout_ms": 60_000, **how}
    return await zk.connect([("127.0.0.1", port)], tls=zookeeper_context_for(config), **timeouts)


@pytest.mark.java
async def test_a_session_by_tls_reads_writes_watches_and_outlives_its_connection(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    async with a_secure_server(tmp_path, ours) as port:
        client = await connected(port, a_config(**to_zookeeper(ours, "broker")))
        other = await connected(port, a_config(**to_zookeeper(ours, "other")), auth="digest:ann:secret", owns=True)
        seen: list[str] = []
        client.on_watch(lambda event: seen.append(event.path))
        large = bytes(900_000)
        assert (await client.transact([Create("/a", large), Create("/a/b", b"1")])).refused is None
        node = await client.get("/a", watch=True)
        assert node is not None
        assert node.data == large
        many = await client.get_many(["/a"] * 30)  # some 27 MB
        assert len(many) == 30
        assert (await other.transact([Set("/a", b"2", 0)])).refused is None
        await until(lambda: seen, "the watch fires")
        session = client.session_id
        await client._session.reconnect("the test")
        await until(lambda: client.state is SessionState.CONNECTED, "it is connected again")
        assert client.session_id == session
        assert (await client.get("/a/b")) is not None
        await client.close()
        await other.close()


async def refusal_of(port: int, properties: Mapping[str, str]) -> str:
    """Why the first attempt to get a session fails."""
    with capture_logs() as lines:
        connecting = asyncio.create_task(connected(port, a_config(**properties)))

        def failures() -> list[str]:
            return [str(one["reason"]) for one in lines if one["event"] == "connection.failed"]

        await until(failures, "an attempt has failed")
        connecting.cancel()
        [outcome] = await asyncio.gather(connecting, return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError)
    return failures()[0]


@pytest.mark.java
async def test_neither_side_speaks_to_a_stranger(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    foreign = {"zookeeper_ssl_keystore_location": theirs.keystore("stranger")}
    async with a_secure_server(tmp_path, ours) as port:
        assert "verify failed" in await refusal_of(port, to_zookeeper(theirs, "client"))
        for properties in (to_zookeeper(ours, None), to_zookeeper(ours, None, **foreign), {}):
            assert await refusal_of(port, properties)


@pytest.mark.java
async def test_a_server_of_another_name_is_refused_unless_names_are_not_looked_at(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    async with a_secure_server(tmp_path, ours, "DNS:elsewhere.example") as port:
        properties = to_zookeeper(ours, "broker")
        assert "verify failed" in await refusal_of(port, properties)
        lax = {**properties, "zookeeper_ssl_endpoint_identification_algorithm": ""}
        await (await connected(port, a_config(**lax))).close()


@pytest.mark.java
@pytest.mark.timeout(240)
async def test_a_broker_that_knows_zookeeper_by_tls_becomes_the_controller(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    async with a_secure_server(tmp_path, ours) as port:
        properties = {
            "broker.id": "1",
            "zookeeper.connect": f"127.0.0.1:{port}/klamm",
            "log.dirs": str(tmp_path / "broker"),
            "listeners": f"HTTP://127.0.0.1:{free_port()}",
            "zookeeper.clientCnxnSocket": NETTY,
            **{name.replace("_", "."): value for name, value in to_zookeeper(ours, "broker").items()},
        }
        file = tmp_path / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        command = (sys.executable, "-c", "from controller.cli import main; main()", "run", "--config", str(file))
        with (tmp_path / "log").open("wb") as output:
            broker = await asyncio.create_subprocess_exec(*command, stderr=output)
        reader = await connected(port, a_config(**to_zookeeper(ours, "reader")), chroot="/klamm")
        try:
            await until(lambda: reader.get("/controller"), "it has the seat")
        finally:
            await reader.close()
            broker.terminate()
            await broker.wait()


async def test_by_tls_too_a_guard_is_asked_when_the_socket_takes_the_bytes_and_not_before(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    serving = BrokerConfig(zookeeper_connect="", log_dirs="d", ssl_keystore_location=ours.keystore("server"))
    arrived: list[asyncio.StreamWriter] = []

    async def never_read(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append(writer)

    listener = await asyncio.start_server(never_read, "127.0.0.1", 0, ssl=server_context_for(serving))
    context = zookeeper_context_for(a_config(**to_zookeeper(ours, None)))
    reader, writer = await open_streams("127.0.0.1", listener.sockets[0].getsockname()[1], context)
    connection = Connection(
        *(reader, writer),
        clock=time.monotonic,
        max_in_flight_requests=100,
        on_answer=lambda _sent_at, _zxid: None,
        on_notification=lambda _frame: None,
    )
    guard = EmptyBufferGuard(writer)
    calls = [asyncio.create_task(connection.send(b"x" * 1_000_000, guard=guard)) for _ in range(30)]
    await eventually(lambda: guard.checks > 0)
    await stays(lambda: guard.checks < 20, 0.1)
    connection.abort("enough")
    assert await connection.read() == "enough"
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert not any(isinstance(one, AssertionError) for one in results), results
    assert len([one for one in results if isinstance(one, asyncio.Future)]) == guard.checks
    for one in arrived:
        one.transport.abort()
    listener.close()
    await listener.wait_closed()


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"zookeeper.ssl.truststore.location": "x"}, "zookeeper.ssl.client.enable"),
        (
            {**ENABLED, "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNIO"},
            "ClientCnxnSocketNetty",
        ),
        ({**ENABLED, "zookeeper.ssl.keystore.type": "JKS"}, "zookeeper.ssl.keystore.type: only PEM"),
        ({**ENABLED, "zookeeper.ssl.endpoint.identification.algorithm": "ldap"}, "https, or empty"),
        ({**ENABLED, "zookeeper.ssl.truststore.location": "nowhere.pem"}, "no PEM file of certificates"),
    ],
)
def test_settings_that_make_no_sense_are_refused(properties: dict[str, str], said: str) -> None:
    given = {"zookeeper.connect": "unused", "log.dirs": "d", **properties}
    with pytest.raises(ConfigError, match=said):
        zookeeper_context_for(broker_config_for(given))


def test_without_settings_there_is_no_tls() -> None:
    assert zookeeper_context_for(a_config()) is None
