"""Spark reads as the local engine does: equal rows, line by line, and equal accounts."""

from __future__ import annotations

import gzip
import random
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from sparkjobs.input.files import (
    BLOCK_BYTES,
    Zones,
    find_logs,
    survey,
)
from sparkjobs.parse.layouts import LAYOUTS, STOCK
from sparkjobs.tables.silver import (
    LINE_LIMIT,
    BronzeFile,
    Row,
    SilverEvent,
    SilverQuarantine,
    SilverSkew,
)
from tests.spark import reading as local
from tests.spark.lines import MESSAGES, TS, damaged
from tests.spark.test_lines import rendered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]

DATA = Path(__file__).parents[1] / "data"


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.file_id, row.line_no))  # type: ignore[attr-defined]


def both_agree(spark: SparkSession, files: Sequence[BronzeFile], staging: Path) -> local.Ingested:
    from sparkjobs.engine.spark.frames import rows_of
    from sparkjobs.engine.spark.tables import ingest

    expected, found = local.ingest(files), ingest(spark, files, staging)
    for mine, theirs in zip(in_order(rows_of(found.events, SilverEvent)), in_order(expected.events), strict=True):
        assert msgspec.structs.asdict(mine) == msgspec.structs.asdict(theirs)
    assert in_order(rows_of(found.quarantine, SilverQuarantine)) == in_order(expected.quarantine)
    assert sorted(map(msgspec.structs.astuple, found.counts)) == sorted(map(msgspec.structs.astuple, expected.counts))
    assert [file.status for file in found.files] == [file.status for file in expected.files]
    return expected


def test_two_real_clusters_are_read_equally(spark: SparkSession, tmp_path: Path) -> None:
    for recording in ("kafka-3.9.1", "kafka-3.9.1-info"):
        files = survey(find_logs([str(DATA / recording)]), "test", Zones())
        expected = both_agree(spark, files, tmp_path / recording)
        assert expected.quarantine == []
        assert len(expected.events) > 20_000


def test_a_cluster_whose_workers_write_elsewhere_is_told_which_folder_to_share(tmp_path: Path) -> None:
    """Each machine has such a folder for itself: none of its files is here."""
    from sparkjobs.engine.spark.session import NoSparkError
    from sparkjobs.engine.spark.tables import require_here

    (tmp_path / "part-1").touch()
    require_here(tmp_path, ["part-1"])
    with pytest.raises(NoSparkError, match="--out has to name a folder that they and this process share"):
        require_here(tmp_path, ["part-1", "part-2"])


def test_lines_of_a_log_of_several_blocks_and_of_one_byte_know_their_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A line begins just where a block does, and one reaches over the end of a block."""
    line = b"no line of a log %06d" + b" " * (8 * 1_024 - 24) + b"\n"
    for name, first in (("even.log", b""), ("odd.log", b"x" * 99 + b"\n")):
        lines = (line % number for number in range(2 * BLOCK_BYTES // 8_192 + 3))
        (tmp_path / name).write_bytes(first + b"".join(lines))
    (tmp_path / "small.log").write_bytes(b"x")
    expected = both_agree(spark, survey(find_logs([str(tmp_path)]), "test", Zones()), tmp_path / "staging")
    assert len(expected.quarantine) == 2 * (2 * BLOCK_BYTES // 8_192 + 3) + 2


def test_of_a_log_that_grows_while_it_is_read_lines_keep_their_numbers(spark: SparkSession, tmp_path: Path) -> None:
    log, line = tmp_path / "one.log", b"no line of a log" + b" " * 8_175 + b"\n"
    log.write_bytes(line * 10)
    files = survey([str(log)], "test", Zones())
    with log.open("ab") as file:
        file.write(line * (BLOCK_BYTES // 8_192))
    from sparkjobs.engine.spark.frames import rows_of
    from sparkjobs.engine.spark.tables import ingest

    rows = rows_of(ingest(spark, files, tmp_path / "staging").quarantine, SilverQuarantine)
    numbers = sorted(row.line_no for row in rows)
    assert numbers == list(range(1, len(numbers) + 1))
    assert 10 <= len(numbers) <= 10 + BLOCK_BYTES // 8_192


def test_all_layouts_wrappers_versions_and_damages_are_read_equally(spark: SparkSession, tmp_path: Path) -> None:
    draw = random.Random(7)
    around = ("{}", "{}", "kafka-1  | {}", "2026-11-18T07:49:10.504123Z {}", "kafka1/state-change.log:{}")
    for number, layout in enumerate(LAYOUTS):
        lines = [rendered(layout, message, logger=logger) for message, logger, _ in MESSAGES]
        lines += [damaged(draw.choice(lines), draw) for _ in range(60)]
        lines += ["java.lang.IllegalStateException: no", "\tat a.b(C.java:1)", "", "log4j:ERROR x"]
        folder = tmp_path / "logs" / f"broker{number}"
        folder.mkdir(parents=True)
        text = "\n".join(around[number % len(around)].format(line) for line in lines)
        (folder / "state-change.log").write_text(text + ("\n" if number % 3 else ""), encoding="utf-8")
    zones = Zones("Europe/Berlin", dict.fromkeys(range(0, 60, 2), "America/New_York"))
    expected = both_agree(spark, survey(find_logs([str(tmp_path / "logs")]), "test", zones), tmp_path / "staging")
    assert {row.reason for row in expected.quarantine} >= {"encoding", "unknown_shape", "torn", "no_header"}
    assert any(event.trace for event in expected.events)


def test_our_own_logs_and_bad_files_are_read_equally(spark: SparkSession, tmp_path: Path) -> None:
    ours = tmp_path / "broker-1"
    ours.mkdir()
    lines = [
        '{"at_ms":1794998700904,"cluster_id":"k","controller_id":2,"controller_epoch":1,"kind":"rpc","event_id":"1-3",'
        '"broker_id":1,"reason":"update-metadata: 0 topics","broker_epoch":10,"took_ms":0.666,"error_code":0}',
        '{"at_ms":1794998700905,"cluster_id":"k","controller_id":2,"controller_epoch":1,"kind":"partition","topic":"t",'
        '"partition":0,"source":"OnlinePartition","target":"OfflinePartition","leader":-1,"leader_epoch":0,"isr":[1,2],'
        '"version":9999999999,"zxid":77,"new_field":{"a":1}}',
        '{"at_ms":1794998700906,"kind":"reassignment","target":"done","controller_id":2,"isr":[]}',
        '{"at_ms":1794998700907,"kind":"broker","broker_id":3,"source":"live","target":"gone","controller_id":2}',
        '{"at_ms":1794998700908,"controller_id":2,"controller_epoch":1,"event_id":"1-4","kind":"move","part":1,'
        '"machine":"replica","source":"OnlineReplica","target":"OfflineReplica","cause":"broker_gone","broker_id":3,'
        '"partitions":{"t":"0-4,7","u":"2"},"unclean":true}',
        '{"at_ms":1794998700909,"controller_id":2,"kind":"move","partitions":{"t":"0-9999999"}}',
        '{"at_ms":-1,"kind":"topic"}',
        '{"at_ms":"soon","kind":"topic"}',
        '{"kind":"topic"}',
        "Killed",
        "",
        '{"at_ms":17949987',
    ]
    (ours / "state-change.log").write_text("\n".join(lines))
    line = rendered(STOCK, MESSAGES[1][0]) + "\n"
    (tmp_path / "empty.log").write_bytes(b"")
    (tmp_path / "junk.log").write_bytes(bytes(range(256)) * 50)
    (tmp_path / "long.log").write_text(line + "x" * 10 * LINE_LIMIT + "\n" + line.replace(TS, TS[:-1] + "5"))
    (tmp_path / "half.log.gz").write_bytes(gzip.compress(line.encode() * 500)[:-20])
    (tmp_path / "copy.log").write_text(line * 3)
    shutil.copy(tmp_path / "copy.log", tmp_path / "copy.log.1")
    files = survey(find_logs([str(tmp_path)]), "test", Zones())
    expected = both_agree(spark, files, tmp_path / "staging")
    assert {row.reason for row in expected.quarantine} >= {"torn", "no_header", "bad_timestamp", "encoding", "too_long"}


#: in Spark's eyes: patterns, escapes, hidden files, schemes, partitions, compressed files
NAMES = (
    *("a b.log", "a%20b.log", "br[1].log", "{a,b}.log", "what?.log", "st*r.log", "back\\slash.log", "Größe.log"),
    *("_kept.log", ".kept.log", "x.log._COPYING_", "at 12:30.log", "k=v.log", "x#1.log", "plus+&;'.log"),
    *("plain.log.gz", "PLAIN.LOG.GZ", "plain.log.bz2", "plain.log.zst", "packed.log", "packed.log.1", "packed.log.bz2"),
)


def test_no_name_and_no_mark_of_utf_8_keeps_spark_from_reading_a_file(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "[my] logs {1}: ü"
    folder.mkdir()
    message = MESSAGES[1][0]
    line = rendered(STOCK, message)
    for number, name in enumerate(NAMES):
        moments = (f"{TS[:-1]}{digit}" for digit in range(3))
        of_it = (rendered(STOCK, message.replace("id=1", f"id={number + 10}"), ts=ts) + "\n" for ts in moments)
        text = "".join(of_it).encode()
        (folder / name).write_bytes(gzip.compress(text) if "packed" in name else text)
    (folder / "marked.log").write_bytes(b"\xef\xbb\xbf" + line.encode() + b"\n")
    (folder / "mark.log").write_bytes(b"\xef\xbb\xbf")
    (folder / "packed.log.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + line.replace(TS, TS[:-1] + "9").encode()))
    files = survey([str(path) for path in folder.iterdir()], "test", Zones())
    expected = both_agree(spark, files, tmp_path / "staging [1] ü")
    assert expected.quarantine == []
    assert len(expected.events) == 3 * len(NAMES) + 2


def test_tables_are_kept_in_a_folder_of_any_name(spark: SparkSession, tmp_path: Path) -> None:
    from sparkjobs.engine.spark.tables import ingest_into, read_table

    (tmp_path / "one.log").write_text(rendered(STOCK, MESSAGES[1][0]) + "\n")
    out = tmp_path / "out [1] {a,b} ü %20"
    ingest_into(spark, survey([str(tmp_path / "one.log")], "test", Zones()), out)
    assert read_table(spark, out, "silver_events").count() == 1


def test_a_file_that_vanishes_after_it_was_found_is_named_by_both(spark: SparkSession, tmp_path: Path) -> None:
    line = rendered(STOCK, MESSAGES[1][0]) + "\n"
    (tmp_path / "stays.log").write_text(line)
    (tmp_path / "goes.log").write_text(line.replace(TS, TS[:-1] + "5"))
    files = survey(find_logs([str(tmp_path)]), "test", Zones())
    (tmp_path / "goes.log").unlink()
    expected = both_agree(spark, files, tmp_path / "staging")
    assert sorted(file.status for file in expected.files) == ["read", "vanished"]
    (tmp_path / "stays.log").unlink()
    assert both_agree(spark, files, tmp_path / "again").events == []


def test_an_ingested_file_is_not_read_again(spark: SparkSession, tmp_path: Path) -> None:
    from sparkjobs.engine.spark.tables import ingest_into, read_table

    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    line = rendered(STOCK, MESSAGES[1][0]) + "\n"
    (logs / "one.log").write_text(line)
    files = survey(find_logs([str(logs)]), "test", Zones())
    assert [count.events for count in ingest_into(spark, files, out)] == [1]
    assert ingest_into(spark, files, out) == []
    (logs / "two.log").write_text(line + line.replace(TS, TS[:-1] + "5"))
    ingest_into(spark, survey(find_logs([str(logs)]), "test", Zones()), out)
    events = read_table(spark, out, "silver_events")
    assert events.count() == events.select("event_id").distinct().count() == 2


def test_tables_hold_the_clocks_of_all_runs_and_events_by_them(spark: SparkSession, tmp_path: Path) -> None:
    """The first run has no round trip: only with the second is known how far a broker of the first was off."""
    from sparkjobs.clocks.skew import corrected
    from sparkjobs.engine.spark.frames import rows_of
    from sparkjobs.engine.spark.tables import ingest_into, read_table
    from tests.spark.reading import skew_of

    zones = Zones(by_broker={3: "Asia/Tokyo"})  # nine hours off, as if the user had said so wrongly
    files = survey(find_logs([str(DATA / "kafka-3.9.1")]), "test", zones)
    of_requests = [file for file in files if file.kind == "state-change"]
    first = [file for file in files if file not in of_requests]
    ingest_into(spark, first, tmp_path / "out")
    assert {row.method for row in rows_of(read_table(spark, tmp_path / "out", "silver_skew"), SilverSkew)} <= {
        *("reference", "assumed", "one_way")
    }
    ingest_into(spark, files, tmp_path / "out")
    events = local.ingest(files).events
    skew = skew_of(events)
    assert [row for row in skew if row.method == "round_trips"]
    found = list(rows_of(read_table(spark, tmp_path / "out", "silver_skew"), SilverSkew))
    assert sorted(map(msgspec.structs.astuple, found)) == sorted(map(msgspec.structs.astuple, skew))
    rows = {
        row.event_id: row.ts_adj for row in rows_of(read_table(spark, tmp_path / "out", "silver_events"), SilverEvent)
    }
    assert rows == {row.event_id: row.ts_adj for row in corrected(events, skew)}


def test_files_on_another_file_system_are_read_equally(spark: SparkSession, tmp_path: Path) -> None:
    from sparkjobs.engine.spark.file_access import RemoteFiles
    from sparkjobs.engine.spark.frames import rows_of
    from sparkjobs.engine.spark.tables import ingest
    from sparkjobs.input.files import NoLogsError

    remote, folder = RemoteFiles(spark), DATA / "kafka-3.9.1-info" / "broker3"
    paths = remote.find(f"file:{folder}")
    assert len(paths) == len(list(folder.iterdir()))
    assert paths == remote.find(f"file:{folder}/*.log*")
    there = survey(paths, "test", Zones(), open_file=remote.open)
    here = survey(find_logs([str(folder)]), "test", Zones())
    assert [msgspec.structs.replace(file, paths=()) for file in there] == [
        msgspec.structs.replace(file, paths=()) for file in here
    ]
    expected = local.ingest(here).events
    assert in_order(rows_of(ingest(spark, there, tmp_path).events, SilverEvent)) == in_order(expected)
    with pytest.raises(NoLogsError, match="no log at"):
        remote.find(f"file:{tmp_path}/*.nothing")
    assert survey([f"file:{tmp_path}/gone.log"], "test", Zones(), open_file=remote.open)[0].status == "vanished"


def test_a_cached_table_is_released_after_a_while(spark: SparkSession) -> None:
    from sparkjobs.engine.spark.frames import released

    with released() as keep:
        frame = keep(spark.range(3))
        assert frame.count() == 3
        assert frame.storageLevel.useMemory
    assert not frame.storageLevel.useMemory
