"""Every parser of external input: its input, its refusals, and the code that it covers.

`test_parsers.py` compares the table with the code: a function that decodes and that no row covers fails there.
`hostile.py` and hypothesis take their parsers from here. The module owns the table and judges nothing.
"""

from __future__ import annotations

import asyncio
import base64
import io
import struct
import tempfile
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from aiozk import protocol

from brokerstub import log_dirs
from brokerstub.clients import cluster, reading, writing
from brokerstub.faults import Faults
from brokerstub.identity import SavedSession, read_meta_properties
from brokerstub.lab.bodies import Order
from brokerstub.lab.settings import LabError, read_lab_file
from brokerstub.lab.zk_proxy import FrameScanner
from brokerstub.log_dirs import DamagedCheckpointError, decode_offsets
from brokerstub.metadata import MetadataCache
from brokerstub.multipart_lists import OutOfOrderError
from brokerstub.records.batches import batches_in as batches_of_a_log
from brokerstub.records.batches import check_sum, first_record_since, produced
from brokerstub.records.errors import RecordsError
from brokerstub.records.log import Log, LogConfig
from brokerstub.records.state import decode_state
from brokerstub.topic_settings import settings_for
from controller.api import bodies
from controller.api.listing import cursor_of
from controller.api.problems import ProblemError
from controller.api.routing.active import is_api_answer
from controller.api.v1 import reports
from controller.base.config import (
    BrokerConfig,
    ConfigError,
    broker_config_for,
    given_properties,
    read_properties,
)
from controller.cli import plans
from controller.cli.output import UnreachableClusterError, WrongUsageError
from controller.cli.remote import frame_of
from controller.core import formats
from controller.core.acls import acls_in
from controller.core.formats import FormatError
from controller.kafka.cluster.settings import addresses_in, sasl_for
from controller.kafka.protocol import messages
from controller.kafka.protocol.access import PLAIN, SCRAM, Admission
from controller.kafka.protocol.codec import Reader, WireError, Writer
from controller.kafka.protocol.messages import Message
from controller.kafka.server import admin_apis, own_configs
from controller.kafka.server.login import Login
from controller.security.secrets import secrets_from
from controller.tell.dialects import kafka, kafka_requests
from controller.wire import bodies as wire_bodies
from controller.wire.client import Answer
from controller.zookeeper import codec as zk_codec
from controller.zookeeper.client import parse_connect
from controller.zookeeper.port import ZooKeeperError
from sparkjobs.history.as_of import cluster_in
from sparkjobs.parse.lines import LineReader
from sparkjobs.parse.sniff import sniff
from sparkjobs.records import RecordError, zookeeper_live
from sparkjobs.records.kraft_files import batches_in, control_in, message_in
from sparkjobs.records.zookeeper_files import SnapshotError, TransactionLogError, operations_in, snapshot_in
from tests.fakes.disk import SimulatedDisk
from tests.security import samples
from tests.security.test_secrets import ADMIN
from tests.spark.lines import a_file

Parse = Callable[[bytes], object]
Errors = tuple[type[Exception], ...]


class Parser(NamedTuple):
    """One row."""

    group: str
    name: str
    parse: Parse
    refusals: Errors
    samples: Sequence[bytes]


def rows(group: str, refusals: Errors, shown: Sequence[bytes], parsers: Iterable[tuple[str, Parse]]) -> list[Parser]:
    return [Parser(group, name, parse, refusals, shown) for name, parse in parsers]


def text_of(data: bytes) -> str:
    """Also half a surrogate pair, as a header or an argument brings it."""
    return data.decode(errors="surrogateescape")


def _file(name: str, read: Callable[[Path], object]) -> Parse:
    """Return a parser that reads a file of that name."""

    def parse(data: bytes) -> object:
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            (path := Path(folder) / name).write_bytes(data)
            return read(path)

    return parse


def _whole_request(key: int, version: int, data: bytes) -> object:
    """With a good head, so that the body is read."""
    return Message(struct.pack(">hhih", key, version, 7, -1) + data)


def _kinds(decode: Callable[[bytes, Any], object], *kinds: Any) -> list[tuple[str, Parse]]:
    return [(getattr(kind, "__name__", str(kind)), partial(_swapped, decode, kind)) for kind in kinds]


def _swapped(decode: Callable[[bytes, Any], object], kind: Any, data: bytes) -> object:
    return decode(data, kind)


def _told(data: bytes) -> object:
    """Decode also the data that is decoded only on demand, and the data that is merged with earlier requests."""
    cache, request = MetadataCache("c", 1), wire_bodies.decode(data, wire_bodies.UndecodedStatesRequest)
    for _ in range(2):
        cache.take(request, 1, 1)
    return list(cache.topics())


def _passed_on(data: bytes) -> object:
    return is_api_answer("GET", Answer(200, data, {"Content-Type": "application/json"}))


def _scanned(data: bytes) -> object:
    scanner = FrameScanner()
    assert b"".join(piece for _, piece in scanner.pieces(data)) + scanner._header == data
    return scanner


def _logged_in(mechanism: str, record: str | None, data: bytes) -> object:
    """A client receives an answer to any tokens, and random tokens never log it in."""

    async def record_of(user: str, mechanism: str) -> str | None:
        return record

    async def run() -> Login:
        login = Login(Admission((PLAIN, *SCRAM), {"ann": "secret-of-ann"}), record_of)
        said = Writer(flexible=False).string(mechanism).message()
        await login.handshake(1, Reader(said, flexible=False), Writer(flexible=False))
        for token in (data if record is None else b"n,,n=ann,r=abc", data):
            said = Writer(flexible=True).data(token).tags().message()
            await login.authenticate(2, Reader(said, flexible=True), Writer(flexible=True))
        assert not login.is_done
        return login

    return asyncio.run(run())


def _read_lines(layout: str, data: bytes) -> object:
    reader = LineReader(a_file(layout, kind="json" if layout == "klamm" else "mixed"))
    return [reader.read(line, 1) for line in data.decode(errors="replace").split("\n")]


def _reopened(data: bytes) -> object:
    """A log opens with any content in one of its files, and continues with the part that it can read."""
    disk = SimulatedDisk()
    log = Log(disk, "t-0", LogConfig(segment_bytes=100))
    for _ in range(3):
        log.append(samples.BATCHES[0], 0, 0)
    log.settle()
    for name in disk.names("t-0"):
        copy = deepcopy(disk)
        copy.truncate(f"t-0/{name}", 0)
        copy.append(f"t-0/{name}", data)
        log = Log(copy, "t-0", LogConfig(segment_bytes=100))
        assert log.append(samples.BATCHES[0], log.latest_epoch, 0).base_offset + 1 == log.end_offset
    return log


def _of_kafka(parse: Callable[[Reader], object], is_flexible: bool, data: bytes) -> object:
    return parse(Reader(data, 8, flexible=is_flexible))


def _jaas(data: bytes) -> object:
    return sasl_for({"sasl.mechanism.inter.broker.protocol": "PLAIN", "sasl.jaas.config": text_of(data)})


CONFIG: Final[Errors] = (ConfigError,)
REPLY: Final[Errors] = (struct.error, UnicodeDecodeError, ZooKeeperError)
ORDER: Final = (b'{"broker":1,"for_ms":5}',)
LAB: Final = (b'{"pid":1,"port_base":1,"brokers":{"1":"http://h:1"},"zookeeper":"h:1","zookeeper_pid":1}',)

#: requests of clients to a broker with records
CLIENTS: Final = (
    ("produced", writing._topic),
    ("wanted", partial(reading._topic, 12)),
    ("offset", lambda reader: reading._offsets_topic(reader, lambda name: reading._offset_asked(7, name, reader))),
    ("epoch", lambda reader: reading._offsets_topic(reader, lambda name: reading._epoch_asked(name, reader))),
    ("topic", partial(cluster._asked, 12)),
    ("resource", cluster._resource),
)


def _topic_settings(data: bytes) -> object:
    """A topic's configuration that ZooKeeper had: for a malformed value the broker's own stands."""
    try:
        values = formats.decode(data, formats.ConfigZnode).config
    except FormatError:
        return None
    return settings_for(BrokerConfig(zookeeper_connect="", log_dirs="d"), "orders", values)


PARSERS: Final[Sequence[Parser]] = (
    *rows("znodes", (FormatError,), samples.ZNODES, [
        *_kinds(formats.decode, *(kind for name, kind in vars(formats).items() if name.endswith("Znode")), object),
        ("rules", acls_in),
        ("state", formats.decode_state), ("topic", formats.decode_topic), ("epoch", formats.decode_epoch),
        ("marker", formats.decode_marker), ("producer ids", formats.decode_producer_ids),
        ("broker", lambda data: formats.decode_broker(data, 1, 1)),
    ]),
    *rows("RPC bodies and answers", (msgspec.DecodeError,), samples.BODIES, _kinds(
        wire_bodies.decode, wire_bodies.StatesRequest, wire_bodies.UndecodedStatesRequest,
        wire_bodies.StopReplicaRequest, wire_bodies.AlterPartitionRequest, wire_bodies.FetchRequest,
        wire_bodies.Answer, wire_bodies.AlterPartitionAnswer, wire_bodies.ControlledShutdownAnswer,
        wire_bodies.FetchAnswer)),
    *rows("RPC bodies and answers", (msgspec.DecodeError, OutOfOrderError), samples.BODIES[:1], [("told", _told)]),
    *rows("API bodies", (ProblemError,), samples.BODIES, _kinds(
        bodies.decode_body, bodies.CreateTopicBody, bodies.Nothing, dict[str, object])),
    *rows("answers passed on", (), samples.BODIES, [("answer", _passed_on)]),
    *rows("cursors", (ProblemError,), (b'["orders",1]', b"WyJvcmRlcnMiLDFd"), [
        ("as it came", lambda data: cursor_of(text_of(data))),
        ("its inside", lambda data: cursor_of(base64.urlsafe_b64encode(data).decode().rstrip("="))),
    ]),
    *rows("server.properties", CONFIG, (samples.PROPERTIES,), [
        ("file", _file("p", lambda path: broker_config_for(read_properties(path)))),
        ("--set", lambda data: broker_config_for(given_properties(text_of(data).splitlines()))),
    ]),
    *rows("files of a broker", CONFIG, (samples.META,), [
        ("meta.properties", _file("meta.properties", lambda path: read_meta_properties([path.parent])))]),
    *rows("files of a broker", (log_dirs.DamagedLogError,), (samples.REPLICA, samples.REPLICA * 2), [
        ("replicas.jsonl", _file("r", lambda path: log_dirs._read(path, 0)))]),
    *rows("files of a broker", (msgspec.DecodeError,), (b'{"session_id":7,"password":"YWE="}', samples.BODIES[-1]),
          _kinds(wire_bodies.decode, SavedSession, Faults)),
    *rows("files of a broker", (msgspec.MsgspecError, ValueError), samples.AGGREGATES, [
        ("aggregates.json", _file("aggregates.json", reports._read))]),
    *rows("files of a log", (), samples.LOG_FILES, [
        ("all of them", _reopened), ("state", lambda data: decode_state(data, 2))]),
    *rows("files of a log", (DamagedCheckpointError,), (b"0\n1\norders 0 17\n",), [("offsets", decode_offsets)]),
    *rows("record batches", (RecordsError,), samples.BATCHES, [
        ("produced", lambda data: produced(data, 1 << 20)),
        ("fetched", lambda data: [check_sum(data, header, position) for position, header in batches_of_a_log(data)]),
        ("records", lambda data: first_record_since(data, 1 << 40)),
    ]),
    *rows("files of a lab", (LabError,), LAB, [
        ("lab.json", _file("lab.json", lambda path: read_lab_file(path.parent)))]),
    *rows("files of a lab", (msgspec.DecodeError,), ORDER, _kinds(wire_bodies.decode, Order)),
    *rows("ZooKeeper's files", (TransactionLogError,), samples.TRANSACTION_LOGS, [
        ("transaction log", lambda data: list(operations_in(io.BytesIO(data))))]),
    *rows("ZooKeeper's files", (SnapshotError,), samples.ZOOKEEPER_SNAPSHOTS, [
        ("snapshot", lambda data: snapshot_in(io.BytesIO(data)))]),
    *rows("a live ZooKeeper", (), (b'{"version":2,"partitions":{"0":[1,2]}}',), [
        ("partitions of a topic", zookeeper_live._partitions_in)]),
    *rows("files of Kafka's tools", (RecordError,), samples.DESCRIBED, [
        ("described topics", lambda data: cluster_in(data.decode("utf-8", "replace")))]),
    *rows("KRaft's files", (RecordError,), samples.METADATA_LOGS, [
        ("metadata log", lambda data: list(batches_in(io.BytesIO(data))))]),
    *rows("KRaft's files", (RecordError,), samples.METADATA_RECORDS, [
        ("metadata record", message_in)]),
    *rows("KRaft's files", (RecordError,), samples.CONTROL_RECORDS, [
        ("control record", lambda data: control_in(data[:4], data[4:]))]),
    *rows("files of Kafka's tools", (WrongUsageError,), samples.PLANS, [
        ("reassignment", lambda data: plans.read_plan(data, "f")),
        ("partitions", lambda data: plans.names_in(data, "f")),
        ("topics", lambda data: plans.topics_in(data, "f")),
    ]),
    *rows("tokens", CONFIG, (ADMIN.encode(),), [
        ("token", lambda data: secrets_from({"KLAMM_API_TOKEN": text_of(data)}))]),
    *rows("ZooKeeper auth", CONFIG, (b"digest:user:password",), [
        ("auth", lambda data: secrets_from({"KLAMM_ZOOKEEPER_AUTH": text_of(data)}))]),
    *rows("zookeeper.connect", (ValueError,), (b"h:1,[::1]:2/a/b",), [
        ("text", lambda data: parse_connect(text_of(data)))]),
    *rows("--listen", CONFIG, (b"kafka://127.0.0.1:9100,http://127.0.0.1:9101",), [
        ("text", lambda data: addresses_in(text_of(data)))]),
    *rows("sasl.jaas.config", CONFIG, (samples.JAAS,), [("text", _jaas)]),
    *rows("server-sent events", (UnreachableClusterError,), (samples.EVENT,), [("frame", frame_of)]),
    *rows("ZooKeeper's replies", REPLY, samples.REPLIES, [
        ("transaction", lambda data: zk_codec.parse_transaction(data, 0, "/c")),
        ("briefs", lambda data: zk_codec.parse_brief_many(data, 0, ["/a", "/b"], 1)),
        ("children of many", lambda data: zk_codec.parse_children_many(data, 0, ["/a", "/b"], 1)),
        ("many", lambda data: zk_codec.parse_get_many(data, 0, ["/a", "/b"], 1)),
        ("node", lambda data: zk_codec.parse_node(data, 0, 1)),
        ("stat", lambda data: zk_codec.parse_stat(data, 0)),
        ("names", lambda data: zk_codec.parse_names(data, 0)),
        ("handshake", protocol.ConnectResponse.deserialize),
        ("notification", lambda data: protocol.WatchEvent.parse(data, 0)),
        ("at the proxy", _scanned),
    ]),
    *rows("Kafka's protocol", (WireError,), samples.KAFKA_FRAMES, [
        *((f"answer {key} v{version}",
           partial(kafka_requests.answer_in, key, version, correlation_id=7, names={"a": "id"}))
          for key, version in ((4, 5), (4, 4), (5, 3), (6, 7))),
        ("leader epochs", partial(kafka.codes_in, correlation_id=7)),
        *((f"whole requests {key} v{version}", partial(_whole_request, key, version)) for key in messages.NAMES
          for version in messages.versions_of(key)),
        *((f"{parse.__name__} {is_flexible}", partial(_of_kafka, parse, is_flexible)) for is_flexible in (True, False)
          for parse in (admin_apis._creation, admin_apis._growth, admin_apis._named, admin_apis._numbers,
                        admin_apis._targets)),
        *((f"{parse.__name__} {is_flexible}", partial(own_configs._resources_in, read=parse, is_flexible=is_flexible))
          for is_flexible in (True, False) for parse in (own_configs._altered, own_configs._described)),
        *((f"{name} {is_flexible}", partial(_of_kafka, parse, is_flexible)) for is_flexible in (True, False)
          for name, parse in CLIENTS),
    ]),
    *rows("topic configurations", (), (b'{"config":{"retention.ms":"7"}}', b'{"config":{"flush.ms":"-"}}'), [
        ("settings", _topic_settings)]),
    *rows("RPC bodies and answers", (msgspec.DecodeError,), samples.FED, [("records", wire_bodies.batches_of)]),
    *rows("logins", (), samples.TOKENS, [
        ("PLAIN", partial(_logged_in, PLAIN, None)),
        ("SCRAM, first", partial(_logged_in, SCRAM[0], None)),
        ("SCRAM, final", partial(_logged_in, SCRAM[0], samples.RECORD.decode())),
        ("SCRAM, record", lambda data: _logged_in(SCRAM[0], text_of(data), samples.TOKENS[-1])),
    ]),
    *rows("log lines", (), samples.LINES, [
        *((layout, partial(_read_lines, layout)) for layout in ("klamm", "[%d] %p %m (%c)%n")),
        ("what kind of file", lambda data: sniff(data.decode(errors="replace").split("\n"))),
    ]),
)  # fmt: skip
