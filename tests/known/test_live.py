"""A live ZooKeeper gives the answers that its own snapshot gives."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner
from kazoo.client import KazooClient

from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from sparkjobs.commands.cli import top
from sparkjobs.records.zookeeper_files import snapshot_in
from tests.known.test_moments import DATA

pytestmark = [pytest.mark.java, pytest.mark.asyncio(loop_scope="module")]

SNAPSHOT = DATA / "zookeeper-snapshots" / "snapshot.bfd-3.9.5.gz"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A ZooKeeper with the znodes of a recorded cluster."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("live"), free_port(), fsync=False)
    await server.start()
    await asyncio.to_thread(_filled, server.address)
    yield server.address
    await server.stop()


def _filled(address: str) -> None:
    with gzip.open(SNAPSHOT) as content:
        znodes = snapshot_in(content).znodes  # type: ignore[arg-type]
    kazoo = KazooClient(hosts=address)
    kazoo.start()
    try:
        for one in sorted(znodes, key=lambda znode: znode.path):
            if not one.path.startswith("/zookeeper"):
                kazoo.create(f"/kafka{one.path}", one.data or b"", makepath=True)
    finally:
        kazoo.stop()
        kazoo.close()


async def answered(*words: str) -> Any:
    result = await asyncio.to_thread(CliRunner().invoke, top, [*words, "-o", "json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


async def test_a_live_zookeeper_answers_as_its_snapshot(address: str, tmp_path: Path) -> None:
    (tmp_path / "snapshot.bfd").write_bytes(gzip.decompress(SNAPSHOT.read_bytes()))
    for words in (("what-if", "kill", "1", "2"), ("explain", "t9343-11")):
        live, kept = await answered(*words, f"zookeeper://{address}/kafka"), await answered(*words, str(tmp_path))
        assert live["as_of"]["rests_on"] == f"the live ZooKeeper at {address}/kafka"
        assert without_versions(live) == without_versions(kept)
    assert (await answered("diff", "end", "end", f"zookeeper://{address}/kafka"))["differences"] == []


def without_versions(answer: Any) -> Any:
    """Here a znode was written once, and now."""
    if isinstance(answer, dict):
        return {key: without_versions(value) for key, value in answer.items() if key not in ("as_of", "epoch", "past")}
    return [without_versions(one) for one in answer] if isinstance(answer, list) else answer


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explain", "orders-0", "zookeeper://{}"], "has no cluster of Kafka at /: name its chroot"),
        (["explain", "orders-0", "zookeeper://{}/other"], "has no cluster of Kafka at /other"),
        (["explain", "orders-0", "zookeeper://{}/kafka", "--at", "2026-11-19"], "knows only the present: --at end"),
        (["explain", "orders-0", "zookeeper://{}/kafka", "."], "name a live ZooKeeper alone"),
        (["explain", "orders-0", "zookeeper://here"], "write a ZooKeeper's address like zookeeper://host:2181/chroot"),
        (["explain", "orders-0", "zookeeper://127.0.0.1:1"], "no ZooKeeper answers at 127.0.0.1:1"),
    ],
)
async def test_an_address_without_an_answer_gets_its_reason(address: str, words: list[str], said: str) -> None:
    asked = [one.format(address) for one in words]
    result = await asyncio.to_thread(CliRunner().invoke, top, asked)
    assert result.exit_code == 1
    assert said in result.output
