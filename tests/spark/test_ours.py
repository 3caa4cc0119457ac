"""Our own state-change log, as the controller writes it and as the jobs read it."""

from __future__ import annotations

import msgspec

from controller.core.project.lines import Line
from sparkjobs.parse.lines import LineReader
from sparkjobs.parse.ours import OurLine
from sparkjobs.tables.silver import SilverEvent
from tests.spark.lines import TS_MS, a_file


def read(line: Line) -> SilverEvent:
    event = LineReader(a_file("klamm", kind="json")).read(msgspec.json.encode(line).decode(), 1)
    assert isinstance(event, SilverEvent), event
    return event


def test_every_field_that_is_read_is_written_with_the_same_type() -> None:
    written = msgspec.json.schema(Line)["$defs"]["Line"]["properties"]
    for name in OurLine.__struct_fields__:
        assert name in written, name
    assert set(written) - set(OurLine.__struct_fields__) == {"cluster_id"}  # --cluster names it


def test_a_partitions_line_says_what_kafkas_does_and_more() -> None:
    event = read(
        Line(
            at_ms=TS_MS,
            cluster_id="c",
            controller_id=2,
            controller_epoch=5,
            event_id="5-7",
            kind="partition",
            topic="orders",
            partition=0,
            source="OnlinePartition",
            target="OfflinePartition",
            reason="brokers gone 1",
            leader=-1,
            leader_epoch=0,
            isr=(1,),
            version=3,
            zxid=77,
        )
    )
    assert (event.event, event.role, event.broker, event.controller_epoch) == ("partition_changed", "controller", 2, 5)
    assert (event.from_state, event.to_state, event.leader, event.leader_epoch) == (
        *("OnlinePartition", "OfflinePartition"),
        *(-1, 0),
    )
    assert (event.isr, event.version, event.zxid, event.cause_id, event.ts_utc) == ((1,), 3, 77, "5-7", TS_MS)


def test_a_request_is_the_brokers_own_line() -> None:
    event = read(
        Line(
            **{"at_ms": TS_MS, "cluster_id": "c", "controller_id": 2, "controller_epoch": 5, "kind": "rpc"},
            broker_id=3,
            reason="leader-and-isr: 6 partitions",
            took_ms=0.409,
            error_code=11,
        )
    )
    assert (event.event, event.role, event.broker, event.controller) == ("request_done", "broker", 3, 2)
    assert (event.api, event.elapsed_ms, event.error) == ("LeaderAndIsr", 0.409, "11")


def test_half_a_line_is_torn_and_anything_else_has_no_header() -> None:
    reader = LineReader(a_file("klamm", kind="json"))
    assert reader.read('{"at_ms":17949', 1) == "torn"
    assert reader.read("Killed", 1) == "no_header"
    assert reader.read('{"at_ms":-5,"kind":"rpc"}', 1) == "bad_timestamp"
