"""Growing, rotating logs become pieces that hold every line once."""

from __future__ import annotations

import gzip
from pathlib import Path

from sparkjobs.input.files import Zones, survey
from sparkjobs.input.spool import Spool


def texts(spool: Spool) -> list[str]:
    return [Path(piece.path).read_text() for piece in spool.pieces()]


def test_only_whole_new_lines_are_taken_and_each_once(tmp_path: Path) -> None:
    log, spool = tmp_path / "a.log", Spool(tmp_path / "spool")
    log.write_text("07:49:10 one\ntwo\nthr")
    assert [piece.first_line for piece in spool.advance([str(log)])] == [1]
    assert spool.advance([str(log)]) == []
    log.write_text("07:49:10 one\ntwo\nthree\nfour\n")
    [piece] = Spool(tmp_path / "spool").advance([str(log)])
    assert (piece.first_line, piece.is_cut) == (3, False)
    assert texts(spool) == ["07:49:10 one\ntwo\n", "three\nfour\n"]


def test_a_log_that_is_renamed_or_compressed_goes_on_where_it_was(tmp_path: Path) -> None:
    log, spool = tmp_path / "a.log", Spool(tmp_path / "spool")
    log.write_text("07:49:10 one\n")
    spool.advance([str(log)])
    rotated = tmp_path / "a.log.1.gz"
    rotated.write_bytes(gzip.compress(b"07:49:10 one\ntwo\n"))
    log.write_text("07:50:10 three\n")
    spool.advance([str(rotated), str(log)])
    assert sorted(texts(spool)) == ["07:49:10 one\n", "07:50:10 three\n", "two\n"]


def test_half_a_line_is_taken_only_at_the_end(tmp_path: Path) -> None:
    log, spool = tmp_path / "a.log", Spool(tmp_path / "spool")
    log.write_text("07:49:10 one\nhal")
    spool.advance([str(log)])
    assert texts(spool) == ["07:49:10 one\n"]
    [piece] = spool.advance([str(log)], is_end=True)
    assert (piece.first_line, piece.is_cut) == (2, True)
    assert spool.advance([str(log)], is_end=True) == []


def test_a_log_that_is_not_there_stops_nothing(tmp_path: Path) -> None:
    log, spool = tmp_path / "a.log", Spool(tmp_path / "spool")
    log.write_text("07:49:10 one\n")
    assert len(spool.advance([str(tmp_path / "gone.log"), str(log)])) == 1


def test_a_piece_is_named_so_that_its_kind_and_broker_are_seen(tmp_path: Path) -> None:
    log, spool = tmp_path / "broker-3" / "state-change.log", Spool(tmp_path / "spool")
    log.parent.mkdir()
    log.write_text("07:49:10 one\n")
    [piece] = spool.advance([str(log)])
    [file] = survey([piece.path], "test", Zones())
    assert (file.kind, file.broker) == ("state-change", 3)


def test_logs_of_one_folder_that_begin_with_the_same_banner_are_two(tmp_path: Path) -> None:
    spool, banner = Spool(tmp_path / "spool"), "log4j:WARN no appender\n\n"
    for name in ("a", "b"):
        (tmp_path / f"{name}.log").write_text(banner)
    logs = [str(tmp_path / "a.log"), str(tmp_path / "b.log")]
    assert spool.advance(logs) == [], "nobody knows yet which logs they are"
    for second, path in enumerate(logs):
        Path(path).write_text(f"{banner}[07:49:0{second}] one\n")
    assert len({piece.log_id for piece in spool.advance(logs)}) == 2
