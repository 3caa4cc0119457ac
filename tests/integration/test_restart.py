"""A broker process starts, stops, and comes back: the files that it leaves, that it finds, and must not take."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pytest

from brokerstub.lab.child_process import launched
from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Cluster, a_cluster
from tests.waiting import DEADLINE_S, until

CREATE, TRANSACTION, MULTI_READ = 15, 14, 22  # ZooKeeper's numbers: of create2, and of multi
LONG_SESSION_MS = 60_000
SHORT_SESSION_MS = 2_000

pytestmark = pytest.mark.java


@pytest.fixture
async def alone(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    """One broker, with a session that does not expire during a test."""
    async with a_cluster([zookeeper], tmp_path, brokers=1, session_timeout_ms=LONG_SESSION_MS) as cluster:
        yield cluster


@pytest.fixture
async def impatient(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Two brokers, with short sessions: they do not wait for long."""
    async with a_cluster([zookeeper], tmp_path, brokers=2, session_timeout_ms=SHORT_SESSION_MS) as cluster:
        yield cluster


def logged_at_ms(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp() * 1_000


async def test_a_broker_killed_and_started_again_ends_its_old_session_and_registers_anew(alone: Cluster) -> None:
    await alone.start()
    broker = alone.brokers[1]
    (old,) = alone.order.registrations(1)
    await broker.kill()
    await alone.start()
    _, new = alone.order.registrations(1)
    ended = alone.order.end_of(old.session)
    assert ended is not None
    assert ended.zxid < new.zxid
    assert ended.is_asked_for, "it was ended, it did not expire"
    assert broker.log("registration.delayed") == []


async def test_a_second_process_on_the_same_directory_ends_at_once_and_names_the_first(
    alone: Cluster, tmp_path: Path
) -> None:
    await alone.start()
    broker = alone.brokers[1]
    broker.freeze()  # it holds the directory all the same
    command = [sys.executable, "-m", "brokerstub", "--config", str(broker.folder / "server.properties")]
    second = await launched(command, tmp_path / "second.log")
    async with asyncio.timeout(DEADLINE_S):
        await second.wait()
    assert second.exit_code == 1
    (line,) = second.last_lines()
    assert json.loads(line)["reason"].endswith(f"is in use by the process with pid {broker.row.pid}")
    broker.thaw()
    await alone.whole()
    assert len(alone.order.registrations(1)) == 1


@pytest.mark.slow
async def test_a_foreign_owner_of_the_id_is_waited_for_and_then_given_way_to(impatient: Cluster) -> None:
    await impatient.start(1)
    await impatient.zookeeper("create", "/brokers/ids/2", b"{}", ephemeral=True)
    broker = impatient.brokers[2]
    await broker.start()
    await until(lambda: broker.state == "exited", "it ends")
    assert broker.row.exit_code == 1
    (waiting,), (failed,) = broker.log("registration.delayed"), broker.log("broker.failed")
    assert "duplicate broker id 2" in failed["reason"]
    assert logged_at_ms(failed) - logged_at_ms(waiting) >= 2.5 * SHORT_SESSION_MS
    data, _ = await impatient.zookeeper("get", "/brokers/ids/2")
    assert data == b"{}"


async def test_a_foreign_owner_that_goes_in_time_makes_room(impatient: Cluster) -> None:
    await impatient.start(1)
    await impatient.zookeeper("create", "/brokers/ids/2", b"{}", ephemeral=True)
    broker = impatient.brokers[2]
    await broker.start()
    await until(lambda: broker.log("registration.delayed"), "it waits")
    await impatient.zookeeper("delete", "/brokers/ids/2")
    await impatient.whole()
    assert len(impatient.order.registrations(2)) == 2


async def test_a_registration_deleted_by_hand_is_made_again(cluster: Cluster) -> None:
    await cluster.start()
    assert await cluster.controller.create_topic("orders", partitions=6) == 201
    await cluster.whole()
    controller_id = cluster.controller.broker_id
    for broker_id in (controller_id % 3 + 1, controller_id):
        await cluster.zookeeper("delete", f"/brokers/ids/{broker_id}")
        await until(lambda broker_id=broker_id: len(cluster.order.registrations(broker_id)) == 2, "it registers anew")
        await cluster.whole()
        old, new = cluster.order.registrations(broker_id)
        assert new.session == old.session
    assert len(cluster.order.claims()) <= 2


@pytest.mark.parametrize("fault", ["lose_answer", "drop_request"])
async def test_a_claim_without_an_answer_makes_one_controller_and_one_epoch(
    cluster: Cluster, fault: Literal["lose_answer", "drop_request"]
) -> None:
    await cluster.start()
    old, controller = cluster.order.claims()[-1], cluster.controller
    others = [broker for broker in cluster.running if broker is not controller]
    happened = {broker.broker_id: getattr(broker.proxies[0], fault)(TRANSACTION) for broker in others}
    await controller.stop()
    new = await cluster.claim_after(old)

    async def is_active() -> bool:
        said = [await broker.get("/v1/controller") for broker in others]
        return all(
            (one["broker_id"], one["controller_epoch"], one["phase"]) == (new.broker_id, new.controller_epoch, "active")
            for one in said
        )

    await until(is_active, "the winner knows that it has won, and the other one, too")
    assert any(one.is_set() for one in happened.values())
    assert fault == "drop_request" or happened[new.broker_id].is_set()
    await cluster.start(controller.broker_id)
    assert [claim.controller_epoch for claim in cluster.order.claims()] == [
        old.controller_epoch,
        old.controller_epoch + 1,
    ]


async def test_a_registration_without_an_answer_is_found_again(cluster: Cluster) -> None:
    await cluster.start(1)
    broker = cluster.brokers[2]
    happened = broker.proxies[0].lose_answer(CREATE)
    await cluster.start(2)
    assert happened.is_set()
    assert len(cluster.order.registrations(2)) == 1


async def test_a_broker_asked_to_stop_leaves_no_ephemeral_node_behind(cluster: Cluster) -> None:
    await cluster.start()
    old, controller = cluster.order.claims()[-1], cluster.controller
    await controller.stop()
    assert controller.row.exit_code == 0
    ended = cluster.order.end_of(old.session)
    assert ended is not None
    assert ended.is_asked_for, "it was ended, it did not expire"
    assert await cluster.zookeeper("exists", f"/brokers/ids/{controller.broker_id}") is None
    new = await cluster.claim_after(old)
    assert new.controller_epoch == old.controller_epoch + 1


async def test_a_session_lost_while_it_starts_is_replaced_by_another(cluster: Cluster) -> None:
    """Found by `make chaos SEED=101.2`: a broker that stood still as it started ended, and stayed away."""
    await cluster.start(2)
    broker, [proxy] = cluster.brokers[1], cluster.brokers[1].proxies
    asked = proxy.drop_request(MULTI_READ)  # the first thing that it reads of the cluster
    await broker.start()
    await until(asked.is_set, "it has a session, and reads")
    proxy.cut()
    session = json.loads((broker.folder / "session").read_bytes())["session_id"]
    await until(lambda: cluster.order.end_of(session), "the session expires")
    proxy.heal()
    await cluster.whole()
    assert [one.session for one in cluster.order.registrations(1)] != [session]


@pytest.mark.parametrize("fault", ["lose_answer", "drop_request"])
async def test_a_connection_that_breaks_while_the_chroot_is_made_is_made_again(cluster: Cluster, fault: str) -> None:
    """Found by `make chaos SEED=303.4`: a broker that was starting ended."""
    [proxy] = cluster.brokers[1].proxies
    happened = getattr(proxy, fault)(CREATE)
    await cluster.start(1)
    assert happened.is_set()
