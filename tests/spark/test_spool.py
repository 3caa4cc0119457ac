"""Growing, rotating logs become pieces that hold every line once."""

from __future__ import annotations

import gzip
from pathlib import Path

from sparkjobs.files import Zones, survey
from sparkjobs.spool import Spool


def texts(spool: Spool) -> list[str]:
    return [Path(piece.path).read_text() for piece in spool.pieces()]


def test_only_whole_new_lines_are_taken_and_each_once(tmp_path: Path) -> None:
    log, spool = tmp_path / "a.log", Spool(tmp_path / "spool")
    log.write_text("one\ntwo\nthr")
    assert [piece.first_line for piece in spool.advance([str(log)])] == [1]
    assert spool.advance([str(log)]) == []
    log.write_text("one\ntwo\nthree\nfour\n")
    [piece] = Spool(tmp_path / "spool").advance([str(log)])
    assert (piece.first_line, piece.is_cut) == (3, False)
    assert texts(spool) == ["one\ntwo\n", "three\nfour\n"]


def test_a_log_that_is_renamed_or_compressed_goes_on_where_it_was(tmp_path: Path) -> None:
    log, spool = tmp_path / "a.log", Spool(tmp_path / "spool")
    log.write_text("one\n")
    spool.advance([str(log)])
    rotated = tmp_path / "a.log.1.gz"
    rotated.write_bytes(gzip.compress(b"one\ntwo\n"))
    log.write_text("three\n")
    spool.advance([str(rotated), str(log)])
    assert sorted(texts(spool)) == ["one\n", "three\n", "two\n"]


def test_half_a_line_is_taken_only_at_the_end(tmp_path: Path) -> None:
    log, spool = tmp_path / "a.log", Spool(tmp_path / "spool")
    log.write_text("one\nhal")
    spool.advance([str(log)])
    assert texts(spool) == ["one\n"]
    [piece] = spool.advance([str(log)], is_end=True)
    assert (piece.first_line, piece.is_cut) == (2, True)
    assert spool.advance([str(log)], is_end=True) == []


def test_a_log_that_is_not_there_stops_nothing(tmp_path: Path) -> None:
    log, spool = tmp_path / "a.log", Spool(tmp_path / "spool")
    log.write_text("one\n")
    assert len(spool.advance([str(tmp_path / "gone.log"), str(log)])) == 1


def test_a_piece_is_named_so_that_its_kind_and_broker_are_seen(tmp_path: Path) -> None:
    log, spool = tmp_path / "broker-3" / "state-change.log", Spool(tmp_path / "spool")
    log.parent.mkdir()
    log.write_text("one\n")
    [piece] = spool.advance([str(log)])
    [file] = survey([piece.path], "test", Zones())
    assert (file.kind, file.broker) == ("state-change", 3)
