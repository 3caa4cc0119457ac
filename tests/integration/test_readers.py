"""Readers without manners on real processes: the controller keeps the seat, one caller has its share and no more, and
connections keep no client out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controller.base.config import LIMITS
from controller.base.connection_slots import allow_files
from tests.bench.readers import LIST, MATRIX, METRICS, SECRETS, STREAM, Attack, a_cluster, attacked
from tests.integration.cluster import Cluster
from tests.integration.duties import klamm_with

pytestmark = [pytest.mark.java, pytest.mark.slow]

PARTITIONS = 2_000
SESSION_TIMEOUT_MS = 4_000
SECONDS = 3.0
#: the first two are more than one caller may have, and fewer than all may; the last is more than that, too
ATTACKS = (Attack(24, (METRICS,)), Attack(100, (STREAM,)), Attack(200, (METRICS, MATRIX, LIST, STREAM)))


@pytest.mark.long
async def test_two_hundred_readers_do_not_depose_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    async with a_cluster(tmp_path, PARTITIONS, SESSION_TIMEOUT_MS) as cluster:
        for attack in ATTACKS:
            result = await attacked(cluster, attack, SECONDS)
            assert (result.claims, result.livez_failed) == (0, 0), attack
            assert result.answers["200"] > 0, attack
            assert result.answers["429"] > 0, attack
            assert set(result.answers) <= {"200", "429", "no end", "bytes"}, attack


async def test_more_connections_than_there_may_be_keep_no_broker_and_no_command_out(cluster: Cluster) -> None:
    """All of a lab has one address. They ask for nothing; each that gives way is opened again."""
    allow_files()
    await cluster.start()
    seat, (claim,) = cluster.controller, cluster.order.claims()
    silent: list[asyncio.StreamWriter] = []
    try:
        for number in range(LIMITS.connections_per_peer + 300):
            _, writer = await asyncio.open_connection("127.0.0.1", seat.port)
            silent.append(writer)
            if number % 300 == 0:
                assert await seat.create_topic(f"t{number}", partitions=3) == 201
        words = ("topics", "create", "last", "--partitions", "3", "--replication-factor", "3")
        said = await klamm_with({"KLAMM_URL": seat.url}, *words)
        assert said["topic"]["name"] == "last"
        await cluster.whole()
        assert cluster.order.claims() == [claim]
    finally:
        for writer in silent:
            writer.transport.abort()
