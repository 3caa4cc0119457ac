"""Identities by TLS and by SASL: our listeners ask for them, our connections prove theirs; strangers get nothing."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
from scramp import ScramMechanism

from controller.base.config import LIMITS, BrokerConfig
from controller.core.model import Broker
from controller.kafka.protocol.access import Access, Admission, Listener, NotAuthenticatedError, Sasl
from controller.kafka.protocol.codec import Reader, Writer
from controller.kafka.server.listener import API_VERSIONS, Api, KafkaServer
from controller.kafka.server.login import Login
from controller.security.tls import client_context_for, server_context_for
from tests.kafka import kafka_support as kio
from tests.kafka.kafka_world import Client
from tests.security.authority import Authority
from tests.waiting import DEADLINE_S

HOST, ECHO = "127.0.0.1", 3
PASSWORD = "right=and,proper"
SCRAM = "SCRAM-SHA-512"


def record_of(password: str) -> str:
    """As Kafka's tools write it to ZooKeeper."""
    salt, stored, server, iterations = ScramMechanism(SCRAM).make_auth_info(password)
    told = [base64.b64encode(one).decode() for one in (salt, stored, server)]
    return f"salt={told[0]},stored_key={told[1]},server_key={told[2]},iterations={iterations}"


async def records(user: str, mechanism: str) -> str | None:
    return record_of(PASSWORD) if (user, mechanism) == ("ka=f,ka", SCRAM) else None


ADMITTED = Admission(("PLAIN", SCRAM), {"ka=f,ka": PASSWORD})


def a_sasl(mechanism: str, user: str = "ka=f,ka", password: str = PASSWORD) -> Sasl:
    return Sasl(mechanism, user, password, ADMITTED)


async def echoed(version: int, reader: Reader, writer: Writer) -> None:
    writer.raw(b"echoed")


@asynccontextmanager
async def served(
    *, tls: ssl.SSLContext | None = None, login: Callable[[], Login] | None = None, **limits: int
) -> AsyncIterator[int]:
    own = {ECHO: Api(0, 0, 9, echoed), API_VERSIONS: Api(0, 3, 3)}

    async def none_foreign() -> Mapping[int, Api]:
        return {}

    async def nowhere(frame: bytes) -> bytes:
        raise AssertionError("nothing is passed on here")

    server = KafkaServer(own, none_foreign, nowhere, msgspec.structs.replace(LIMITS, **limits))
    port = await server.start(HOST, 0, tls=tls, login=login)
    try:
        yield port
    finally:
        await server.close()


async def said_by(access: Access, port: int, protocol: str) -> bytes | None:
    """The answer to a request on a connection opened so; None when it is closed instead."""
    endpoint = f"{protocol}://{HOST}:{port}"
    listener = access.listener_of(Broker(1, 1, None, -1, (endpoint,), None, {protocol: protocol}))
    assert listener is not None
    reader, writer, _ = await access.open(listener)
    try:
        answer = await Client(reader, writer).raw(kio.request_header(ECHO, 0, 7, "c", 1))
    finally:
        writer.transport.abort()
    return answer


async def is_served(access: Access, port: int) -> bool:
    """By TLS; a refusal comes before the first request is sent, or instead of its answer."""
    try:
        return await said_by(access, port, "SSL") is not None
    except (ssl.SSLError, ConnectionError):
        return False


def own(**properties: str) -> BrokerConfig:
    return BrokerConfig(zookeeper_connect="", log_dirs="d", **properties)  # type: ignore[arg-type]


async def test_by_tls_both_sides_know_each_other_or_do_not_speak(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    known = own(ssl_keystore_location=ours.keystore("one"), ssl_truststore_location=ours.trust,
                ssl_client_auth="required")  # fmt: skip
    without = own(ssl_truststore_location=ours.trust)
    stranger = own(ssl_keystore_location=theirs.keystore("two"), ssl_truststore_location=ours.trust)
    distrusting = own(ssl_keystore_location=ours.keystore("three"), ssl_truststore_location=theirs.trust)
    async with served(tls=server_context_for(known)) as port:
        assert await said_by(Access(tls=client_context_for(known)), port, "SSL") == struct.pack(">i", 7) + b"echoed"
        for refused in (without, stranger):
            assert not await is_served(Access(tls=client_context_for(refused)), port)
        with pytest.raises(ssl.SSLCertVerificationError):
            await said_by(Access(tls=client_context_for(distrusting)), port, "SSL")


async def test_a_broker_with_another_name_is_refused_unless_names_are_not_looked_at(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    elsewhere = own(ssl_keystore_location=ours.keystore("one", "DNS:elsewhere.example"))
    async with served(tls=server_context_for(elsewhere)) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await said_by(Access(tls=client_context_for(own(ssl_truststore_location=ours.trust))), port, "SSL")
        lax = own(ssl_truststore_location=ours.trust, ssl_endpoint_identification_algorithm="")
        assert await said_by(Access(tls=client_context_for(lax)), port, "SSL") is not None


@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM])
async def test_a_client_that_logs_in_is_served_and_one_with_a_wrong_password_is_not(mechanism: str) -> None:
    async with served(login=partial(Login, ADMITTED, records)) as port:
        answer = await said_by(Access(sasl=a_sasl(mechanism)), port, "SASL_PLAINTEXT")
        assert answer == struct.pack(">i", 7) + b"echoed"
        for wrong in (a_sasl(mechanism, password="wrong"), a_sasl(mechanism, user="somebody")):
            with pytest.raises(NotAuthenticatedError, match="does not let us in: Authentication failed"):
                await said_by(Access(sasl=wrong), port, "SASL_PLAINTEXT")


async def test_a_mechanism_that_is_not_taken_is_refused_with_those_that_are() -> None:
    only_plain = dataclasses.replace(ADMITTED, enabled=("PLAIN",))
    async with served(login=partial(Login, only_plain, records)) as port:
        with pytest.raises(NotAuthenticatedError, match="does not take SCRAM-SHA-512, but PLAIN"):
            await said_by(Access(sasl=a_sasl(SCRAM)), port, "SASL_PLAINTEXT")


async def a_client(port: int) -> Client:
    return Client(*await asyncio.open_connection(HOST, port))


EARLY = {
    "a request": kio.request_header(ECHO, 0, 1, "c", 1),
    "more bytes than a login has": bytes(70_000),
    "a handshake without a mechanism": kio.request_header(17, 1, 1, "c", 1) + b"\xff\xff",
}


@pytest.mark.parametrize("frame", EARLY.values(), ids=EARLY)
async def test_before_a_login_nothing_else_is_served(frame: bytes) -> None:
    async with served(login=partial(Login, ADMITTED, records)) as port:
        client = await a_client(port)
        assert await client.raw(frame) is None
        client.writer.close()


@pytest.mark.parametrize("mechanism", [None, "PLAIN", SCRAM])
async def test_a_token_that_makes_no_sense_or_comes_out_of_turn_is_refused_and_ends_it(mechanism: str | None) -> None:
    async with served(login=partial(Login, ADMITTED, records)) as port:
        client = await a_client(port)
        if mechanism is not None:
            handshake = kio.schema("sasl_handshake", 1, "request").SaslHandshakeRequest(mechanism=mechanism)
            assert await client.raw(kio.request_header(17, 1, 1, "c", 1) + kio.written(handshake)) is not None
        request = kio.schema("sasl_authenticate", 2, "request").SaslAuthenticateRequest(auth_bytes=b"\0nonsense\xff")
        answer = await client.raw(kio.request_header(36, 2, 2, "c") + kio.written(request))
        assert answer is not None
        response = kio.schema("sasl_authenticate", 2, "response").SaslAuthenticateResponse
        assert kio.read(response, answer[5:]).error_code == 58
        assert await client.raw(kio.request_header(18, 0, 3, "c", 1)) is None
        client.writer.close()


async def test_the_versions_are_told_before_a_login_with_those_that_log_in() -> None:
    async with served(login=partial(Login, ADMITTED, records)) as port:
        client = await a_client(port)
        answer = await client.ask("api_versions", 0, "ApiVersionsRequest")
        assert {one.api_key for one in answer.api_keys} == {ECHO, API_VERSIONS, 17, 36}
        client.writer.close()


async def test_a_client_that_does_not_log_in_in_time_is_disconnected() -> None:
    async with served(login=partial(Login, ADMITTED, records), kafka_login_ms=50) as port:
        client = await a_client(port)
        assert await client.reader.read() == b""
        client.writer.close()


async def test_a_client_that_only_asks_for_versions_is_disconnected_too() -> None:
    async with served(login=partial(Login, ADMITTED, records), kafka_login_ms=100) as port:
        client = await a_client(port)
        async with asyncio.timeout(DEADLINE_S):
            while await client.raw(kio.request_header(API_VERSIONS, 0, 7, "c", 1)) is not None:
                pass
        client.writer.close()


async def test_a_client_that_logged_in_may_be_silent_for_longer_than_a_login_may_last() -> None:
    sasl = a_sasl("PLAIN")
    async with served(login=partial(Login, ADMITTED, records), kafka_login_ms=2_000, kafka_idle_ms=3_600_000) as port:
        access = Access(sasl=sasl)
        opened = await access.open(Listener("SASL_PLAINTEXT", HOST, port, 2))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.2):
                await opened.reader.read(1)
        assert await Client(opened.reader, opened.writer).raw(kio.request_header(ECHO, 0, 7, "c", 1)) is not None
        opened.writer.close()


def test_a_password_is_in_no_representation() -> None:
    assert PASSWORD not in repr(a_sasl("PLAIN"))
