"""The primitives that fall on processes, on ZooKeeper's servers, on znodes, files and clocks. Those on network links
are in `links.py`, and `harms.py` has all of them by name.

Each takes the field and its target, and returns the injury: how it is healed, and whether it hit. This module does not
decide when a primitive is used, or on which target. Nothing needs root.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.faults.chaos.target_cluster import Field, Injury, give_files, stands
from tests.integration.cluster import Broker, now_ms

BURST_S: Final = 0.2
BREATH_S: Final = 0.02
#: enough for a process to go on with the files that it has open, and no more
FILES_LEFT: Final = 1
EXPIRE_TRIES: Final = 5
JOURNAL: Final = "state-change.log"

# ---------------------------------------------------------------------- processes


async def kill(field: Field, broker: Broker, *, loses_disk: bool = False) -> Injury:
    """F1: SIGKILL, and a start when it is healed; with an empty disk if it lost it."""
    pid = broker.row.pid
    await broker.kill()
    if loses_disk:
        for folder in (broker.folder, broker.folder / "disk-1"):
            for name in ("replicas.jsonl", "meta.properties", "session"):
                (folder / name).unlink(missing_ok=True)
    return Injury("kill", str(broker.broker_id), lambda: pid is not None, _starting(broker))


async def bounce(field: Field, broker: Broker) -> Injury:
    """F18: killed and started again before anybody can have noticed."""
    pid = broker.row.pid
    await broker.kill()
    await broker.start()
    return Injury("bounce", str(broker.broker_id), lambda: pid is not None, _starting(broker))


async def stop(field: Field, broker: Broker) -> Injury:
    """No fault: a controlled shutdown, and a start when it is healed."""
    has_stopped = await broker.stop()
    return Injury("stop", str(broker.broker_id), lambda: has_stopped, _starting(broker))


async def freeze(field: Field, broker: Broker) -> Injury:
    """F2, F3: SIGSTOP, and SIGCONT when it is healed."""
    broker.freeze()
    was_stopped = await stands(broker.row.pid)

    async def thaw() -> None:
        broker.thaw()

    return Injury("freeze", str(broker.broker_id), lambda: was_stopped, thaw)


async def starve(field: Field, broker: Broker) -> Injury:
    """F20: it runs a tenth of the time, a little at a time."""
    pid, bursts = broker.row.pid, [0]

    async def hold_back() -> None:
        while broker.state in ("running", "frozen") and broker.row.pid == pid:
            broker.freeze()
            bursts[0] += await stands(pid)
            await asyncio.sleep(BURST_S)
            broker.thaw()
            await asyncio.sleep(BREATH_S)

    return Injury("starve", str(broker.broker_id), lambda: bursts[0] > 0, _ending(hold_back(), broker.thaw))


async def expire(field: Field, broker: Broker) -> Injury:
    """F4: a second connection with the same session id and password, closed: the server ends the session."""
    session, order = field.session_of(broker), field.cluster.order
    for _ in range(EXPIRE_TRIES):  # its owner may be faster, and take the session to a connection of its own again
        await asyncio.to_thread(_close_session, field.servers, session.session_id, session.password)
        if order.end_of(session.session_id) is not None:
            break
    return Injury("expire", str(broker.broker_id), lambda: order.end_of(session.session_id) is not None)


def _close_session(servers: Iterable[ZooKeeperServer], session_id: int, password: bytes) -> None:
    hosts = ",".join(server.address for server in servers)
    client = KazooClient(hosts=hosts, client_id=(session_id, password), timeout=4.0)
    with suppress(KazooException, client.handler.timeout_exception):  # gone already: the injury says that it missed
        client.start(5.0)
    client.stop()
    client.close()


# ---------------------------------------------------------------------- ZooKeeper itself


async def restart_zookeeper(field: Field, servers: Sequence[ZooKeeperServer]) -> Injury:
    """F8, F9: some of its servers are killed, the leader perhaps, a majority, or all; started when it is healed."""
    pids = [server.pid for server in servers]
    for server in servers:
        server.kill()
        await server.wait()

    async def start() -> None:
        for server in servers:
            await server.launch()

    ids = ",".join(str(server.server_id or 1) for server in servers)
    return Injury("restart ZooKeeper", ids, lambda: None not in pids, start)


async def freeze_zookeeper(field: Field, server: ZooKeeperServer) -> Injury:
    """F10: a server stands still, as one does whose disk does not answer."""
    server.freeze()
    was_stopped = await stands(server.pid)

    async def thaw() -> None:
        server.thaw()

    return Injury("freeze ZooKeeper", str(server.server_id or 1), lambda: was_stopped, thaw)


# ---------------------------------------------------------------------- clocks, znodes, files


async def jump_clock(field: Field, broker: Broker, ahead_ms: int) -> Injury:
    """F16: its wall clock jumps, and back when it is healed. It hit if something was recorded as of before it began, or
    of after it was over."""
    begun_ms, known = now_ms(), len(broker.lines())
    broker.jump(ahead_ms)

    async def heal() -> None:
        broker.jump(0)

    def has_hit() -> bool:
        return any(not begun_ms <= line["at_ms"] <= now_ms() for line in broker.lines()[known:])

    return Injury("jump clock", f"{broker.broker_id} by {ahead_ms} ms", has_hit, heal)


async def break_disk(field: Field, broker: Broker, index: int = 1) -> Injury:
    """F19: one of its log directories fails, and is mended when it is healed. Without any left it would end."""
    failures = len(broker.log("log_dir.failed"))
    if broker.row.broken_dirs or not broker.break_disk(index):
        return Injury("break disk", str(broker.broker_id), lambda: False)  # another is broken already

    async def heal() -> None:
        broker.mend_disk()

    return Injury("break disk", str(broker.broker_id), lambda: len(broker.log("log_dir.failed")) > failures, heal)


async def edit(field: Field, path: str, data: bytes | None) -> Injury:
    """F17: an operator writes something there, or deletes it (None)."""
    has_hit = [False]
    with suppress(NoNodeError, NodeExistsError):
        if data is None:
            await field.cluster.zookeeper("delete", path)
        else:
            await field.cluster.zookeeper("create", path, data)
        has_hit[0] = True
    return Injury("edit", path, lambda: has_hit[0])


async def block_journal(field: Field, broker: Broker) -> Injury:
    """F19: its state-change log cannot be written: there is a directory in its place."""
    path = broker.folder / JOURNAL
    aside = path.with_name(f"aside.{JOURNAL}")
    failures = len(broker.log("journal.failed"))
    if path.is_dir():
        return Injury("block journal", str(broker.broker_id), lambda: False)  # it is blocked already
    if path.exists():
        path.replace(aside)
    path.mkdir()

    async def heal() -> None:
        path.rmdir()
        if aside.exists():
            aside.replace(path)

    return Injury("block journal", str(broker.broker_id), lambda: len(broker.log("journal.failed")) > failures, heal)


async def exhaust_files(field: Field, broker: Broker) -> Injury:
    """F19: it has as many files and connections open as it may. One that does not serve yet could not even start."""
    pid = broker.row.pid
    assert pid is not None, "it runs"
    if await broker.get("/livez") is None:
        return Injury("exhaust files", str(broker.broker_id), lambda: False)
    refusals = len(_out_of_files(broker))
    opened = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (opened + FILES_LEFT, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    async def heal() -> None:
        give_files(pid)  # the limit of this test process, also after two of these faults at once

    return Injury("exhaust files", str(broker.broker_id), lambda: len(_out_of_files(broker)) > refusals, heal)


# ---------------------------------------------------------------------- healing


def _starting(broker: Broker) -> Callable[[], Awaitable[None]]:
    async def start() -> None:
        if broker.state not in ("running", "frozen", "stopping"):
            await broker.start()

    return start


def _ending(doing: Awaitable[None], then: Callable[[], object]) -> Callable[[], Awaitable[None]]:
    task = asyncio.ensure_future(doing)

    async def heal() -> None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        then()

    return heal


def _out_of_files(broker: Broker) -> list[str]:
    """Return the broker's lines about files that it could not open."""
    path = broker.folder / "broker.log"
    return [line for line in path.read_text().splitlines() if "[Errno 24]" in line or "connections.refused" in line]
