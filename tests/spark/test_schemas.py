"""A table is declared once; Python rows and Spark's types come from it."""

from __future__ import annotations

import pytest

from sparkjobs.tables.silver import (
    TABLES,
    SilverCount,
    SilverEvent,
    columns_of,
    spark_schema,
)


def test_columns_and_types_come_in_the_order_of_declaration() -> None:
    assert list(columns_of(SilverCount).items())[:4] == [
        ("cluster", "string"),
        ("path", "string"),
        ("file_id", "string"),
        ("lines", "bigint"),
    ]
    event = columns_of(SilverEvent)
    assert (event["leader"], event["version"], event["isr"]) == ("int", "bigint", "array<int>")


@pytest.mark.parametrize("name", TABLES)
def test_every_row_knows_the_catalogue_it_was_made_with(name: str) -> None:
    assert list(columns_of(TABLES[name]))[-1] == "catalog_version"


def test_sparks_schema_says_the_same() -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    for table in TABLES.values():
        fields = {field.name: field.dataType.simpleString() for field in spark_schema(table)}
        assert fields == columns_of(table)
    assert not spark_schema(SilverEvent)["event_id"].nullable
    assert spark_schema(SilverEvent)["leader"].nullable
