"""The logs: the state-change log's file, and the process's own log."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from controller.base import log
from controller.base.config import LIMITS
from controller.core.project.lines import Line
from controller.statelog.journal import Journal
from tests.waiting import DEADLINE_S


def a_line(number: int) -> Line:
    return Line(at_ms=number, cluster_id="c", controller_id=1, controller_epoch=5, kind="partition", reason="é")


def numbers(path: Path) -> list[int]:
    return [json.loads(line)["at_ms"] for line in path.read_bytes().splitlines()]


async def test_lines_are_json_in_the_order_accepted_without_fields_that_do_not_apply(tmp_path: Path) -> None:
    path = tmp_path / "state-change.log"
    journal = Journal(path)
    for first in range(0, 12_000, 6_000):
        journal.accept([a_line(number) for number in range(first, first + 6_000)])
    journal.accept([])
    await journal.close()
    assert numbers(path) == list(range(12_000))
    assert json.loads(path.read_text().splitlines()[3]) == {
        "at_ms": 3, "cluster_id": "c", "controller_id": 1, "controller_epoch": 5, "kind": "partition", "reason": "é",
    }  # fmt: skip
    assert (journal.lines_lost, journal.write_failed) == (0, False)


@pytest.mark.parametrize(("before", "after"), [(b'{"torn":', b'{"torn":\n'), (b"whole\n", b"whole\n"), (b"", b"")])
async def test_a_torn_last_line_is_never_merged_with_the_next(tmp_path: Path, before: bytes, after: bytes) -> None:
    path = tmp_path / "state-change.log"
    path.write_bytes(before)
    journal = Journal(path)
    journal.accept([a_line(1)])
    await journal.close()
    assert path.read_bytes() == after + msgspec.json.encode(a_line(1)) + b"\n"


async def test_the_log_rotates_by_size_and_keeps_so_many_files(tmp_path: Path) -> None:
    path = tmp_path / "state-change.log"
    limits = msgspec.structs.replace(LIMITS, log_rotation_bytes=250, log_files_kept=2)
    journal = Journal(path, limits)
    for number in range(10):  # two lines of about 100 bytes fit
        journal.accept([a_line(number)])
    await journal.close()
    assert [numbers(tmp_path / name) for name in ("state-change.log.2", "state-change.log.1", "state-change.log")] == [
        [4, 5], [6, 7], [8, 9],
    ]  # fmt: skip
    assert len(list(tmp_path.iterdir())) == 3


async def test_a_log_that_cannot_be_written_counts_reports_once_and_is_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    path = folder / "state-change.log"
    journal = Journal(path)
    with capture_logs() as reports:
        journal.accept([a_line(1)])
        journal.accept([a_line(2), a_line(3)])
        journal._writer.submit(int).result(timeout=DEADLINE_S)  # its turn comes after theirs
        assert (journal.lines_lost, journal.write_failed) == (3, True)
        folder.mkdir()
        journal.accept([a_line(4)])
        await journal.close()
    assert numbers(path) == [4]
    assert (journal.lines_lost, journal.write_failed) == (3, False)
    assert [(report["event"], report.get("lines_lost")) for report in reports] == [
        ("journal.failed", None),
        ("journal.recovered", 3),
    ]


async def test_a_loss_is_no_trouble_any_more_when_none_followed_for_a_while_though_it_stays_counted(
    tmp_path: Path,
) -> None:
    folder, now_s = tmp_path / "logs", 100.0
    journal = Journal(folder / "state-change.log", clock=lambda: now_s)
    journal.accept([a_line(1), a_line(2)])
    journal._writer.submit(int).result(timeout=DEADLINE_S)
    now_s += LIMITS.log_loss_shown_ms / 1_000
    assert journal.lines_lost_lately == 2, "it cannot be written yet"
    journal.accept([a_line(3)])
    journal._writer.submit(int).result(timeout=DEADLINE_S)
    assert journal.lines_lost_lately == 3
    folder.mkdir()
    journal.accept([a_line(4)])
    await journal.close()
    now_s += LIMITS.log_loss_shown_ms / 1_000 - 1
    assert (journal.lines_lost, journal.lines_lost_lately) == (3, 3)
    now_s += 1
    assert (journal.lines_lost, journal.lines_lost_lately) == (3, 0)


async def test_a_full_queue_loses_lines_instead_of_waiting(tmp_path: Path) -> None:
    path = tmp_path / "state-change.log"
    journal = Journal(path, msgspec.structs.replace(LIMITS, log_lines_queued=3))
    is_free = threading.Event()
    journal._writer.submit(is_free.wait)
    with capture_logs() as reports:
        for number in range(5):
            journal.accept([a_line(number)])
        assert (journal.lines_lost, journal.write_failed) == (2, True)
        is_free.set()
        await journal.close()
    assert numbers(path) == [0, 1, 2]
    assert [report["event"] for report in reports] == ["journal.failed", "journal.recovered"]


async def test_lines_that_cannot_be_encoded_are_counted_and_reported(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state-change.log")
    with capture_logs() as reports:
        journal.accept([msgspec.structs.replace(a_line(1), topic="\ud800")])
        await journal.close()
    assert (journal.lines_lost, journal.write_failed) == (1, True)
    assert "surrogates" in reports[0]["reason"]


@pytest.fixture
def _own_logging() -> Iterator[None]:
    handlers, level, config = logging.root.handlers[:], logging.root.level, structlog.get_config()
    logging.root.handlers = []
    yield
    for handler in logging.root.handlers:
        handler.close()
    logging.root.handlers = handlers
    logging.root.setLevel(level)
    structlog.configure(**config)


@pytest.mark.usefixtures("_own_logging")
def test_both_kinds_of_logger_write_json_without_a_terminal() -> None:
    stream = io.StringIO()
    log.configure(stream, level="warning")
    structlog.get_logger().warning("session.lost", broker_id=1)
    structlog.get_logger().info("not.shown")
    logging.getLogger("asyncio").error("never retrieved")
    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (first["event"], first["level"], first["broker_id"]) == ("session.lost", "warning", 1)
    assert (second["event"], second["level"]) == ("never retrieved", "error")
    assert first["timestamp"].endswith("Z")


@pytest.mark.usefixtures("_own_logging")
@pytest.mark.parametrize("as_json", [True, False])
def test_no_value_whose_key_names_a_secret_is_written(tmp_path: Path, as_json: bool) -> None:
    path = tmp_path / "klamm.log"
    log.configure(path, json=as_json)
    structlog.get_logger().info(
        "claim.refused", api_token="s3cr3t", config={"RPC_SECRET": "s3cr3t", "deep": [{"zookeeper_auth": "s3cr3t"}]}
    )
    text = path.read_text()
    assert "claim.refused" in text
    assert text.count(log.REDACTED) == 3
    assert "s3cr3t" not in text
