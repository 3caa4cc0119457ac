"""The local engine reads files: every line goes to one place, and nothing in a folder stops it."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from sparkjobs.input.files import (
    LINE_MAX_BYTES,
    NoLogsError,
    Zones,
    find_logs,
    survey,
)
from sparkjobs.tables.silver import LINE_LIMIT
from tests.spark.lines import TS, TS_MS
from tests.spark.reading import Ingested, ingest

OFFLINE = f"[{TS}] INFO [Controller id=1 epoch=3] Changed partition a-7 state from OnlinePartition to OfflinePartition"
LINE = f"{OFFLINE} (state.change.logger)\n"


def ingested(*named: Path | str) -> Ingested:
    return ingest(survey(find_logs(str(one) for one in named), "test", Zones()))


def lines_balance(result: Ingested) -> bool:
    return all(one.lines == one.events + one.continuations + one.duplicates + one.quarantined for one in result.counts)


@pytest.mark.parametrize("recording", ["kafka-3.9.1", "kafka-3.9.1-info"])
def test_of_a_real_cluster_no_line_is_left_unexplained(recording: str) -> None:
    result = ingested(Path(__file__).parents[1] / "data" / recording)
    assert result.quarantine == []
    assert lines_balance(result)
    assert {file.status for file in result.files} == {"read"}
    assert {file.kind for file in result.files} == {"state-change", "controller", "server"}
    for file in result.files:
        assert f"broker{file.broker}/" in file.paths[0]
    of_logger = [event for event in result.events if "state-change" in _path_of(result, event.file_id)]
    assert {event.event for event in of_logger} & {"other"} == set()
    assert sum(event.trace is not None for event in result.events) >= 50


def _path_of(result: Ingested, file_id: str) -> str:
    return next(file.paths[0] for file in result.files if file.file_id == file_id)


def test_the_same_content_is_read_once_however_it_is_packed(tmp_path: Path) -> None:
    (tmp_path / "state-change.log").write_text(LINE)
    with gzip.open(tmp_path / "state-change.log.1.gz", "wt") as packed:
        packed.write(LINE)
    result = ingested(tmp_path)
    assert len(result.files) == 1
    assert len(result.events) == 1
    assert [(one.lines, one.events, one.duplicates) for one in result.counts] == [(1, 1, 0), (1, 0, 1)]


def test_a_line_that_is_in_two_files_counts_once(tmp_path: Path) -> None:
    (tmp_path / "state-change.log").write_text(LINE * 2)
    (tmp_path / "state-change.log.1").write_text(LINE)
    result = ingested(tmp_path)
    assert len(result.events) == 1
    assert sum(one.duplicates for one in result.counts) == 2
    assert lines_balance(result)


@pytest.mark.parametrize(
    ("folder", "broker"),
    [
        ("opt/kafka_2.13-3.9.1/logs", None),
        ("opt/kafka-3.9.1/logs", None),
        ("opt/kafka-3.9.1/broker-12/logs", 12),
        ("kafka_2.13-3.9.1/kafka-1", 1),
        ("node7", 7),
        ("kafka-10.example.com", 10),
    ],
)
def test_a_folder_names_a_broker_and_never_a_version(tmp_path: Path, folder: str, broker: int | None) -> None:
    path = tmp_path / folder / "server.log"
    path.parent.mkdir(parents=True)
    path.write_text(f"[{TS}] INFO starting (kafka.server.KafkaServer)\n")
    assert [file.broker for file in ingested(path).files] == [broker]


def test_bad_input_is_counted_and_named_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "state-change.log").write_text(LINE)
    (tmp_path / "empty.log").write_bytes(b"")
    (tmp_path / "junk.log").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "long.log").write_text(LINE + "x" * 10 * LINE_LIMIT + "\n" + LINE.replace("a-7", "a-8"))
    (tmp_path / "cut.log").write_text(LINE.replace("a-7", "b-7") + LINE[:50])
    (tmp_path / "half.log.gz").write_bytes(gzip.compress(LINE.encode() * 500)[:-20])
    result = ingested(tmp_path)
    assert lines_balance(result)
    states = {Path(file.paths[0]).name: file.status for file in result.files}
    assert states == {
        **{"state-change.log": "read", "empty.log": "empty", "junk.log": "read", "long.log": "read"},
        **{"cut.log": "read", "half.log.gz": "unreadable"},
    }
    reasons = [row.reason for row in result.quarantine]
    assert {"encoding", "too_long", "torn"} <= set(reasons)
    assert len({event.event_id for event in result.events}) == 3


def test_a_file_whose_name_is_no_text_is_named_all_the_same_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "fine.log").write_text(LINE)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.log")).write_text(LINE)
    files = ingest(survey(find_logs([str(tmp_path)]), "c", Zones())).files
    [odd] = [file for file in files if file.status != "read"]
    assert odd.status == "unreadable"
    assert odd.paths == (f"{tmp_path}/caf\\xe9.log",)
    assert odd.trouble == "its name is not UTF-8: give it another"


def test_a_file_that_vanishes_after_it_was_found_is_named(tmp_path: Path) -> None:
    gone, stays = tmp_path / "a.log", tmp_path / "b.log"
    gone.write_text(LINE)
    stays.write_text(LINE.replace("a-7", "b-7"))
    files = survey([str(gone), str(stays)], "test", Zones())
    gone.unlink()
    result = ingest(files)
    assert {file.paths[0]: file.status for file in result.files} == {str(gone): "vanished", str(stays): "read"}
    assert len(result.events) == 1
    assert survey([str(gone)], "test", Zones())[0].status == "vanished"


def test_rows_do_not_depend_on_names_or_order(tmp_path: Path) -> None:
    contents = [LINE, LINE.replace("a-7", "b-7") + LINE, LINE.replace("a-7", "c-7")]
    results = []
    for order in ((0, 1, 2), (2, 0, 1)):
        folder = tmp_path / "".join(map(str, order))
        folder.mkdir()
        for name, number in enumerate(order):
            (folder / f"{name}.log").write_text(contents[number])
        results.append(ingested(folder))
    assert msgspec.json.encode(results[0].events) == msgspec.json.encode(results[1].events)


def test_a_zone_is_given_for_all_or_for_one_broker(tmp_path: Path) -> None:
    (tmp_path / "one.log").write_text(LINE)
    (tmp_path / "two.log").write_text(LINE.replace("id=1", "id=2"))
    files = survey(find_logs([str(tmp_path)]), "test", Zones("Europe/Berlin", {2: "UTC"}))
    assert {file.broker: file.tz for file in files} == {1: "Europe/Berlin", 2: "UTC"}
    times = {event.broker: event.ts_utc for event in ingest(files).events}
    assert times[2] - times[1] == 3_600_000  # type: ignore[index]


def test_in_a_log_of_several_brokers_each_line_is_read_in_the_zone_of_its_writer(tmp_path: Path) -> None:
    """A line of a broker without a zone, and not of the log's own broker, has the zone of all."""
    lines = [LINE.replace("id=1", f"id={broker}").replace("a-7", f"a-{n}") for n in range(20) for broker in (1, 2, 3)]
    (tmp_path / "all.log").write_text("".join(lines))
    first = [LINE.replace("a-7", f"b-{n}") for n in range(250)]  # more lines than are read to find the log's broker
    (tmp_path / "broker1.log").write_text("".join([*first, *(line.replace("a-", "c-") for line in lines)]))
    zones = Zones("Europe/Berlin", {1: "UTC", 2: "Asia/Tokyo"})
    files = survey(find_logs([str(tmp_path)]), "test", zones)
    assert {file.broker: (file.tz, file.zones) for file in files} == {
        None: ("Europe/Berlin", ("1=UTC", "2=Asia/Tokyo")),
        1: ("UTC", ("*=Europe/Berlin", "2=Asia/Tokyo")),
    }
    hours = {1: 0, 2: -9, 3: -1}
    for event in ingest(files).events:
        assert event.broker is not None
        assert event.ts_utc == TS_MS + hours[event.broker] * 3_600_000
    assert {file.first_ts for file in files} == {TS_MS}
    assert {file.last_ts for file in files} == {TS_MS - 3_600_000}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoLogsError, match="there is no"):
        find_logs([str(tmp_path / "nowhere")])
    with pytest.raises(NoLogsError, match=r"no \*.log file"):
        find_logs([str(tmp_path)])


def statuses(result: Ingested) -> dict[str, str | None]:
    return {Path(file.paths[0]).name: file.trouble for file in result.files}


@pytest.mark.parametrize("pattern", ["", "*/*.log", "**/*.log"])
def test_no_link_leads_out_of_the_folder_that_was_named(tmp_path: Path, pattern: str) -> None:
    secret = tmp_path / "elsewhere" / "env.log"
    secret.parent.mkdir()
    secret.write_text("KLAMM_API_TOKEN=secret-secret-secret\n")
    broker = tmp_path / "bundle" / "broker1"
    broker.mkdir(parents=True)
    (broker / "server.log.1").write_text(LINE)
    (broker / "server.log").symlink_to("server.log.1")
    (broker / "env.log").symlink_to(secret)
    (broker / "proc.log").symlink_to("/proc/self/environ")
    (broker / "folder.log").symlink_to(secret.parent)
    result = ingested(f"{tmp_path}/bundle/{pattern}")
    found = statuses(result)
    assert found.pop("server.log.1") is None
    assert found.keys() == {"env.log", "proc.log", "folder.log"}
    assert all(trouble is not None and "a link that leads out" in trouble for trouble in found.values())
    assert result.quarantine == []


def test_a_link_that_is_named_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.log").write_text(LINE)
    (tmp_path / "named.log").symlink_to("real.log")
    (tmp_path / "named").symlink_to(tmp_path)
    assert len(ingested(tmp_path / "named.log").events) == 1
    assert [Path(file.paths[0]).name for file in ingested(tmp_path / "named").files] == ["real.log"]


def test_a_file_that_became_a_link_since_it_was_found_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(LINE)
    found = find_logs([str(tmp_path)])
    path.unlink()
    path.symlink_to("/proc/self/environ")
    assert [file.status for file in survey(found, "test", Zones())] == ["unreadable"]


def test_a_pipe_holds_no_reader_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "server.log")
    with pytest.raises(NoLogsError):
        find_logs([str(tmp_path)])
    (trouble,) = statuses(ingested(tmp_path / "server.log")).values()
    assert trouble is not None
    assert "no regular file" in trouble


@pytest.mark.parametrize("is_packed", [False, True])
def test_of_an_endless_line_no_more_is_read_than_a_line_may_have(tmp_path: Path, is_packed: bool) -> None:
    content = LINE.encode() + b"\0" * (8 * LINE_MAX_BYTES) + b"\n" + LINE.encode()
    (tmp_path / "server.log").write_bytes(gzip.compress(content, 1) if is_packed else content)
    del content
    tracemalloc.start()
    result = ingested(tmp_path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    (trouble,) = statuses(result).values()
    assert trouble == "line 2 is longer than 32 MiB: no log, or a damaged one"
    assert (result.events, result.quarantine) == ([], [])
    assert result.files[0].size_bytes <= LINE_MAX_BYTES + (2 << 20)
    assert peak_bytes < LINE_MAX_BYTES


def test_a_line_as_long_as_a_line_may_be_is_read(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_bytes(LINE.encode() + b"x" * (LINE_MAX_BYTES) + b"\n" + LINE.encode())
    result = ingested(tmp_path)
    assert [file.status for file in result.files] == ["read"]
    assert lines_balance(result)
