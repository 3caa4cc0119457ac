"""`meta.properties`: a log directory belongs to one broker of one cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerstub.identity import (
    MetaPropertiesError,
    broker_id_of,
    check_cluster,
    read_meta_properties,
    write_meta_properties,
)
from controller.base.config import ConfigError, given_properties, parse_properties


@pytest.fixture
def directories(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.mkdir()
    return paths


def test_the_written_file_is_kafkas_and_is_found_again(directories: list[Path]) -> None:
    assert broker_id_of(read_meta_properties(directories), -1) is None
    write_meta_properties(directories, 1001, "cluster")
    for path in directories:
        assert parse_properties((path / "meta.properties").read_text()) == {
            "version": "0",
            "broker.id": "1001",
            "cluster.id": "cluster",
        }
    metas = read_meta_properties(directories)
    assert (broker_id_of(metas, -1), broker_id_of(metas, 1001)) == (1001, 1001)
    check_cluster(metas, "cluster")


def test_properties_are_read_as_java_reads_them() -> None:
    text = (
        "# a comment\n! another\n\nlog.dirs : /a,\\\n    /b\nbroker.id=7 \nlisteners HTTP://127.0.0.1:1\n"
        "klamm.report.file=C\\:\\\\r\\u00e9\nbroker.rack\nbroker.id:8\n"
    )
    assert parse_properties(text) == {
        "log.dirs": "/a,/b",
        "listeners": "HTTP://127.0.0.1:1",
        "klamm.report.file": "C:\\r\u00e9",
        "broker.rack": "",
        "broker.id": "8",
    }
    with pytest.raises(ConfigError, match=r"this escape is none: \\u12"):
        parse_properties("a=\\u12")


def test_a_value_on_a_command_line_is_taken_as_it_stands() -> None:
    assert given_properties(["log.dirs=C:\\logs", "a = b=c "]) == {"log.dirs": "C:\\logs", "a": "b=c"}
    with pytest.raises(ConfigError, match=r"expected key=value, found 'broker\.id: 1'"):
        given_properties(["broker.id: 1"])


def test_a_directory_added_later_gets_its_file_and_the_others_are_left_alone(directories: list[Path]) -> None:
    write_meta_properties(directories[:1], 1, "cluster")
    before = (directories[0] / "meta.properties").stat().st_ino
    write_meta_properties(directories, 1, "cluster")
    assert ((directories[0] / "meta.properties").stat().st_ino, len(read_meta_properties(directories))) == (before, 2)


def test_a_directory_of_another_broker_is_refused(directories: list[Path]) -> None:
    write_meta_properties(directories[:1], 1, "cluster")
    with pytest.raises(
        MetaPropertiesError, match=r"a/meta.properties belongs to broker 1, and property broker.id says 2"
    ):
        broker_id_of(read_meta_properties(directories), 2)
    write_meta_properties(directories[1:], 3, "cluster")
    with pytest.raises(
        MetaPropertiesError, match=r"b/meta.properties belongs to broker 3, and .*a/meta.properties says 1"
    ):
        broker_id_of(read_meta_properties(directories), -1)


def test_a_directory_of_another_cluster_is_refused(directories: list[Path]) -> None:
    write_meta_properties(directories, 1, "cluster")
    with pytest.raises(MetaPropertiesError, match="belongs to cluster cluster, and ZooKeeper has cluster other"):
        check_cluster(read_meta_properties(directories), "other")


def test_kafkas_own_file_before_it_knew_its_cluster_is_read(directories: list[Path]) -> None:
    (directories[0] / "meta.properties").write_text("#\n#Tue Nov 18 10:00:00 UTC 2026\nversion=0\nbroker.id=7\n")
    metas = read_meta_properties(directories)
    check_cluster(metas, "any")
    assert broker_id_of(metas, -1) == 7


@pytest.mark.parametrize("text", ["version=1\nnode.id=1\n", "version=0\nbroker.id=one\n", ""])
def test_a_file_of_another_kind_is_refused(directories: list[Path], text: str) -> None:
    (directories[0] / "meta.properties").write_text(text)
    with pytest.raises(MetaPropertiesError, match=r"no meta\.properties of version 0"):
        read_meta_properties(directories)
