"""The lab's ZooKeeper is a real one that keeps its data, explains itself, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gzip
import io
import itertools
import json
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from brokerstub.lab.ports import free_port, is_free
from brokerstub.lab.zookeeper import Ensemble, ZooKeeperError, ZooKeeperServer, java_command
from sparkjobs.records.zookeeper_files import (
    Operation,
    TransactionLogError,
    history,
    longest_history,
    operations_in,
    operations_of_file,
)
from tests.waiting import DEADLINE_S, until

LOGS = sorted((Path(__file__).parents[1] / "data").rglob("zookeeper/log.*.gz"))
RECORDINGS = sorted({path.parents[1] for path in LOGS})
# One record as the toolkit prints it, which may go on over several lines; how the time looks depends on the Java.
PRINTED = re.compile(
    r"^[^\n]{,40} session 0x(\w+) cxid \w+ zxid 0x(\w+) (\w+) ?(.*?)(?=\n[^\n]{,40} session 0x|\nEOF reached)",
    re.MULTILINE | re.DOTALL,
)
OWNER = """
import asyncio, sys
from pathlib import Path
from brokerstub.lab.zookeeper import ZooKeeperServer

async def main():
    await ZooKeeperServer(Path(sys.argv[1]), int(sys.argv[2])).start()
    sys.stdout.write("started\\n")
    sys.stdout.flush()
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path / "zookeeper", free_port())
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def asked(hosts: str, question: Callable[[KazooClient], Any]) -> Any:
    """Returns the answer to a client of its own, with a session of one second."""

    def ask() -> Any:
        client = KazooClient(hosts=hosts, timeout=1)
        try:
            client.start(timeout=DEADLINE_S)
            return question(client)
        finally:
            client.stop()
            client.close()

    return await asyncio.to_thread(ask)


@pytest.mark.java
async def test_launched_by_two_at_once_it_is_one_process(tmp_path: Path) -> None:
    server = ZooKeeperServer(tmp_path / "zookeeper", free_port())
    try:
        await asyncio.gather(server.launch(), server.launch())
        await server.serving()
        assert (tmp_path / "zookeeper" / "zookeeper.log").read_text().count("binding to port") == 1
    finally:
        await server.stop()


@pytest.mark.java
async def test_a_written_node_survives_a_kill(server: ZooKeeperServer) -> None:
    await asked(server.address, lambda client: client.create("/kept", b"data"))
    server.kill()
    assert await server.wait() == -9
    assert server.pid is None
    await server.start()
    assert await server.mode() == "standalone"
    assert (await asked(server.address, lambda client: client.get("/kept")))[0] == b"data"


@pytest.mark.java
async def test_a_frozen_server_is_silent_until_thawed_and_can_be_stopped_frozen(server: ZooKeeperServer) -> None:
    server.freeze()

    async def is_silent() -> bool:
        return await server.mode() is None

    await until(is_silent, "every thread of the server stands still")
    server.thaw()
    await server.serving(5_000)
    server.freeze()
    await server.stop()
    assert server.pid is None


@pytest.mark.java
async def test_it_listens_on_the_one_loopback_address_only(server: ZooKeeperServer) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", server.client_port))


@pytest.mark.java
async def test_a_port_in_use_is_explained(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ZooKeeperError, match=rf"port {port} is in use: stop what listens there, or choose"):
            await ZooKeeperServer(tmp_path, port).start()


@pytest.mark.java
async def test_a_server_that_runs_is_not_started_again(server: ZooKeeperServer) -> None:
    with pytest.raises(ZooKeeperError, match="runs already"):
        await server.start()
    assert await server.mode() == "standalone"


@pytest.mark.java
async def test_a_server_that_dies_at_start_shows_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(ZooKeeperError, match=r"ended at start; the last lines of .*\n(?s:.*)heap"):
        await ZooKeeperServer(tmp_path, free_port(), heap_mb=1).start()


@pytest.mark.java
async def test_a_server_does_not_outlive_its_owner(tmp_path: Path) -> None:
    port = free_port()
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, str(tmp_path), str(port)), stdout=asyncio.subprocess.PIPE
    )
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"started\n"
    assert not is_free(port)
    owner.kill()
    await owner.wait()
    await until(lambda: is_free(port), "the port is free")


@pytest.mark.java
async def test_an_ensemble_survives_the_loss_of_its_leader(tmp_path: Path) -> None:
    ensemble = Ensemble(tmp_path)
    await ensemble.start()
    try:
        await asked(ensemble.connect_string, lambda client: client.create("/before", b"1"))
        lost = await ensemble.leader()
        lost.kill()
        await lost.wait()
        successor = await ensemble.leader()
        assert successor is not lost
        await asked(ensemble.connect_string, lambda client: client.create("/after", client.get("/before")[0]))
        await lost.start()
        assert await lost.mode() == "follower"
        assert (await asked(lost.address, lambda client: (client.sync("/"), client.get("/after"))))[1][0] == b"1"
        created = [operation.path for operation in history(successor.data_dir) if operation.kind == "create"]
        assert created == ["/before", "/after"]
    finally:
        await ensemble.stop()


@pytest.mark.java
async def test_the_history_of_a_running_server_can_be_read(server: ZooKeeperServer) -> None:
    def write(client: KazooClient) -> int:
        client.create("/node", ephemeral=True)
        client.set("/node", b"\xff")
        with client.transaction() as refused:
            refused.set_data("/node", b"never")
            refused.check("/node", 7)
        return int(client.client_id[0])

    session = await asked(server.address, write)
    operations = list(history(server.data_dir))
    assert {operation.session for operation in operations} == {session}
    assert [operation.kind for operation in operations] == ["session", "create", "set", "error", "close"]
    opened, created, written, refused, closed = operations
    assert opened.timeout_ms == 1_000
    assert (created.path, created.ephemeral_owner, written.data, written.version) == ("/node", session, b"\xff", 1)
    assert (refused.code, closed.paths, closed.is_asked_for) == (-103, ("/node",), True)


def as_recorded(operation: Operation) -> dict[str, Any]:
    """In the words of the recordings."""
    words: dict[str, Any] = {"zxid": operation.zxid, "at_ms": operation.at_ms, "session": hex(operation.session)}
    words |= {"op": operation.kind, "path": operation.path, "timeout": operation.timeout_ms, "code": operation.code}
    words |= {"version": operation.version if operation.kind != "create" else None}
    words |= {"data": operation.data.decode() if operation.data is not None else None}
    words |= {"ephemeral": operation.ephemeral_owner is not None} if operation.kind == "create" else {}
    return {key: value for key, value in words.items() if value is not None}


def recorded(recording: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(recording / "zookeeper.jsonl.gz", "rt") as lines:
        for _, group in itertools.groupby(map(json.loads, lines), key=lambda words: words["zxid"]):
            transaction = list(group)
            # A transaction that failed was not done at all, whatever its record says.
            errors = [words for words in transaction if words["op"] == "error"]
            for words in errors[:1] or transaction:
                yield {key: value for key, value in words.items() if value is not None}


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_the_recordings_are_read_as_they_were_recorded(recording: Path) -> None:
    in_order = sorted(recording.glob("zookeeper/log.*.gz"), key=lambda path: int(path.name.split(".")[1], 16))
    logs = [io.BytesIO(gzip.decompress(path.read_bytes())) for path in in_order]
    read = [as_recorded(operation) for log in logs for operation in operations_in(log)]
    assert read == list(recorded(recording))


def as_printed(operation: Operation, *, is_alone: bool) -> list[str]:
    """Returns the toolkit's lines of it, in this order, among others; numbers only when it is alone."""
    printed = [
        {"set": "setData", "session": "createSession", "close": "closeSession"}.get(operation.kind, operation.kind)
    ]
    printed += [operation.path] if operation.path is not None else []
    printed += [operation.data.decode()] if operation.data is not None else []
    printed += operation.paths
    if is_alone and operation.kind == "create":
        printed.append(f"],{str(operation.ephemeral_owner is not None).lower()},")
    numbers = (operation.code, operation.timeout_ms, operation.version if operation.kind == "set" else None)
    return printed + [str(number) for number in numbers if is_alone and number is not None]


@pytest.mark.java
@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parents[1].name}-{path.stem}")
async def test_the_reader_agrees_with_zookeepers_own_toolkit(path: Path, tmp_path: Path) -> None:
    log = tmp_path / path.stem
    log.write_bytes(gzip.decompress(path.read_bytes()))
    command = java_command("org.apache.zookeeper.server.persistence.TxnLogToolkit", "-d", str(log))
    toolkit = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output = (await toolkit.communicate())[0].decode(errors="replace")
    with log.open("rb") as stream:
        transactions = [list(group) for _, group in itertools.groupby(operations_in(stream), lambda each: each.zxid)]
    for (session, zxid, name, text), operations in zip(PRINTED.findall(output), transactions, strict=True):
        assert {(each.session, each.zxid) for each in operations} == {(int(session, 16), int(zxid, 16))}
        is_alone = name != "multi"
        if operations[0].kind != "error":
            parts = [name] if is_alone else re.findall(r"(?:^|;)(\w+):", text)
            assert parts == [as_printed(each, is_alone=is_alone)[0] for each in operations]
        at = 0
        for fragment in itertools.chain.from_iterable(as_printed(each, is_alone=is_alone) for each in operations):
            at = f"{name} {text}".index(fragment, at) + len(fragment)


def a_log() -> bytes:
    return gzip.decompress(LOGS[0].read_bytes())


@pytest.mark.parametrize("kept_bytes", [0, 16, 20, 28, 60, 76, 77])
def test_a_log_ends_in_the_record_that_is_being_written(kept_bytes: int) -> None:
    whole = a_log()
    first_record_ends = 16 + 12 + int.from_bytes(whole[24:28], "big") + 1
    for rest in (b"", bytes(1_000)):  # with and without the space that the server allocates ahead
        operations = list(operations_in(io.BytesIO(whole[:kept_bytes] + rest)))
        assert len(operations) == (1 if kept_bytes >= first_record_ends else 0)


@pytest.mark.parametrize("damaged_byte", [0, 16, 24, 40, 76])
def test_damage_is_an_error(damaged_byte: int) -> None:
    log = bytearray(a_log())
    log[damaged_byte] ^= 0xFF
    with pytest.raises(TransactionLogError):
        list(operations_in(io.BytesIO(log)))


def test_a_record_that_is_whole_when_read_again_was_being_written_and_is_no_damage() -> None:
    """Two pages of a file that grows may be seen at different moments: the record in both has a hole."""
    whole = a_log()
    torn = bytearray(whole)
    torn[40:60] = bytes(20)
    seen = iter([bytes(torn), whole])
    assert operations_of_file(lambda: next(seen)) == list(operations_in(io.BytesIO(whole)))
    with pytest.raises(TransactionLogError, match="damaged"):
        operations_of_file(lambda: bytes(torn))


def unpacked(folder: Path, logs: Sequence[Path]) -> Path:
    (folder / "version-2").mkdir(parents=True)
    for path in logs:
        (folder / "version-2" / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    return folder


def test_a_gap_between_two_logs_is_an_error_and_of_an_ensemble_the_longest_log_is_read(tmp_path: Path) -> None:
    logs = [path for path in LOGS if path.parents[1] == RECORDINGS[0]]
    logs.sort(key=lambda path: int(path.name.split(".")[1], 16))
    gap, short = unpacked(tmp_path / "gap", [logs[0], logs[-1]]), unpacked(tmp_path / "short", logs[:1])
    with pytest.raises(TransactionLogError, match="what is between"):
        list(history(gap))
    assert longest_history([short, gap, unpacked(tmp_path / "all", logs)]) == list(history(tmp_path / "all"))
    with pytest.raises(TransactionLogError, match="no server's log is whole"):
        longest_history([gap])
