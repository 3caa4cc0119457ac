"""Spark's answers are the local engine's, row by row, whatever order and however often the events come."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkjobs.engine.local import answers as local
from sparkjobs.engine.local.ingest import ingest
from sparkjobs.engine.local.line_lookup import lines_at
from sparkjobs.input.files import Zones, find_logs, survey
from sparkjobs.report.findings import findings_for
from sparkjobs.report.write import digest_of
from sparkjobs.tables.gold import GOLD
from sparkjobs.tables.silver import SilverEvent, spark_schema
from tests.spark import chaos
from tests.spark.bundles import write
from tests.spark.simulate import Simulation
from tests.spark.test_simulated import DIALECTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore")

DATA = Path(__file__).parents[1] / "data"


def events_of(recording: str) -> list[SilverEvent]:
    return ingest(survey(find_logs([str(DATA / recording)]), recording, Zones())).events


def frame_of(spark: SparkSession, events: Sequence[SilverEvent], partitions: int = 3) -> DataFrame:
    rows = [msgspec.structs.astuple(event) for event in events]
    return spark.createDataFrame(rows, spark_schema(SilverEvent)).repartition(partitions)


@pytest.fixture(scope="module")
def info() -> list[SilverEvent]:
    return events_of("kafka-3.9.1-info")


@pytest.mark.long
@pytest.mark.java
@pytest.mark.slow
def test_every_table_has_the_declared_types_and_the_rows_of_the_local_engine(
    spark: SparkSession, info: list[SilverEvent]
) -> None:
    from sparkjobs.engine.spark.answers import answers_for, gold_for

    events = frame_of(spark, info).persist()
    gold = gold_for(events)
    assert set(gold) == set(GOLD)
    for name, frame in gold.items():
        declared = [(field.name, field.dataType) for field in spark_schema(GOLD[name]).fields]
        assert [(field.name, field.dataType) for field in frame.schema.fields] == declared, name
    expected = local.answers_for(info)
    found = answers_for(events)
    for name, rows in expected.items():
        assert found[name] == rows, name
    assert digest_of(found) == digest_of(expected)
    events.unpersist()


@pytest.mark.java
@pytest.mark.slow
def test_spark_quotes_the_findings_as_the_files_have_them_and_carries_no_other_line(
    spark: SparkSession, info: list[SilverEvent]
) -> None:
    from sparkjobs.engine.spark.line_lookup import lines_of

    findings = findings_for(local.answers_for(info))
    places = {(one.file_id, one.line_no) for one in findings if one.file_id}
    expected = lines_at(survey(find_logs([str(DATA / "kafka-3.9.1-info")]), "kafka-3.9.1-info", Zones()), places)
    assert lines_of(frame_of(spark, info), places) == expected
    assert expected.keys() == places


@pytest.mark.long
@pytest.mark.java
@pytest.mark.slow
def test_two_clusters_in_one_table_do_not_touch_each_other(spark: SparkSession, info: list[SilverEvent]) -> None:
    from sparkjobs.engine.spark.answers import answers_for

    few = [event for event in info if event.topic in (None, "orders-1")]
    other = [msgspec.structs.replace(event, cluster="another") for event in few]
    both = answers_for(frame_of(spark, [*few, *other]))
    alone = local.answers_for(few)
    for name, rows in alone.items():
        assert [row for row in both[name] if row.cluster != "another"] == rows, name  # type: ignore[attr-defined]


@given(seed=st.integers(0, 2**32), count=st.integers(1, 60))
@example(seed=800, count=50)  # a broker that lost ZooKeeper and had it back within a millisecond
def test_the_order_of_events_changes_nothing(seed: int, count: int) -> None:
    draw = random.Random(seed)
    events = chaos.events_of(draw, "c", count)
    expected = local.answers_for(events)
    draw.shuffle(events)
    found = local.answers_for(events)
    for name, rows in expected.items():
        assert found[name] == rows, name


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize(
    ("clusters", "empty"),
    [
        (12, {"cluster_silences"}),
        pytest.param(200, set(), marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
def test_whatever_the_events_every_table_is_that_of_the_local_engine(
    spark: SparkSession, clusters: int, empty: set[str]
) -> None:
    """Each cluster is an example of its own; Spark answers about all of them at once."""
    from sparkjobs.engine.spark.answers import answers_for

    draw = random.Random(clusters)
    events = [one for number in range(clusters) for one in chaos.events_of(draw, f"c{number:03}", 1 + 9 * number % 80)]
    expected, found = local.answers_for(events), answers_for(frame_of(spark, events))
    for name, rows in expected.items():
        assert found[name] == rows, name
    assert {name for name, rows in expected.items() if not rows} == empty
    assert any(one.acked for one in expected["leader_changes"])  # type: ignore[attr-defined]
    assert {one.what for one in expected["flapping"]} == {"broker", "leader", "isr"}  # type: ignore[attr-defined]


@pytest.mark.java
@pytest.mark.slow
def test_of_kafka_before_2_6_who_did_what_and_how_long_it_took_is_the_same(spark: SparkSession, tmp_path: Path) -> None:
    from sparkjobs.engine.spark.answers import answers_for

    events: list[SilverEvent] = []
    for version in ("0.8", "0.10", "1.1", "3.9"):
        write(Simulation(1, dialect=DIALECTS[version](), partitions=4).run(faults=5), tmp_path / version, "TRACE")
        events += ingest(survey(find_logs([str(tmp_path / version)]), version, Zones())).events
    expected, found = local.answers_for(events), answers_for(frame_of(spark, events))
    for name in ("leader_changes", "failovers", "rpc_latency", "coverage"):
        assert found[name] == expected[name], name
    latencies: Sequence[Any] = expected["rpc_latency"]
    sides = {version: {one.side for one in latencies if one.cluster == version} for version in DIALECTS}
    assert sides["0.8"] == sides["1.1"] == {"broker", "controller"}
    assert (sides["0.10"], sides["3.9"]) == ({"broker"}, {"controller"})
    slowest = {one.cluster for one in expected["failovers"] if one.slowest is not None}  # type: ignore[attr-defined]
    assert slowest == {"0.8", "0.10", "1.1", "3.9"}


@pytest.mark.java
@pytest.mark.slow
def test_what_is_kept_for_a_while_is_released(spark: SparkSession) -> None:
    from sparkjobs.engine.spark.frames import released

    with released() as keep:
        frame = keep(spark.range(3))
        assert frame.count() == 3
        assert frame.storageLevel.useMemory
    assert not frame.storageLevel.useMemory
