"""Our own state-change log, as the controller writes it and as the jobs read it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import msgspec
import pytest

from controller.core.causes import Cause
from controller.core.project.lines import Line
from sparkjobs.parse.lines import LineReader
from sparkjobs.parse.ours import CAUSES, CAUSES_WITHIN, OurLine
from sparkjobs.parse.shapes import SHAPES
from sparkjobs.tables.silver import SilverEvent
from tests.spark.lines import TS_MS, a_file

SOURCES: Final = Path(__file__).parents[2] / "sparkjobs"


def read(line: Line) -> SilverEvent:
    event = LineReader(a_file("klamm", kind="json")).read(msgspec.json.encode(line).decode(), 1)
    assert isinstance(event, SilverEvent), event
    return event


def test_every_field_that_is_read_is_written_with_the_same_type() -> None:
    written = msgspec.json.schema(Line)["$defs"]["Line"]["properties"]
    for name in OurLine.__struct_fields__:
        assert name in written, name
    assert set(written) - set(OurLine.__struct_fields__) == {"cluster_id"}  # --cluster names it


def test_a_partitions_line_has_kafkas_columns_and_more() -> None:
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


def test_a_truncation_is_the_brokers_own_line_and_says_which_records_went() -> None:
    event = read(
        Line(
            **{"at_ms": TS_MS, "cluster_id": "c", "controller_id": 2, "controller_epoch": 5, "kind": "truncation"},
            **{"broker_id": 3, "broker_epoch": 9, "topic": "orders", "partition": 1, "topic_id": "T"},
            **{"leader": 1, "leader_epoch": 4, "offset": 10, "records": 5, "records_lost": 4, "records_epoch": 3},
        )
    )
    assert (event.event, event.role, event.broker, event.leader) == ("records_truncated", "broker", 3, 1)
    assert (event.offset, event.records, event.records_lost, event.records_epoch) == (10, 5, 4, 3)


def test_half_a_line_is_torn_and_anything_else_has_no_header() -> None:
    reader = LineReader(a_file("klamm", kind="json"))
    assert reader.read('{"at_ms":17949', 1) == "torn"
    assert reader.read("Killed", 1) == "no_header"
    assert reader.read('{"at_ms":-5,"kind":"rpc"}', 1) == "bad_timestamp"


def test_a_line_of_moves_says_whose_states_changed_and_why() -> None:
    event = read(
        Line(
            **{"at_ms": TS_MS, "cluster_id": "c", "controller_id": 2, "controller_epoch": 5, "kind": "move"},
            event_id="5-7",
            part=3,
            machine="replica",
            source="OnlineReplica",
            target="OfflineReplica",
            cause="broker_gone",
            broker_id=1,
            partitions={"orders": "0-4,7", "payments": "2"},
        )
    )
    assert (event.event, event.role, event.broker, event.peer_broker) == ("states_moved", "controller", 2, 1)
    assert (event.machine, event.from_state, event.to_state) == ("replica", "OnlineReplica", "OfflineReplica")
    assert (event.cause, event.cause_id, event.part) == ("broker_gone", "5-7", 3)
    assert event.partitions == ("orders 0-4,7", "payments 2")


@pytest.mark.parametrize(
    ("reason", "cause", "unclean"),
    [
        ("brokers gone 1,3; joined 4", "broker_gone", None),
        ("brokers joined 4; changed 5", "broker_joined", None),
        ("brokers bounced 2", "broker_bounced", None),
        ("broker 3 shuts down", "controlled_shutdown", None),
        ("shuts down", "controlled_shutdown", None),
        ("broker 3 drains", "drain", None),
        ("leader 2 asked", "isr_asked", None),
        ("broker 2 refused leader epoch 7", "epoch_refused", None),
        ("log directory of broker 3", "disk_failed", None),
        ("term started", "term_started", None),
        ("found", "found", None),
        ("unclean election asked", "unclean_election", True),
        ("something else", None, None),
    ],
)
def test_words_of_lines_without_a_cause_stand_for_one(reason: str, cause: str | None, unclean: bool | None) -> None:
    line = {"at_ms": TS_MS, "cluster_id": "c", "controller_id": 2, "controller_epoch": 5, "kind": "partition"}
    old = read(Line(**line, reason=reason))
    assert (old.cause, old.unclean) == (cause, unclean)
    new = read(Line(**line, reason=reason, cause="repaired"))
    assert (new.cause, new.unclean) == ("repaired", None)


def test_causes_of_old_words_are_causes_that_the_controller_knows() -> None:
    known = {one.value for one in Cause}
    assert {*dict(CAUSES).values(), *CAUSES_WITHIN.values()} <= known


def test_no_rule_and_no_page_looks_into_the_words_of_a_reason() -> None:
    """It is handed on, or compared as a whole with a constant that a shape of the catalogue puts there itself."""
    constants = {shape.constants["reason"] for shape in SHAPES if "reason" in shape.constants}
    read, compared = 0, 0
    for path in sorted(path for room in ("rules", "report") for path in (SOURCES / room).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        named = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Constant)
            for target in [node.target]
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Attribute) and node.attr == "reason"):
                continue
            read += 1
            parent = parents[node]
            if isinstance(parent, ast.BoolOp):
                parent = parents[parent]
            assert not isinstance(parent, ast.Attribute | ast.Subscript), (path.name, node.lineno)
            if isinstance(parent, ast.Compare):
                compared += 1
                [operator], [other] = parent.ops, parent.comparators
                assert isinstance(operator, ast.Eq | ast.NotEq), (path.name, node.lineno)
                assert isinstance(other, ast.Name), (path.name, node.lineno)
                assert named[other.id] in constants, (path.name, node.lineno)
    assert (read > 4, compared) == (True, 2)


@pytest.mark.parametrize(
    "ranges", ["", "x", "4-2", "0-", "1,,2", "0-9999999", "-1", "0-1999999", "0-999999,0-999999,1"]
)
def test_a_line_that_names_partitions_as_none_can_be_named_is_no_line_of_ours(ranges: str) -> None:
    """Readers make a bit of each, and a row."""
    line = {"at_ms": TS_MS, "kind": "move", "partitions": {"orders": ranges}}
    assert LineReader(a_file("klamm", kind="json")).read(msgspec.json.encode(line).decode(), 1) == "torn"
