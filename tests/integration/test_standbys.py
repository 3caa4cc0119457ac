"""Controllers of ours beside each other on a real ZooKeeper: a standby answers as the active one, and follows it."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from signal import Signals

import pytest
import pytest_asyncio
from kazoo.client import KazooClient

from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from controller.security.tls import client_context_from
from controller.wire.client import ExchangeError, HttpClient
from controller.zookeeper.layout import TOP_LEVEL_PATHS
from tests.browser.pages import a_visit
from tests.real_brokers.cluster import Controller, written
from tests.security.authority import Authority
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.long]
Starting = Callable[..., Awaitable[Controller]]
CHROOT = "/standbys"


@pytest_asyncio.fixture
async def zookeeper(tmp_path: Path) -> AsyncIterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path / "zookeeper", free_port(), fsync=False)
    await server.start()
    yield server
    await server.stop()


@pytest_asyncio.fixture
async def kazoo(zookeeper: ZooKeeperServer) -> AsyncIterator[KazooClient]:
    client = KazooClient(hosts=zookeeper.address, timeout=30)
    await asyncio.to_thread(client.start)
    client.create(f"{CHROOT}/cluster/id", b'{"version":"1","id":"a-cluster"}', makepath=True)
    for path in TOP_LEVEL_PATHS:
        client.ensure_path(f"{CHROOT}{path}")
    yield client
    await asyncio.to_thread(client.stop)
    client.close()


@pytest_asyncio.fixture
async def starting(zookeeper: ZooKeeperServer, kazoo: KazooClient, tmp_path: Path) -> AsyncIterator[Starting]:
    started: list[Controller] = []

    async def start(controller_id: int, *more: str, name: str = "", tls: ssl.SSLContext | None = None) -> Controller:
        directory = tmp_path / name
        started.append(Controller(directory, zookeeper.address + CHROOT, controller_id, more, tls=tls))
        await started[-1].start()
        return started[-1]

    yield start
    for controller in started:
        await controller.end(Signals.SIGKILL)


def a_broker(kazoo: KazooClient, broker_id: int) -> None:
    """Register one of Kafka's brokers; no server listens there."""
    told = {"version": 5, "host": "127.0.0.1", "port": 1, "endpoints": ["PLAINTEXT://127.0.0.1:1"], "features": {}}
    told |= {"listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}, "jmx_port": -1, "timestamp": "0"}
    kazoo.create(f"{CHROOT}/brokers/ids/{broker_id}", json.dumps(told).encode(), ephemeral=True)


def a_seat(kazoo: KazooClient, broker_id: int) -> None:
    """Held by one of Kafka's."""
    told = {"version": 2, "brokerid": broker_id, "timestamp": "0", "kraftControllerEpoch": -1}
    kazoo.create(f"{CHROOT}/controller", json.dumps(told).encode(), ephemeral=True)
    kazoo.create(f"{CHROOT}/controller_epoch", b"1")


def a_topic(kazoo: KazooClient, name: str, leader: int) -> None:
    told = {"version": 3, "topic_id": "AAAAAAAAAAAAAAAAAAAAAg", "partitions": {"0": [leader]}}
    told |= {"adding_replicas": {}, "removing_replicas": {}}
    path = f"{CHROOT}/brokers/topics/{name}"
    kazoo.create(path, json.dumps(told).encode())
    state = {"controller_epoch": 1, "leader": leader, "version": 1, "leader_epoch": 0, "isr": [leader]}
    kazoo.create(f"{path}/partitions/0/state", json.dumps(state).encode(), makepath=True)


async def test_a_standby_answers_out_of_the_active_ones_mouth_and_follows_it(
    starting: Starting, kazoo: KazooClient
) -> None:
    a_broker(kazoo, 1)
    active = await starting(100)
    await until(active.is_active, "the first one is active")
    standby = await starting(101)

    async def has_found_it() -> bool:
        return (await standby.ask("GET", "/v1/topics"))[0] == 200

    await until(has_found_it, "the standby has found it")
    created = await standby.ask("POST", "/v1/topics", {"name": "orders", "assignment": {"0": [1]}})
    assert created[0] == 201, created
    for path in (
        *("/v1/cluster", "/v1/brokers", "/v1/brokers/1", "/v1/topics", "/v1/topics/orders", "/v1/partitions"),
        *("/v1/topics/orders/partitions", "/v1/partitions/orders/0/story", "/v1/controller/history", "/v1/matrix"),
        *("/v1/reassignments", "/v1/cluster/config", "/v1/controller/states", "/healthz/cluster"),
    ):
        said, passed_on = await active.ask("GET", path), await standby.ask("GET", path)
        assert said[0] == passed_on[0] != 0, (path, said, passed_on)
        assert comparable(said[1]) == comparable(passed_on[1]), path
    assert (await standby.ask("POST", "/v1/what-if", {"kill": [1]}))[1]["offline"] == ["orders-0"]
    assert (await standby.ask("GET", "/v1/controller"))[1]["broker_id"] == 100
    await active.end(Signals.SIGKILL)
    await until(standby.is_active, "the other one follows")
    assert [one["name"] for one in (await standby.ask("GET", "/v1/topics"))[1]["items"]] == ["orders"]


def comparable(body: object) -> object:
    """Without the fields that differ from one moment to the next."""
    if isinstance(body, dict):
        return {key: comparable(value) for key, value in body.items() if not key.endswith("_ms") and key != "recent"}
    return [comparable(one) for one in body] if isinstance(body, list) else body


async def klamm(*words: str, **environment: str) -> tuple[int | None, str]:
    """Returns exit code and output."""
    command = (sys.executable, "-c", "from controller.cli import main; main()", *words)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdout=pipe, stderr=asyncio.subprocess.STDOUT, env={**os.environ, **environment}
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()


async def test_status_asked_of_a_standby_names_the_active_one_and_its_epoch(
    starting: Starting, kazoo: KazooClient
) -> None:
    a_broker(kazoo, 1)
    active = await starting(100)
    await until(active.is_active, "the first one is active")
    standby = await starting(101)

    async def is_said() -> bool:
        code, said = await klamm("status", "--url", standby.url)
        return code == 0 and "controller   broker 100, epoch 1, for " in said

    await until(is_said, "it is named with its age")
    assert (await klamm("wait", "--for", "controller", "--url", standby.url))[0] == 0


async def test_while_a_broker_is_the_controller_a_standby_says_so_with_a_remedy(
    starting: Starting, kazoo: KazooClient
) -> None:
    a_broker(kazoo, 1)
    a_seat(kazoo, 1)
    a_topic(kazoo, "orders", leader=1)
    standby = await starting(100)

    async def has_seen_it() -> bool:
        return bool((await standby.ask("GET", "/v1/controller"))[1]["kind"] == "kafka")

    await until(has_seen_it, "it has seen the seat's holder")
    seat = {"broker_id": 1, "controller_epoch": 1, "since": None, "age_ms": None, "phase": "active", "kind": "kafka"}
    assert (await standby.ask("GET", "/v1/controller"))[1] == seat
    # ZooKeeper's state is shown
    status, cluster = await standby.ask("GET", "/v1/cluster")
    assert (status, cluster["controller"], cluster["counts"]["brokers_live"]) == (200, seat, 1)
    assert [one["name"] for one in (await standby.ask("GET", "/v1/topics"))[1]["items"]] == ["orders"]
    [partition] = (await standby.ask("GET", "/v1/partitions"))[1]["items"]
    assert (partition["leader"], partition["isr"], partition["state"]) == (1, [1], "online")
    # and that the controller is not ours, with a remedy
    status, health = await standby.ask("GET", "/healthz/cluster")
    assert (status, health["status"]) == (200, "yellow")
    assert "broker 1, one of Kafka's own, is the controller" in health["reasons"][0]
    assert "`klamm takeover`" in health["reasons"][0]
    client = HttpClient()
    metrics = (await client.send("GET", f"{standby.url}/metrics", b"", {}, 10_000)).body.decode()
    await client.close()
    for line in (
        *("klamm_controller_is_kafka 1.0", "klamm_controller_epoch 1.0"),
        *(
            "kafka_server_metadataloader_currentcontrollerid 1.0",
            "kafka_controller_kafkacontroller_activecontrollercount 0.0",
        ),
    ):
        assert line in metrics.splitlines()
    code, said = await klamm("status", "--url", standby.url)
    assert (code, "controller   broker 1, one of Kafka's own, epoch 1\n" in said) == (1, True), said
    assert "1 online, 0 offline" in said
    # requests that only a controller can carry out are refused with the same words
    for method, path, body in (
        ("POST", "/v1/topics", {"name": "payments", "assignment": {"0": [1]}}),
        ("GET", "/v1/partitions/orders/0/story", None),
    ):
        status, problem = await standby.ask(method, path, body)
        assert (status, problem["code"]) == (503, "NOT_CONTROLLER")
        assert "broker 1 is the controller, and none of ours: see `klamm takeover`" in problem["detail"]
    dry = await standby.ask("POST", "/v1/takeover", {"dry_run": True})
    assert (dry[0], dry[1]["taken"], dry[1]["check"]["controller"]) == (200, False, 1)


async def test_a_second_process_of_the_same_id_ends_and_says_why(starting: Starting, kazoo: KazooClient) -> None:
    await starting(100)
    other = await starting(100, name="other")
    assert await other.ended() == 1
    assert "another controller of ours has the id 100: give this one another --id" in other.log_text()


@pytest.mark.chromium
async def test_by_https_commands_page_and_standby_speak_to_the_active_one_and_clients_without_a_certificate_do_not(
    starting: Starting, kazoo: KazooClient, tmp_path: Path
) -> None:
    authority, a_browser = Authority(tmp_path, "ours"), "--ignore-certificate-errors"
    trusting = {"KLAMM_TLS_CA": authority.trust, "KLAMM_TLS_CERT": authority.keystore("command")}
    tls = client_context_from(trusting)

    async def secured(controller_id: int, client_auth: str) -> Controller:
        properties = {
            "ssl.keystore.location": authority.keystore(f"controller-{controller_id}"),
            "ssl.truststore.location": authority.trust,
            "ssl.client.auth": client_auth,
        }
        path = written(tmp_path / f"{controller_id}.properties", properties)
        return await starting(controller_id, "--config", str(path), tls=tls)

    a_broker(kazoo, 1)
    active = await secured(100, "required")
    await until(active.is_active, "the first one is active")
    standby = await secured(101, "none")  # the browser of this test has no certificate

    async def is_led() -> bool:
        return (await klamm("status", "--url", standby.url, **trusting))[0] == 0

    await until(is_led, "the standby passes on")
    # a command's write, handed on by the standby with its own certificate
    code, said = await klamm("topics", "create", "orders", "--assignment", "1", "--url", standby.url, **trusting)
    assert (code, "created orders" in said) == (0, True), said
    code, said = await klamm("topics", "list", "-o", "name", "--url", active.url, **trusting)
    assert (code, said) == (0, "orders\n"), said
    # a client that trusts no authority here, or shows no certificate, is told so and gets nothing
    for url, environment, reason in (
        (active.url, {"KLAMM_TLS_CA": authority.trust}, "if it wants to be shown a certificate, KLAMM_TLS_CERT names"),
        (standby.url, {}, "its certificate is not trusted here; KLAMM_TLS_CA names"),
    ):
        code, said = await klamm("status", "--url", url, **environment)
        assert (code, reason in said) == (3, True), said
    plain = HttpClient()
    with pytest.raises(ExchangeError):
        await plain.send("GET", active.url.replace("https", "http") + "/livez", b"", {}, 5_000)
    await plain.close()
    async with a_visit(flags=[a_browser]) as visit:
        await visit.page.goto(standby.url)
        # live: the stream of the active one comes through the standby
        await visit.until("document.querySelector('#live .on') !== null")
        await visit.until("document.querySelectorAll('.matrix-body .matrix-row').length === 1")
        assert await visit.text("#controller strong") == "broker 100"
        assert visit.complaints == []
    handed = await klamm("takeover", "--dry-run", "--url", standby.url, **trusting)
    assert all(said in handed[1] for said in ("broker 100, epoch 1", "brokers [1] cannot be spoken to")), handed
