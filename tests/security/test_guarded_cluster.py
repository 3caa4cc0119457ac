"""Real processes with every secret set: they work together, strangers are refused, and no secret is anywhere after."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kazoo.exceptions import NoAuthError

from brokerstub.lab.zookeeper import ZooKeeperServer
from controller.wire import bodies
from tests.integration.cluster import REQUEST_TIMEOUT_MS, Broker, Cluster, a_cluster
from tests.security.test_secrets import ADMIN, READER, RPC
from tests.waiting import until

PASSWORD = "zookeeper-password-of-the-tests"
SECRETS = {
    "KLAMM_API_TOKEN": ADMIN,
    "KLAMM_RPC_SECRET": RPC,
    "KLAMM_ZOOKEEPER_AUTH": f"digest:klamm:{PASSWORD}",
}
JSON = {"Content-Type": "application/json", "Klamm-Forward": "1"}

ALL_RIGHTS, READ = 31, 1
OWNED = ((ALL_RIGHTS, "digest"), (READ, "world"))
SENSITIVE = ("/config/users", "/config/brokers")

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture
async def cluster(
    zookeeper: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Cluster]:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    async with a_cluster([zookeeper], tmp_path, properties={"zookeeper.set.acl": "true"}) as cluster:
        yield cluster


async def post(broker: Broker, path: str, body: object, **headers: str) -> tuple[int, str]:
    """The answer's status and its text."""
    data = json.dumps(body).encode()
    status, said = await broker._http.post(f"{broker.url}{path}", data, {**JSON, **headers}, REQUEST_TIMEOUT_MS)
    return status, said.decode()


async def test_signed_brokers_fail_over_and_strangers_change_nothing(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.start()
    standby = next(one for one in cluster.running if one is not cluster.controller)
    token = {"Authorization": f"Bearer {ADMIN}"}
    orders = {"name": "orders", "partitions": 6, "replication_factor": 3}
    said = []
    status, text = await post(standby, "/v1/topics", orders, **token)  # passed on, signed
    assert status == 201, text
    await cluster.whole()
    before = await cluster.states()

    said += await _refusals(cluster, orders, token)
    assert await cluster.states() == before

    dead = cluster.controller
    await dead.kill()
    survivors = cluster.running

    async def is_led() -> bool:
        states = await cluster.states()
        return dead.broker_id not in {state.leader for state in states.values()} and await cluster.is_agreed()

    await until(is_led, "the survivors lead and agree")
    await cluster.start(dead.broker_id)  # fetches and asks for its place in the ISRs, signed
    assert {state.isr for state in (await cluster.states()).values()} <= {tuple(order) for order in _orders_of(1, 2, 3)}
    await survivors[0].stop()  # a controlled shutdown, signed
    assert survivors[0].log("shutdown.granted")

    with pytest.raises(NoAuthError):  # kazoo has sent no identity
        await cluster.zookeeper("set", "/controller_epoch", b"99")
    with pytest.raises(NoAuthError):
        await cluster.zookeeper("get", "/config/brokers")
    await asyncio.to_thread(cluster._kazoo.add_auth, "digest", f"klamm:{PASSWORD}")
    acls = await _acls(cluster, "/")
    assert {path: acl for path, acl in acls.items() if acl != OWNED and not path.startswith(SENSITIVE)} == {}
    assert {acl for path, acl in acls.items() if path.startswith(SENSITIVE)} == {OWNED[:1]}

    secrets = [ADMIN, RPC, PASSWORD]
    for broker in cluster.running:
        for path in ("/metrics", "/v1/controller/history", "/openapi.json", "/v1/brokers/1/config", "/healthz/cluster"):
            _, answer = await broker._http.get(f"{broker.url}{path}", {"Klamm-Forward": "1"}, REQUEST_TIMEOUT_MS)
            said.append(answer.decode())
    said += [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    pids = [broker.row.pid for broker in cluster.running]
    said += [Path(f"/proc/{pid}/cmdline").read_text(errors="replace") for pid in pids if Path("/proc/self").exists()]
    modes = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.rglob("session")}
    assert set(modes.values()) == {0}, "the password of a session is its owner's alone"
    said += [data.decode(errors="replace") for data in await _znodes(cluster, "/")]
    assert len(said) > 20
    assert [text for text in said for secret in secrets if secret in text] == []


async def _refusals(cluster: Cluster, orders: dict[str, object], token: dict[str, str]) -> list[str]:
    """Returns the answers to strangers that want to write, or to speak for a broker."""
    said = []
    for broker in cluster.running:
        for headers in ({}, {"Authorization": f"Bearer {READER}"}, {"Authorization": f"Bearer {RPC}"}):
            status, text = await post(broker, "/v1/topics", {**orders, "name": "stolen"}, **headers)
            assert status == 401
            said.append(text)
        heads = {
            bodies.CONTROLLER_ID: "1",
            bodies.CONTROLLER_EPOCH: "99",
            bodies.BROKER_EPOCH: "0",
            bodies.SENDER: "1 0",
        }
        for path in (bodies.LEADER_AND_ISR, bodies.STOP_REPLICA, bodies.ALTER_PARTITION, bodies.FETCH):
            status, text = await post(broker, path, {"topics": []}, **heads, **token)
            assert status == 401
            said.append(text)
    return said


def _orders_of(*ids: int) -> list[tuple[int, ...]]:
    if len(ids) == 1:
        return [ids]
    return [(one, *rest) for one in ids for rest in _orders_of(*(other for other in ids if other != one))]


async def _acls(cluster: Cluster, path: str) -> dict[str, tuple[tuple[int, str], ...]]:
    """Returns rights and their owners, of this znode and of all below it."""
    acls, _ = await cluster.zookeeper("get_acls", path.rstrip("/"))
    found = {path: tuple((one.perms, one.id.scheme) for one in acls)}
    for name in await cluster.zookeeper("get_children", path.rstrip("/")):
        found |= await _acls(cluster, f"{path.rstrip('/')}/{name}")
    return found


async def _znodes(cluster: Cluster, path: str) -> list[bytes]:
    """The content of this znode and of all below it."""
    data, _ = await cluster.zookeeper("get", path.rstrip("/"))
    found = [data]
    for name in await cluster.zookeeper("get_children", path.rstrip("/")):
        found += await _znodes(cluster, f"{path.rstrip('/')}/{name}")
    return found
