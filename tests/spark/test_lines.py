"""The meaning of one line, for the versions and layouts that Kafka was ever run with."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjobs.parse.layouts import LAYOUTS, STOCK, layout_for
from sparkjobs.parse.lines import CONTINUES, LineReader
from sparkjobs.parse.shapes import EVENTS, SHAPES
from sparkjobs.parse.sniff import sniff
from sparkjobs.tables.silver import (
    LINE_LIMIT,
    BronzeFile,
    SilverEvent,
    columns_of,
)
from tests.spark.lines import MESSAGES, TS, TS_MS, a_file, damaged
from tests.steps import counted

OFFLINE = "[Controller id=1 epoch=3] Changed partition a-1-7 state from OnlinePartition to OfflinePartition"


def read(line: str, file: BronzeFile | None = None, **options: Any) -> SilverEvent | str:
    return LineReader(file or a_file()).read(line, 1, **options)


def rendered(layout: str, message: str, ts: str = TS, logger: str = "state.change.logger") -> str:
    """As log4j would print it."""
    parts = {"%d": ts, "%-5p": "INFO ", "%p": "INFO", "%t": "main-1", "%c": logger, "%m": message, "%F": "A.scala"}
    for conversion, text in {**parts, "%L": "103"}.items():
        layout = layout.replace(conversion, text)
    return layout


@pytest.mark.parametrize(("message", "logger", "expected"), MESSAGES, ids=[one[0][:60] for one in MESSAGES])
def test_a_line_of_any_version_says(message: str, logger: str, expected: dict[str, Any]) -> None:
    event = read(f"[{TS}] INFO {message} ({logger})", a_file(kind="mixed"))
    assert isinstance(event, SilverEvent), event
    assert {name: getattr(event, name) for name in expected} == expected
    assert (event.ts_utc, event.ts_raw, event.level, event.dt) == (TS_MS, TS, "INFO", "2026-11-18")


def test_every_shape_is_an_event_that_has_a_name() -> None:
    assert {shape.event for shape in SHAPES} <= EVENTS.keys()
    assert len({shape.shape_id for shape in SHAPES}) == len(SHAPES)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_file_of_any_layout_is_understood_from_its_lines(layout: str) -> None:
    lines = [rendered(layout, message, logger=logger) for message, logger, _ in MESSAGES]
    found = sniff(lines)
    assert found.layout is not None
    event = read(rendered(layout, OFFLINE), a_file(found.layout))
    assert isinstance(event, SilverEvent)
    assert (event.event, event.topic, event.partition, event.ts_utc) == ("partition_changed", "a-1", 7, TS_MS)


AROUND = (
    ("docker", "kafka-1  | {}"),
    ("docker-time", "2026-11-18T07:49:10.504123Z {}"),
    ("docker-time", "2026-11-18T07:49:10.504123Z stdout F {}"),
    ("kubernetes", "[pod/kafka-0/kafka] {}"),
    ("grep", "kafka1/state-change.log:{}"),
    ("json", '{{"stream":"stdout","log":"{}\\n"}}'),
    ("json", '{{"@timestamp":"x","message":"{}"}}'),
)


@pytest.mark.parametrize(("wrapper", "around"), AROUND)
@pytest.mark.parametrize("layout", [STOCK, LAYOUTS[1]])
def test_a_wrapper_around_a_line_is_taken_off(layout: str, wrapper: str, around: str) -> None:
    line = around.format(rendered(layout, OFFLINE))
    found = sniff([line] * 5)
    assert (found.layout, found.wrapper) == (layout, wrapper)
    event = read(line, a_file(layout, wrapper=wrapper))
    assert isinstance(event, SilverEvent)
    assert (event.to_state, event.line) == ("OfflinePartition", line)


def test_the_layout_of_one_more_file_costs_few_steps() -> None:
    """There may be 100,000 files of one line each, of which nobody knows what it means: all layouts are tried, but no
    wrapper that the line does not have, and no expression is made twice."""
    line = f"[{TS}] INFO Did what nobody knows (kafka.coordinator.group.GroupCoordinator)"
    found = sniff([line])
    with counted(("sparkjobs",)) as steps:
        assert sniff([line]) == found
    assert steps.count < 100 * len(LAYOUTS)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("\tat kafka.controller.KafkaController.elect(KafkaController.scala:1568)", CONTINUES),
        ("kafka.common.StateChangeFailedException: Failed to elect leader", CONTINUES),
        ("Caused by: java.io.IOException", CONTINUES),
        ("", CONTINUES),
        ("log4j:ERROR something", "no_header"),
        ("\x00\x01\x02", "encoding"),
        ("caf\ufffd", "encoding"),
        (f"[{TS}] INFO [Controller id=1 epoch=2] Did what nobody knows (state.change.logger)", "unknown_shape"),
        (
            f"[{TS}] INFO [Controller id=1 epoch=2] Changed partition t-99999999999 state (state.change.logger)",
            "unknown_shape",
        ),
        (f"[{TS}] TRACE [Controller id=1 epoch=2] Changed partition t-1 state from Onl", "torn"),
        ("[2026-02-31 07:49:10,504] INFO [Broker id=1] x (kafka.server.KafkaServer)", "bad_timestamp"),
        ("[2026-02-28 07:49:61,504] INFO [Broker id=1] x (kafka.server.KafkaServer)", "bad_timestamp"),
        ("x" * (LINE_LIMIT + 1), "too_long"),
    ],
)
def test_a_line_that_is_no_event_gets_its_reason(line: str, reason: str) -> None:
    assert read(line, a_file(is_text=False)) == reason


def test_a_message_that_goes_on_in_the_next_line_is_an_event_unless_it_is_one_that_never_does() -> None:
    event = read(f"[{TS}] INFO KafkaConfig values: ", a_file(kind="server"))
    assert isinstance(event, SilverEvent)
    assert event.event == "other"


def test_the_last_line_without_a_newline_counts_only_where_its_end_proves_that_it_is_whole() -> None:
    assert isinstance(read(f"[{TS}] INFO {OFFLINE} (state.change.logger)", is_cut=True), SilverEvent)
    assert read(f"[{TS}] INFO {OFFLINE[:-3]}", is_cut=True) == "torn"
    assert read(f"{TS} INFO  [main] logger: {OFFLINE}", a_file(LAYOUTS[1]), is_cut=True) == "torn"


@pytest.mark.parametrize(
    ("ts", "zone", "shift_hours"),
    [
        (TS, "Europe/Berlin", -1),
        (TS, "America/New_York", 5),
        (TS.replace(" ", "T") + "Z", "Europe/Berlin", 0),
        (TS + "+02:00", "America/New_York", -2),
        (TS + " -0330", "UTC", 3.5),
        ("18 Nov 2026 07:49:10,504", "UTC", 0),
        (str(TS_MS), "Europe/Berlin", 0),
        (TS.replace(",", ".") + "123", "UTC", 0),
    ],
)
def test_a_time_is_taken_in_the_zone_of_its_file_unless_it_names_one(ts: str, zone: str, shift_hours: float) -> None:
    event = read(f"[{ts}] INFO {OFFLINE} (state.change.logger)", a_file(tz=zone))
    assert isinstance(event, SilverEvent)
    assert event.ts_utc == TS_MS + shift_hours * 3_600_000


def test_the_same_line_has_the_same_id_in_any_file_and_at_any_place() -> None:
    line = f"[{TS}] INFO {OFFLINE} (state.change.logger)"
    one, other = read(line), LineReader(a_file(file_id="0" * 64)).read(line, 77)
    assert isinstance(one, SilverEvent)
    assert isinstance(other, SilverEvent)
    assert one.event_id == other.event_id
    changed = read(line.replace("id=1", "id=2"))
    assert isinstance(changed, SilverEvent)
    assert changed.event_id != one.event_id


def test_a_layout_of_ones_own_needs_a_date_and_a_message() -> None:
    with pytest.raises(ValueError, match="needs a date"):
        layout_for("%p %m")
    with pytest.raises(ValueError, match="not known"):
        layout_for("%d %q %m")


@given(seed=st.integers(0, 2**32), layout=st.sampled_from(LAYOUTS), one=st.sampled_from(MESSAGES))
def test_no_damage_to_a_line_raises_or_makes_a_number_that_no_column_holds(
    seed: int, layout: str, one: tuple[str, str, dict[str, Any]]
) -> None:
    draw = random.Random(seed)
    line = rendered(layout, one[0], logger=one[1])
    for _ in range(draw.randint(1, 4)):
        line = damaged(line, draw)
    event = read(line, a_file(layout, is_text=False), is_cut=draw.random() < 0.1)
    if isinstance(event, SilverEvent):
        numbers = [getattr(event, name) for name, kind in columns_of(SilverEvent).items() if kind == "int"]
        assert all(number is None or abs(number) < 2**31 for number in numbers)


@pytest.mark.parametrize("year", ["0026", "1926", "2010", "2100", "2926"])
def test_a_year_that_no_cluster_can_have_seen_is_no_moment(year: str) -> None:
    line = rendered(STOCK, OFFLINE)
    assert isinstance(read(line), SilverEvent)
    assert not isinstance(read(line.replace("2026", year, 1)), SilverEvent)


@pytest.mark.parametrize(("wrapper", "around"), AROUND)
def test_a_wrapper_around_a_line_of_ours_is_taken_off_too(wrapper: str, around: str) -> None:
    ours = f'{{"at_ms":{TS_MS},"kind":"partition","controller_id":2,"topic":"a","partition":7}}'
    line = around.format(ours.replace('"', '\\"') if wrapper == "json" else ours)
    found = sniff([line] * 5)
    assert (found.layout, found.wrapper, found.first_raw) == ("klamm", wrapper, str(TS_MS))
    event = read(line, a_file("klamm", wrapper=wrapper))
    assert isinstance(event, SilverEvent)
    assert (event.topic, event.partition, event.ts_utc) == ("a", 7, TS_MS)
    assert read("no such thing", a_file("klamm", wrapper=wrapper)) == "no_header"


def test_a_layout_is_found_behind_a_banner_however_long() -> None:
    banner = [f"log.setting.{number} = {number}" for number in range(1_500)]
    assert sniff([*banner, rendered(STOCK, OFFLINE)]).layout == STOCK


def test_an_event_that_a_shipper_put_together_with_its_trace_is_the_event() -> None:
    trace = "java.lang.IllegalStateException: no\n\tat a.b(C.java:1)\n"
    whole = json.dumps({"message": f"{rendered(STOCK, OFFLINE)}\n{trace}"})
    event = read(whole, a_file(STOCK, wrapper="json"))
    assert isinstance(event, SilverEvent)
    assert (event.event, event.to_state) == ("partition_changed", "OfflinePartition")
    assert event.trace == "java.lang.IllegalStateException: no"


def test_no_shape_is_hidden_behind_an_earlier_one() -> None:
    hidden = [
        (later.shape_id, earlier.shape_id)
        for place, later in enumerate(SHAPES)
        for earlier in SHAPES[:place]
        if not earlier.mark and f"{later.anchor} ".startswith(f"{earlier.anchor} ")
    ]
    assert hidden == []
