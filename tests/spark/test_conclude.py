"""Reading by forms, in stretches, on several processes concludes the same as reading line by line; lines are accounted
for alike. `sparkjobs.rules.rules` over `tests.spark.reading` is the oracle."""

from __future__ import annotations

import codecs
import gzip
import random
import re
from pathlib import Path
from typing import Final

import pytest

from sparkjobs.commands.inputs import LogInputs
from sparkjobs.engine.local import conclude, digest, forms, stretches
from sparkjobs.engine.local.executor import WorkerError, WorkerState, workers_of
from sparkjobs.input.files import (
    Zones,
    find_logs,
    open_content,
    survey,
)
from sparkjobs.parse.layouts import LAYOUTS, layout_for
from sparkjobs.parse.lines import LineReader, zone_of
from sparkjobs.parse.shapes import SHAPES
from sparkjobs.parse.templates import ALIKE, Template, template_for
from sparkjobs.parse.timestamps import millis_of
from sparkjobs.report.write import digest_of
from sparkjobs.rules.facts import Place
from sparkjobs.rules.rules import Answers
from sparkjobs.tables.gold import GOLD
from sparkjobs.tables.silver import BronzeFile, SilverEvent
from tests.bench.spark.world import write_logs
from tests.spark.bundles import write
from tests.spark.dialect_ours import Ours, OursWithMoves
from tests.spark.dialects import Kafka28, Kafka39
from tests.spark.dialects_old import Kafka010, Kafka08, Kafka11
from tests.spark.plain import answers_for
from tests.spark.reading import silver_of
from tests.spark.simulate import Simulation
from tests.spark.test_engines import write_anything
from tests.spark.test_local_ingest import LINE, OFFLINE

RECORDED = Path(__file__).parents[1] / "data"
OLDER = {
    "0.8": Kafka08,
    "0.10": Kafka010,
    "1.1": Kafka11,
    "2.8": Kafka28,
    "3.9": Kafka39,
    "ours": Ours,
    "ours, with moves": OursWithMoves,
}


@pytest.fixture
def in_small_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much is divided of little as otherwise of much."""
    monkeypatch.setattr(stretches, "STRETCH_BYTES", 2_000)
    monkeypatch.setattr(stretches, "PIECE_BYTES", 700)
    monkeypatch.setattr(digest, "PORTION_BYTES", 1_500)
    monkeypatch.setattr(forms, "FEW", 2)
    monkeypatch.setattr(conclude, "worker_count_for", lambda size_bytes: 3)


def surveyed(folder: Path) -> list[BronzeFile]:
    return survey(find_logs([str(folder)]), "c", Zones("Europe/Berlin", {2: "UTC"}))


def slowly(files: list[BronzeFile]) -> tuple[Answers, object]:
    silver = silver_of(LogInputs(files))
    read = silver.ingested
    return answers_for(read.events), (read.files, read.counts, read.quarantine, silver.skew)


def assert_equal(files: list[BronzeFile]) -> None:
    answers, accounts = slowly(files)
    done = conclude.conclude(files)
    for name in GOLD:
        assert done.answers[name] == answers[name], name
    assert digest_of(done.answers) == digest_of(answers)
    assert (done.files, done.counts, done.quarantine, done.skew) == accounts


@pytest.mark.slow
@pytest.mark.parametrize(
    "recording",
    [
        pytest.param("kafka-3.9.1", marks=pytest.mark.long),
        pytest.param("kafka-3.9.1-info", marks=pytest.mark.long),
        "kafka-older/0.8.0",
        "kafka-older/1.0.2",
    ],
)
def test_of_a_real_cluster_it_concludes_the_same(recording: str) -> None:
    assert_equal(surveyed(RECORDED / recording))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
def test_of_any_folder_it_concludes_the_same(seed: int, tmp_path: Path, in_small_stretches: None) -> None:
    write_anything(tmp_path, random.Random(seed))
    assert_equal(surveyed(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("version", OLDER)
@pytest.mark.parametrize("level", ["TRACE", "INFO"])
def test_of_a_cluster_of_any_version_it_concludes_the_same(
    version: str, level: str, tmp_path: Path, in_small_stretches: None
) -> None:
    simulation = Simulation(3, dialect=OLDER[version](), skew_ms={2: 90_000, 3: -4_000}).run(faults=5)
    write(simulation, tmp_path, level, bad=level == "INFO")
    assert_equal(surveyed(tmp_path))


def test_only_requested_tables_are_concluded_and_they_are_the_same(tmp_path: Path) -> None:
    write(Simulation(3, skew_ms={2: 90_000}).run(faults=8), tmp_path, "TRACE")
    files = surveyed(tmp_path)
    answers, _ = slowly(files)
    for only in (
        ("partition_outages", "controller_tenures"),
        ("failovers",),
        ("flapping", "leader_churn", "slo_daily"),
    ):
        assert conclude.conclude(files, only=only).answers == {name: answers[name] for name in GOLD if name in only}


def test_a_form_gives_each_of_its_lines_the_same_row_as_reading_it(tmp_path: Path) -> None:
    write_logs(tmp_path / "bench", 2_400)
    write_anything(tmp_path, random.Random(5))
    by_form = 0
    for file in [*surveyed(tmp_path), *surveyed(RECORDED / "kafka-3.9.1-info")[:4]]:
        reader, known = LineReader(file), dict[bytes, Template | None]()
        with open_content(file.paths[0]) as content:
            lines = content.read().split(b"\n")
        for line_no, raw in enumerate(lines, start=1):
            form, line = raw.translate(ALIKE), raw.decode("utf-8", "replace")
            if form not in known:
                known[form] = template_for(reader, line)
            if (template := known[form]) is not None:
                by_form += 1
                assert said_by(template, reader, line, line_no) == reader.read(line, line_no)
    assert by_form > 5_000


def said_by(template: Template, reader: LineReader, line: str, line_no: int) -> SilverEvent | str:
    if template.message == (0, 0):
        return str(template.fate)
    broker = template.same.get("broker")
    if "broker" in template.numbers:
        broker = int(line[slice(*template.numbers["broker"])])
    zone = reader.file.tz if template.fate else zone_of(reader.file, broker)
    ts_utc = millis_of(line[template.ts : template.ts + 23], zone)
    if ts_utc is None:
        return "bad_timestamp"
    return template.fate or template.event(reader, line, line_no, ts_utc)


def test_a_digit_counts_nowhere_in_the_catalogue_but_where_lines_are_read_one_by_one() -> None:
    named = set()
    for shape in SHAPES:
        bare = re.sub(r"\{\d+(,\d*)?\}", "", shape.pattern)
        if re.search(r"\d", bare + shape.anchor + shape.mark):
            named.add((shape.shape_id, shape.anchor))
    assert named == {("zookeeper.closed", "session 0x")}
    for layout in LAYOUTS:
        outside = layout_for(layout).expression.partition("(?:[.,]")
        assert not re.search(r"\d", re.sub(r"\{\d+(,\d*)?\}", "", outside[0]))


def test_an_exception_is_of_the_event_above_it_also_where_a_stretch_ends_between_them(
    tmp_path: Path, in_small_stretches: None
) -> None:
    failed = "[2026-11-18 07:49:10,504] ERROR [Controller id=1 epoch=3] Controller 1 epoch 3 failed to change state "
    failed += "for partition a-%d from OfflinePartition to OnlinePartition (state.change.logger)\n"
    text = "".join(failed % n + "java.lang.IllegalStateException: no\n\tat a.B(C.java)\n" for n in range(100))
    (tmp_path / "state-change.log").write_text(text)
    (tmp_path / "packed.log.gz").write_bytes(gzip.compress(text.replace("a-", "b-").encode()))
    done = conclude.conclude(surveyed(tmp_path))
    assert len(done.answers["illegal_transitions"]) == 200
    assert_equal(surveyed(tmp_path))


def test_a_line_that_two_files_hold_in_different_words_around_it_counts_once(
    tmp_path: Path, in_small_stretches: None
) -> None:
    lines = [LINE.replace("a-7", f"a-{number}") for number in range(60)]
    (tmp_path / "state-change.log").write_text("".join(lines))
    (tmp_path / "docker.log").write_text("".join(f"kafka-1  | {line}" for line in lines[20:]))
    (tmp_path / "half.log.gz").write_bytes(gzip.compress("".join(lines[:30]).encode()))
    done = conclude.conclude(surveyed(tmp_path))
    assert sum(count.events for count in done.counts) == 60
    assert sum(count.duplicates for count in done.counts) == 70
    assert_equal(surveyed(tmp_path))


def test_a_mark_of_utf_8_is_no_part_of_a_line(tmp_path: Path, in_small_stretches: None) -> None:
    lines = [LINE.replace("a-7", f"a-{number}") for number in range(60)]
    (tmp_path / "state-change.log").write_text("".join(lines), encoding="utf-8-sig")
    (tmp_path / "nothing.log").write_bytes(codecs.BOM_UTF8)
    files = surveyed(tmp_path)
    assert sum(count.events for count in conclude.conclude(files).counts) == 60
    with workers_of(1) as workers:
        first = [Place(file.file_id, 1) for file in files if file.lines]
        done = conclude.concluded_by(workers, files, places_in=lambda answers: first)
    assert done.lines == dict.fromkeys(first, lines[0].rstrip())
    assert_equal(files)


def test_a_bad_moment_among_good_ones_of_its_form_is_quarantined(tmp_path: Path) -> None:
    lines = [LINE.replace("a-7", f"a-{number:02}") for number in range(20)]
    for place, ts in ((3, "2026-13-18 07:49:10,504"), (9, "2026-11-18 07:49:61,504"), (12, "1999-11-18 07:49:10,504")):
        lines[place] = lines[place].replace(lines[place][1:24], ts)
    (tmp_path / "state-change.log").write_text("".join(lines))
    done = conclude.conclude(surveyed(tmp_path))
    assert [(row.line_no, row.reason) for row in done.quarantine] == [(n, "bad_timestamp") for n in (4, 10, 13)]
    assert_equal(surveyed(tmp_path))


def test_a_file_that_ends_within_a_line_or_goes_away_is_accounted_for(tmp_path: Path, in_small_stretches: None) -> None:
    (tmp_path / "cut.log").write_text(LINE * 3 + OFFLINE[:60])
    (tmp_path / "bad.log.gz").write_bytes(gzip.compress(LINE.encode() * 500)[:-20])
    gone = tmp_path / "gone.log"
    gone.write_text(LINE.replace("a-7", "g-7"))
    files = surveyed(tmp_path)
    gone.unlink()
    assert_equal(files)


def test_a_file_that_breaks_while_it_is_read_stops_nothing_and_its_repeated_lines_count_once(
    tmp_path: Path, in_small_stretches: None
) -> None:
    draw = random.Random(1)
    lines = [LINE.replace("a-7", f"t{draw.getrandbits(200):x}-{number}") for number in range(5_000)]
    (tmp_path / "state-change.log").write_text("".join(lines[:10]))
    packed = tmp_path / "bad.log.gz"
    packed.write_bytes(gzip.compress("".join(lines).encode()))
    files = surveyed(tmp_path)
    packed.write_bytes(packed.read_bytes()[:-20_000])
    done = conclude.conclude(files)
    assert sorted(file.status for file in done.files) == ["read", "unreadable"]
    assert sum(count.duplicates for count in done.counts) == 10
    assert sum(count.events for count in done.counts) > 1_000
    assert all(one.lines == one.events + one.continuations + one.duplicates + one.quarantined for one in done.counts)


@pytest.mark.parametrize("members", [1, 2])
def test_quotes_are_the_lines_at_their_places(tmp_path: Path, members: int, in_small_stretches: None) -> None:
    lines = [f"line {number} {'x' * (number % 50)}" for number in range(1, 2_001)]
    (tmp_path / "a.log").write_text("\n".join(lines))
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(("\n".join(lines[:500]) + "\n").encode()))
    files = surveyed(tmp_path)
    numbers = (1, 2, 499, 500, 1_303, 1_304, 2_000, 2_001)
    wanted = [Place(file.file_id, number) for file in files for number in numbers]
    gone = Place("gone", 1)
    with workers_of(members) as workers:
        done = conclude.concluded_by(workers, files, places_in=lambda answers: [gone, *reversed(wanted)])
    last = {file.file_id: file.lines for file in files}
    there = [place for place in wanted if place.line_no <= last[place.file_id]]
    assert done.lines == {place: lines[place.line_no - 1] for place in there}
    assert len(there) == 11


def test_of_lines_in_quarantine_the_first_are_kept_and_all_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "QUARANTINE_KEPT", 3)
    (tmp_path / "state-change.log").write_text(LINE + "no line of a log\n" * 9 + LINE.replace("a-7", "a-8"))
    done = conclude.conclude(surveyed(tmp_path))
    assert [row.line_no for row in done.quarantine] == [2, 3, 4]
    assert [(count.lines, count.quarantined, count.events) for count in done.counts] == [(11, 9, 2)]


def _die(state: WorkerState, given: int) -> int:
    raise SystemExit(3)


def test_a_worker_that_dies_is_reported() -> None:
    with workers_of(2) as workers, pytest.raises(WorkerError):
        workers.each(_die, [1, 2])


_LATER: Final = (
    "[2026-11-18 07:48:00,000] INFO [Controller id=4 epoch=4] Sending UpdateMetadata request to brokers Set(2) for 0 "
    "partitions (state.change.logger)\n"
)


def test_whether_a_request_was_known_already_is_asked_of_each_line(tmp_path: Path) -> None:
    """Lines of one form, of which the numbers tell."""
    lines = [
        f"[2026-11-18 07:49:{second:02},000] WARN [Broker id=2] Ignoring LeaderAndIsr request from controller 3 with "
        "correlation id 1 epoch 3 for partition p-2 since its associated leader epoch 2 is not higher than the current "
        f"leader epoch {2 + second % 2} (state.change.logger)\n"
        for second in range(40)
    ]
    lines.insert(0, _LATER)  # a repetition by the controller in office is ordinary
    (tmp_path / "state-change.log").write_text("".join(lines))
    files = surveyed(tmp_path)
    assert_equal(files)
    assert [one.times for one in conclude.conclude(files).answers["zombies"]] == [20]
