"""A client that can write znodes registers any address: those that nothing is sent to, and secrets that stay here."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial

import pytest

from controller.base.config import LIMITS
from controller.core.model import Broker
from controller.kafka.protocol.access import PROTOCOLS, Access, Listener, NotAuthenticatedError, Sasl, listeners_of
from controller.kafka.server.listener import Refusals
from controller.kafka.server.login import Login
from controller.wire.addresses import split_address
from controller.wire.bodies import address_of
from controller.wire.client import ExchangeError, HttpClient, UnreachableError
from tests.contract.virtual import in_virtual_time
from tests.kafka.test_kafka_login import ADMITTED, HOST, SCRAM, a_sasl, records, said_by, served

FOREIGN = (
    "127.0.0.1:28997/internal/admin?x=",
    "127.0.0.1:28997#",
    "127.0.0.1:28997?",
    "127.0.0.1:80\\",
    "user:password@127.0.0.1:80",
    "127.0.0.1@evil.example:80",
    "127.0.0.1",
    "127.0.0.1:",
    ":9092",
    "127.0.0.1:0",
    "127.0.0.1:65536",
    "127.0.0.1:+80",
    "127.0.0.1:٨٠",
    "a b:80",
    "a\r\nHost: b:80",
    "a\0:80",
    "[::1:80",
    "::1]:80",
    "[nonsense]:80",
    "%2e%2e:80",
    "2852039166:80",
    "0xa9fea9fe:80",
    "169.254.43518:80",
    "127.1:80",
    "",
)
SECRET_PLACES = (
    "169.254.169.254:80",
    "[fe80::1]:80",
    "[fe80::1%eth0]:80",
    "[::ffff:169.254.169.254]:80",
    "[fd00:ec2::254]:80",
    "100.100.100.200:80",
    "metadata.google.internal:80",
    "Metadata.Google.Internal.:80",
    "224.0.0.1:80",
)


@pytest.mark.parametrize("address", [*FOREIGN, *SECRET_PLACES])
def test_an_address_that_is_no_host_and_port_is_sent_nothing(address: str) -> None:
    assert address_of((f"HTTP://{address}",)) is None
    assert listeners_of(a_broker(f"PLAINTEXT://{address}")) == []


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:8081", "127.0.0.1", 8081),
        ("kafka-1.zone_a.example.:9092", "kafka-1.zone_a.example.", 9092),
        ("[2001:db8::7]:1", "2001:db8::7", 1),
        ("::1:65535", "::1", 65535),
        ("b:80", "b", 80),
    ],
)
def test_a_host_and_a_port_is_where_a_broker_is(address: str, host: str, port: int) -> None:
    assert split_address(address) == (host, port)
    assert listeners_of(a_broker(f"PLAINTEXT://{address}")) == [Listener("PLAINTEXT", host, port)]


async def test_a_name_that_resolves_to_where_clouds_keep_secrets_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers of a hostile name server."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    url = address_of(("HTTP://broker-7.example:80",))  # no telling before it is resolved
    assert url is not None
    client = HttpClient()
    try:
        with pytest.raises(UnreachableError) as refused:
            await client.get(f"{url}/latest", {}, 1_000)
        assert "no broker can be" in f"{refused.value} {refused.value.__cause__!r}"
        with pytest.raises(ExchangeError):
            async for _ in client.stream(f"{url}/latest", {}, 1_000):
                pass
    finally:
        await client.close()


def test_where_tls_is_set_up_no_password_travels_in_plain_text() -> None:
    tls = ssl.create_default_context()
    broker = a_broker("SASL_PLAINTEXT://127.0.0.1:9092")
    told = Access(tls=tls, sasl=Sasl("PLAIN", "us", "secret"))
    assert told.listener_of(broker) is None
    assert "use SASL_SSL" in told.trouble_with(broker)
    assert told.listener_of(a_broker("SASL_SSL://127.0.0.1:9092")) is not None
    assert Access(tls=tls, sasl=Sasl(SCRAM, "us", "secret")).listener_of(broker) is not None  # tells no password
    assert Access(sasl=Sasl("PLAIN", "us", "secret")).listener_of(broker) is not None  # the operator chose that


@pytest.mark.parametrize("iterations", [1, 4_095, 65_537, 10_000_000, 2**63])
async def test_a_broker_that_asks_for_too_much_or_too_little_hashing_is_left(iterations: int) -> None:
    class Hostile(Login):
        async def _next(self, token: bytes) -> bytes:
            return f"r={token.decode().rpartition('r=')[2]}x,s=c2FsdHNhbHRzYWx0c2FsdA==,i={iterations}".encode()

    with pytest.raises(NotAuthenticatedError, match=r"asks for \d+ iterations|must not be [<>]"):
        await logged_in(partial(Hostile, ADMITTED, records))


async def test_our_own_hashing_is_done_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[str]()

    async def noted(function: Callable[..., object], *given: object) -> object:
        done.append(getattr(function, "__qualname__", ""))
        return function(*given)

    monkeypatch.setattr(asyncio, "to_thread", noted)
    assert await logged_in(partial(Login, ADMITTED, records)) is not None
    assert "ScramClient.get_client_final" in done


async def logged_in(login: Callable[[], Login]) -> bytes | None:
    async with served(login=login) as port:
        return await said_by(Access(sasl=a_sasl(SCRAM)), port, "SASL_PLAINTEXT")


@in_virtual_time
async def test_a_peer_guesses_no_faster_over_many_connections() -> None:
    now_s = asyncio.get_running_loop().time
    started = now_s()
    async with served(login=partial(Login, ADMITTED, records)) as port:

        async def guess(number: int) -> None:
            with pytest.raises(NotAuthenticatedError):
                await said_by(Access(sasl=a_sasl("PLAIN", password=f"guess-{number}")), port, "SASL_PLAINTEXT")

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(guess(number))
        assert now_s() - started >= 8 * LIMITS.kafka_refusal_ms / 1000
        before = now_s()
        assert await said_by(Access(sasl=a_sasl("PLAIN")), port, "SASL_PLAINTEXT") is not None
        assert now_s() - before < LIMITS.kafka_refusal_ms / 1000  # a client with the password does not wait


@in_virtual_time
async def test_nothing_is_kept_of_peers_that_were_refused() -> None:
    refusals = Refusals(500)
    waiting = [asyncio.create_task(refusals.wait(f"peer-{number % 3}")) for number in range(12)]
    await asyncio.sleep(0)
    waiting[-1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert refusals._last == {}


def a_broker(endpoint: str) -> Broker:
    name = endpoint.partition("://")[0]
    assert name in (*PROTOCOLS, "HTTP")
    return Broker(1, 1, HOST, -1, (endpoint,), None, {name: name})
