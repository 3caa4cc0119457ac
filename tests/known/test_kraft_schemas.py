"""The table of record schemas: how it is made of Kafka's jars, and that it is whole."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.kraft_schemas import TABLE, SchemasDifferError, main, table_from, text_of


def jar(folder: Path, release: str, *schemas: dict[str, Any]) -> Path:
    path = folder / f"kafka-metadata-{release}.jar"
    with zipfile.ZipFile(path, "w") as content:
        for one in schemas:
            text = "// a licence\n" + json.dumps(one)
            content.writestr(f"common/metadata/{one['name']}.json", text)
    return path


def schema(versions: str, *fields: dict[str, Any]) -> dict[str, Any]:
    found = {"apiKey": 2, "type": "metadata", "name": "TopicRecord", "validVersions": versions}
    return found | {"flexibleVersions": "0+", "fields": list(fields)}


NAME = {"name": "Name", "type": "string", "versions": "0+"}
RACK = {"name": "Rack", "type": "string", "versions": "1+", "taggedVersions": "1+", "tag": "0", "default": "null"}


def test_the_widest_description_counts_and_quoted_numbers_are_numbers(tmp_path: Path) -> None:
    older, newer = jar(tmp_path, "3.9.1", schema("0", NAME)), jar(tmp_path, "4.10.0", schema("0-1", NAME, RACK))
    found = table_from([newer, older])
    assert found["releases"] == ["3.9.1", "4.10.0"]
    record = found["records"]["TopicRecord"]
    assert (record["key"], record["versions"]) == (2, [0, 1])
    assert [(one["name"], one.get("tag")) for one in record["fields"]] == [("name", None), ("rack", 0)]


def test_releases_that_differ_about_one_version_are_an_error(tmp_path: Path) -> None:
    jars = [jar(tmp_path, "4.0.0", schema("0", NAME)), jar(tmp_path, "4.1.0", schema("0", NAME | {"type": "bytes"}))]
    with pytest.raises(SchemasDifferError, match=r"TopicRecord of kafka-metadata-4\.1\.0\.jar: version 0"):
        table_from(jars)


def test_the_table_in_the_tree_reads_back_and_holds_every_type_once() -> None:
    text = TABLE.read_text(encoding="utf-8")
    table = json.loads(text)
    assert text_of(table) == text
    keys = [one["key"] for one in table["records"].values()]
    assert len(keys) == len(set(keys)) == 27
    assert sorted(one["key"] for one in table["control"].values()) == [2, 3, 4, 5, 6]
    assert main([]) == 2
