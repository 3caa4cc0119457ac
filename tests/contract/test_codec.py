"""The bytes packed by hand are those of aiozk's own messages, for every request."""

from __future__ import annotations

import asyncio
import contextlib
import io
import struct
from typing import Any, cast

from aiozk import protocol  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.operations import (
    Check,
    Create,
    Delete,
    Op,
    Set,
)
from controller.zookeeper import codec
from controller.zookeeper.client import transact_by_aiozk
from controller.zookeeper.connection import BODY_OFFSET, Reply
from controller.zookeeper.port import (
    Children,
    Denied,
    Node,
    OpResult,
    Stat,
)
from controller.zookeeper.session import Session
from controller.zookeeper.watches import set_watches_for
from tests.fakes.tree import brief_of

NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(lambda names: "/" + "/".join(names))
PATHS = st.one_of(PATHS, st.sampled_from(["/config/users", "/config/brokers/1"]))
DATA = st.binary(max_size=100)
VERSIONS = st.integers(-1, 2**31 - 1)
OPS: st.SearchStrategy[Op] = st.one_of(
    st.builds(Create, PATHS, DATA, st.booleans(), st.booleans()),
    st.builds(Set, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
LONGS, INTS = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
STATS = st.builds(Stat, *[LONGS] * 4, *[INTS] * 3, LONGS, *[INTS] * 2, LONGS)
MANY = settings(max_examples=200, deadline=None)


def theirs(op: Op) -> Any:
    if isinstance(op, Create):
        request = protocol.CreateRequest(path=op.path, data=op.data, acl=[protocol.UNRESTRICTED_ACCESS])
        request.set_flags(ephemeral=op.ephemeral, sequential=op.sequential)
        return request
    if isinstance(op, Set):
        return protocol.SetDataRequest(path=op.path, data=op.data, version=op.version)
    message = protocol.DeleteRequest if isinstance(op, Delete) else protocol.CheckVersionRequest
    return message(path=op.path, version=op.version)


def their_stat(stat: Stat) -> Any:
    names = [name for name, _ in protocol.stat.Stat.parts]
    values = [getattr(stat, field) for field in Stat.__struct_fields__]
    return protocol.stat.Stat(**dict(zip(names, values, strict=True)))


def their_multi(operations: list[Any]) -> bytes:
    """aiozk's transaction, which packs any request."""
    request = protocol.TransactionRequest()
    request.requests = operations
    return bytes(request.serialize())


def rendered(part: Any) -> bytes:
    """Of a response: no operation code before it."""
    fmt, values = part.render()
    return struct.pack("!" + fmt, *values)


def header(kind: int, code: int = 0, done: bool = False) -> bytes:
    return rendered(protocol.transaction.MultiHeader(type=kind, done=done, error=code))


@MANY
@given(st.lists(OPS, max_size=10))
def test_a_transaction_is_packed_as_aiozk_packs_it(ops: list[Op]) -> None:
    assert codec.pack_transaction(ops) == their_multi([theirs(op) for op in ops])


class Kernel:
    """In the place of a session: keeps sent bytes, and answers each operation with `code`, or as done with 0."""

    def __init__(self, ops: list[Op], code: int, chroot: str) -> None:
        self.sent: list[bytes] = []
        answers = {
            Create: lambda op: header(1) + rendered(protocol.CreateResponse(path=chroot + op.path)),
            Set: lambda op: header(5) + rendered(protocol.SetDataResponse(stat=their_stat(Stat(*range(11))))),
            Delete: lambda _: header(2),
            Check: lambda _: header(13),
        }
        self._frame = b"x" * BODY_OFFSET
        for op in ops:
            self._frame += answers[type(op)](op) if code == 0 else header(-1, code) + struct.pack("!i", code)
        self._frame += header(-1, -1, done=True)

    async def send(self, payload: bytes) -> asyncio.Future[Reply]:
        self.sent.append(payload)
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(Reply(9, 0, self._frame))
        return answer


@MANY
@given(st.lists(OPS, min_size=1, max_size=10), st.sampled_from(["", "/a"]), st.booleans(), st.sampled_from([0, -125]))
def test_aiozk_s_own_transaction_sends_the_same_and_is_read_as_the_same(
    ops: list[Op], chroot: str, is_owned: bool, code: int
) -> None:
    """Also of a code that aiozk does not know: it would print that."""
    kernel, printed = Kernel(ops, code, chroot), io.StringIO()
    with contextlib.redirect_stdout(printed):
        answer = asyncio.run(transact_by_aiozk(cast(Session, kernel), ops, chroot, is_owned=is_owned))
    assert kernel.sent == [codec.pack_transaction(ops, chroot, is_owned=is_owned)]
    assert answer.refused == (None if code == 0 else (0, code))
    assert [result.code for result in answer.results] == [code] * len(ops)
    made = [result.path for op, result in zip(ops, answer.results, strict=True) if isinstance(op, Create)]
    assert made == [op.path if code == 0 else None for op in ops if isinstance(op, Create)]
    assert printed.getvalue() == ""


@MANY
@given(st.lists(OPS, max_size=5), NAMES)
def test_the_chroot_goes_before_every_path(ops: list[Op], name: str) -> None:
    longer = [type(op)(*["/" + name + op.path, *(getattr(op, f) for f in op.__struct_fields__[1:])]) for op in ops]
    assert codec.pack_transaction(ops, "/" + name) == codec.pack_transaction(longer)
    assert codec.server_path_for("/", "/" + name) == "/" + name
    assert codec.client_path_for("/" + name, "/" + name) == "/"


@MANY
@given(st.lists(PATHS, max_size=10))
def test_a_multi_read_is_packed_as_aiozk_packs_its_parts(paths: list[str]) -> None:
    reads = [protocol.GetDataRequest(path=path, watch=False) for path in paths]
    lists = [protocol.GetChildrenRequest(path=path, watch=False) for path in paths]
    both = [part for pair in zip(lists, reads, strict=True) for part in pair]
    for packed, operations in ((codec.pack_get_many(paths), reads), (codec.pack_children_many(paths), both)):
        assert packed[:4] == (22).to_bytes(4, "big")
        assert packed[4:] == their_multi(operations)[4:]


@MANY
@given(st.lists(st.one_of(STATS, PATHS, st.integers(-120, 0), st.none()), max_size=10))
def test_the_results_of_a_transaction_are_read_as_aiozk_writes_them(answers: list[Stat | str | int | None]) -> None:
    frame, expected = b"x" * 16, []
    for answer in answers:
        if isinstance(answer, Stat):
            frame += header(5) + rendered(protocol.SetDataResponse(stat=their_stat(answer)))
            expected.append(OpResult(0, answer.version))
        elif isinstance(answer, str):
            frame += header(1) + rendered(protocol.CreateResponse(path=answer))
            expected.append(OpResult(0, 0, answer))
        elif isinstance(answer, int):
            frame += header(-1, answer) + answer.to_bytes(4, "big", signed=True)
            expected.append(OpResult(answer))
        else:
            frame += header(13)
            expected.append(OpResult(0))
    results = codec.parse_transaction(frame + header(-1, -1, done=True), 16)
    assert results == tuple(expected)


@MANY
@given(
    st.lists(
        st.tuples(
            PATHS, st.one_of(st.none(), st.integers(-127, -102), st.tuples(DATA, STATS, st.lists(NAMES, max_size=4)))
        ),
        max_size=8,
    )
)
def test_multi_reads_are_read_as_aiozk_writes_them(
    nodes: list[tuple[str, tuple[bytes, Stat, list[str]] | int | None]],
) -> None:
    reads = lists = b""
    expected_nodes: list[Node | Denied | None] = []
    expected_lists: list[Children | Denied | None] = []
    for _, node in nodes:
        if node is None or isinstance(node, int):
            code = -101 if node is None else node
            error = header(-1, code) + code.to_bytes(4, "big", signed=True)
            reads, lists = reads + error, lists + error + error
            denied = None if node is None else Denied(node, 9)
            expected_nodes.append(denied)
            expected_lists.append(denied)
            continue
        data, stat, names = node
        read = header(4) + rendered(protocol.GetDataResponse(data=data, stat=their_stat(stat)))
        reads += read
        lists += header(8) + rendered(protocol.GetChildrenResponse(children=names)) + read
        expected_nodes.append(Node(data, stat, 9))
        expected_lists.append(Children(tuple(names), stat, 9))
    paths, end = [path for path, _ in nodes], header(-1, -1, done=True)
    assert codec.parse_get_many(b"x" * 16 + reads + end, 16, paths, 9) == expected_nodes
    assert codec.parse_brief_many(b"x" * 16 + reads + end, 16, paths, 9) == [brief_of(node) for node in expected_nodes]
    assert codec.parse_children_many(b"x" * 16 + lists + end, 16, paths, 9) == expected_lists


@MANY
@given(*[st.lists(PATHS, max_size=5)] * 3, st.integers(0, 2**63 - 1))
def test_watches_are_set_as_aiozk_packs_it(data: list[str], exist: list[str], child: list[str], zxid: int) -> None:
    request = protocol.SetWatchesRequest(
        relative_zxid=zxid, data_watches=data, exist_watches=exist, child_watches=child
    )
    expected = [request.serialize()] if data or exist or child else []
    assert list(set_watches_for(zxid, data, exist, child)) == expected


def test_a_znode_without_data_reads_as_empty() -> None:
    stat = Stat(*range(11))
    frame = rendered(protocol.GetDataResponse(data=None, stat=their_stat(stat)))
    assert codec.parse_node(frame, 0, 3) == (Node(b"", stat, 3), len(frame))
