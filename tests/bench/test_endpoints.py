"""The endpoints of the bench: they acknowledge whole requests, and only these, in both protocols."""

from __future__ import annotations

import asyncio

import pytest

from tests.bench.endpoints import Endpoint, Held, ProtocolError, http_frame, kafka_frame
from tests.kafka import kafka_support as kio

HEAD = (
    b"POST /rpc/v1/update-metadata HTTP/1.1\r\nHost: broker\r\nKlamm-Controller-Id: 1\r\n"
    b"Klamm-Controller-Epoch: 7\r\nKlamm-Broker-Epoch: 12\r\nContent-Length: %d\r\n\r\n"
)


class Wire(asyncio.Transport):
    """Keeps the written bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return False


def feed(endpoint: Endpoint, data: bytes) -> None:
    buffer = endpoint.get_buffer(-1)
    buffer[: len(data)] = data
    endpoint.buffer_updated(len(data))


def test_a_request_in_single_bytes_is_acknowledged_once_with_its_last_byte(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wire, endpoint = Wire(), Endpoint(3, http_frame, {})
    endpoint.connection_made(wire)
    request = HEAD % 5 + b"12345"
    for byte in request[:-1]:
        feed(endpoint, bytes([byte]))
    assert wire.written == []
    feed(endpoint, request[-1:])
    assert [answer.partition(b"\r\n")[0] for answer in wire.written] == [b"HTTP/1.1 200 OK"]
    assert capsys.readouterr().out.split()[1:] == ["3", "update-metadata", str(len(request))]


def test_two_requests_in_one_piece_are_two() -> None:
    wire, endpoint = Wire(), Endpoint(0, http_frame, {})
    endpoint.connection_made(wire)
    feed(endpoint, (HEAD % 5 + b"12345") * 2)
    assert len(wire.written) == 2


def test_a_request_without_a_broker_epoch_is_refused() -> None:
    with pytest.raises(ProtocolError, match="klamm-broker-epoch"):
        http_frame(memoryview(HEAD.replace(b"Klamm-Broker-Epoch", b"Other") % 0))


@pytest.mark.parametrize(
    ("api", "version", "name"), [(4, 7, "LeaderAndIsr"), (5, 4, "StopReplica"), (6, 8, "UpdateMetadata")]
)
def test_kafkas_protocol_is_answered_as_another_codec_reads_it(api: int, version: int, name: str) -> None:
    head = b"".join(number.to_bytes(size) for number, size in ((100, 4), (api, 2), (version, 2), (77, 4)))
    frame = kafka_frame(memoryview(head))
    assert frame is not None
    size, _, answer = frame
    assert size == 104
    assert int.from_bytes(answer[:4]) == len(answer) - 4
    assert int.from_bytes(answer[4:8]) == 77
    assert answer[8] == 0  # no tagged fields in the header
    module = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
    read = kio.read(getattr(kio.schema(module, version, "response"), f"{name}Response"), answer[9:])
    assert read.error_code == kio.error(0)


def test_a_deaf_broker_reads_and_owes_its_answers(capsys: pytest.CaptureFixture[str]) -> None:
    held: Held = {0: []}
    wire, endpoint = Wire(), Endpoint(0, http_frame, held)
    endpoint.connection_made(wire)
    feed(endpoint, HEAD % 5 + b"12345")
    assert (wire.written, capsys.readouterr().out) == ([], "")
    for answer in held[0]:
        answer()
    assert len(wire.written) == 1
