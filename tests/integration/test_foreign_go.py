"""An unchanged franz-go (Go) writes while the leader dies, and reads: acknowledged records are there once, in order."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Cluster, a_cluster

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.long, pytest.mark.go]

PROGRAM = Path(__file__).parent / "foreign_go"
RECORDS = 600
#: of the compiler, which has a minute's work where it never ran before
BUILD_S, RUN_S = 500, 120

Acked = list[tuple[int, int, int]]


@pytest.fixture
async def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with a_cluster([zookeeper], tmp_path, keeps_records=True) as cluster:
        await cluster.start()
        yield cluster


async def said(words: list[str], cwd: Path, within_s: float) -> str:
    """All that it printed; it has to succeed."""
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    process = await asyncio.create_subprocess_exec(
        *words, cwd=cwd, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(within_s):
            out, trouble = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, f"{words}: {trouble.decode()}"
    return out.decode()


async def built(folder: Path) -> str:
    """The program; the modules come by Go's proxy, and have to be those of go.sum."""
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    go = shutil.which("go", path=beside)
    assert go is not None
    await said([go, "build", "-o", str(folder / "foreign"), "."], PROGRAM, BUILD_S)
    return str(folder / "foreign")


def told(text: str) -> Acked:
    """Partition, offset and number of each record that it names."""
    return [
        (int(partition), int(offset), int(number)) for partition, offset, number in map(str.split, text.splitlines())
    ]


async def test_franz_go_writes_and_reads_while_the_leader_dies(cluster: Cluster, tmp_path: Path) -> None:
    program, servers = await built(tmp_path), cluster.settings.bootstrap_servers
    assert servers is not None
    assert await cluster.controller.create_topic("orders", partitions=2) == 201
    await cluster.whole()
    first = told(await said([program, servers, "orders", "write", "0", str(RECORDS)], tmp_path, RUN_S))
    writing = asyncio.ensure_future(
        said([program, servers, "orders", "write", str(RECORDS), str(RECORDS)], tmp_path, RUN_S)
    )
    await asyncio.sleep(0)
    dead = cluster.controller  # it leads, too
    await dead.kill()
    acked = first + told(await writing)
    await cluster.start(dead.broker_id)
    assert sorted(number for _, _, number in acked) == list(range(2 * RECORDS))
    found = told(await said([program, servers, "orders", "read", str(2 * RECORDS)], tmp_path, RUN_S))
    assert sorted(found) == sorted(acked)
    for partition in (0, 1):
        offsets = [offset for one, offset, _ in found if one == partition]
        assert offsets == list(range(len(offsets)))
