"""Prints `sparkjobs/records/kraft_schemas.json`: the fields of each metadata record by version, from Kafka's jars.

`python -m tests.kraft_schemas JAR...` rewrites the table; with `--check` it only says whether the table is current. The
jars are `kafka-metadata-*.jar` and `kafka-clients-*.jar` of any releases: releases differ in the versions they know,
and two that say different things about one version of a record are an error.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[1] / "sparkjobs" / "records" / "kraft_schemas.json"
#: records that a KRaft leader writes beside the metadata, by the type in a control record's key
CONTROL = {
    "LeaderChangeMessage": 2,
    "SnapshotHeaderRecord": 3,
    "SnapshotFooterRecord": 4,
    "KRaftVersionRecord": 5,
    "VotersRecord": 6,
}
#: declared otherwise before any release wrote it: the later description counts. SCRAM and delegation tokens came to
#: KRaft with 3.5 and 3.6
DECLARED_EARLIER = {"DelegationTokenRecord", "UserScramCredentialRecord"}
_COMMENT = re.compile(r"^\s*//.*$", re.M)
_RELEASE = re.compile(r"-(\d+(?:\.\d+)+)\.jar$")


class SchemasDifferError(Exception):
    """Two releases say different things about one version of one record."""


def table_from(jars: Sequence[Path]) -> dict[str, Any]:
    """Of each record the widest description: that of the newest release that has it."""
    found: dict[str, dict[str, Any]] = {}
    for jar in sorted(jars, key=release_of):
        for schema in schemas_in(jar):
            name = schema["name"]
            new, old = _record(schema), found.get(name)
            if old is not None and name not in DECLARED_EARLIER:
                check_agree(old, new, f"{name} of {jar.name}")
            if old is None or new["versions"][1] >= old["versions"][1]:
                found[name] = new
    return {
        "releases": sorted({".".join(map(str, release_of(jar))) for jar in jars}, key=_numbers),
        "records": {name: found[name] for name in sorted(found) if name not in CONTROL},
        "control": {name: found[name] | {"key": CONTROL[name]} for name in sorted(found) if name in CONTROL},
    }


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def release_of(jar: Path) -> tuple[int, ...]:
    """The release that a jar's name says."""
    found = _RELEASE.search(jar.name)
    if found is None:
        raise ValueError(f"{jar.name} names no release")
    return _numbers(found[1])


def schemas_in(jar: Path) -> Iterator[dict[str, Any]]:
    """Of metadata records, and of control records."""
    with zipfile.ZipFile(jar) as content:
        for name in sorted(content.namelist()):
            if name.endswith(".json") and name.startswith(("common/metadata/", "common/message/")):
                schema = json.loads(_COMMENT.sub("", content.read(name).decode()))
                if schema["type"] == "metadata" or schema["name"] in CONTROL:
                    yield schema


def _record(schema: dict[str, Any]) -> dict[str, Any]:
    common = {one["name"]: one["fields"] for one in schema.get("commonStructs", ())}
    if schema["flexibleVersions"] != "0+":
        raise SchemasDifferError(f"{schema['name']}: the reader knows only the flexible encoding")
    key = {"key": schema["apiKey"]} if "apiKey" in schema else {}
    versions, fields = _range(schema["validVersions"]), [_field(one, common) for one in schema["fields"]]
    return key | {"versions": versions, "fields": fields}


def _field(field: dict[str, Any], common: dict[str, Any]) -> dict[str, Any]:
    name = field["name"]
    found: dict[str, Any] = {"name": name[0].lower() + name[1:], "type": field["type"]}
    found["versions"] = _range(field["versions"])
    for ours, theirs in (("nullable", "nullableVersions"), ("tagged", "taggedVersions")):
        if theirs in field:
            found[ours] = _range(field[theirs])
    if "tag" in field:
        found["tag"] = int(field["tag"])  # some releases quote it
    if "default" in field:
        found["default"] = str(field["default"])
    inner = field.get("fields") or common.get(field["type"].removeprefix("[]"))
    if inner is not None:
        found["type"] = "[]struct" if field["type"].startswith("[]") else "struct"
        found["fields"] = [_field(one, common) for one in inner]
    return found


def _range(words: str) -> list[int | None]:
    """`0-3`, `2+`, `1`, `none`."""
    if words == "none":
        return [None, None]
    first, separator, last = words.partition("-")
    if words.endswith("+"):
        return [int(words[:-1]), None]
    return [int(first), int(last if separator else first)]


def check_agree(old: dict[str, Any], new: dict[str, Any], what: str) -> None:
    """Raises SchemasDifferError unless every version that both know has the same fields in both."""
    first = max(old["versions"][0], new["versions"][0])
    for version in range(first, min(old["versions"][1], new["versions"][1]) + 1):
        if _seen_in(old["fields"], version) != _seen_in(new["fields"], version):
            raise SchemasDifferError(f"{what}: version {version} has other fields in an earlier release")


def _seen_in(fields: Sequence[dict[str, Any]], version: int) -> list[object]:
    def is_in(versions: list[int | None] | None) -> bool:
        if versions is None or versions[0] is None:
            return False
        return versions[0] <= version and (versions[1] is None or version <= versions[1])

    return [
        (one["name"].lower(), one["type"], is_in(one.get("nullable")), is_in(one.get("tagged")) and one["tag"],
         one.get("default"), _seen_in(one.get("fields", ()), version))
        for one in fields
        if is_in(one["versions"])
    ]  # fmt: skip


def text_of(table: dict[str, Any]) -> str:
    """A line for each record, so that a change of one is a change of one line."""

    def block(name: str) -> str:
        rows = (f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in table[name].items())
        return f'"{name}": {{\n' + ",\n".join(rows) + "\n}"

    return f'{{"releases": {json.dumps(table["releases"])},\n{block("records")},\n{block("control")}}}\n'


def main(words: Sequence[str]) -> int:
    """Rewrites the table, or says whether it is current."""
    jars = [Path(word) for word in words if word != "--check"]
    if not jars:
        print("name the jars: kafka-metadata-*.jar and kafka-clients-*.jar", file=sys.stderr)  # noqa: T201
        return 2
    text = text_of(table_from(jars))
    if "--check" in words:
        return 0 if TABLE.read_text(encoding="utf-8") == text else 1
    TABLE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
