"""Spark does the work of the local workers: equal digests, small answers, and nothing of a line in the driver."""

from __future__ import annotations

import gzip
import os
import pickle
import signal
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from sparkjobs.engine.local.conclude import Concluded, conclude, concluded_by
from sparkjobs.engine.local.executor import DividedTask, Share
from sparkjobs.engine.local.stretches import Stretch
from sparkjobs.input.files import BLOCK_BYTES, Zones, find_logs, merged, survey
from sparkjobs.report.write import digest_of
from sparkjobs.tables.gold import GOLD
from sparkjobs.tables.silver import BronzeFile
from tests.spark.bundles import write
from tests.spark.simulate import Simulation
from tests.spark.test_local_ingest import LINE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjobs.engine.spark.executor import SparkExecutor

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def executor(spark: SparkSession, tmp_path: Path) -> SparkExecutor:
    from sparkjobs.engine.spark.executor import SparkExecutor

    return SparkExecutor(spark, tmp_path)


def surveyed(folder: Path, cluster: str = "c") -> list[BronzeFile]:
    return survey(find_logs([str(folder)]), cluster, Zones())


def assert_equal(found: Concluded, expected: Concluded) -> None:
    for name in GOLD:
        assert found.answers[name] == expected.answers[name], name
    assert digest_of(found.answers) == digest_of(expected.answers)
    assert found[1:] == expected[1:]


@pytest.mark.long
def test_of_a_real_cluster_it_concludes_the_same_as_processes_of_this_machine(executor: SparkExecutor) -> None:
    files = surveyed(DATA / "kafka-3.9.1")
    assert_equal(concluded_by(executor, files), conclude(files))


@pytest.mark.long
def test_clusters_of_one_run_are_concluded_each_by_itself(executor: SparkExecutor, tmp_path: Path) -> None:
    for number in (1, 2):
        write(Simulation(number).run(faults=3), tmp_path / str(number), "TRACE")
    one, other = surveyed(tmp_path / "1", "one"), surveyed(tmp_path / "2", "other")
    both = concluded_by(executor, [*one, *other])
    for cluster, files in (("one", one), ("other", other)):
        for name, rows in conclude(files).answers.items():
            assert [row for row in both.answers[name] if row.cluster == cluster] == rows, name  # type: ignore[attr-defined]
    assert_equal(both, conclude([*other, *one]))


def divided(task: _Number) -> Iterable[DividedTask]:
    for portion in range(2):
        yield DividedTask((task.number, portion), {("odd" if task.number % 2 else "even", portion): task.number})


def parts_of(share: Share, given: str) -> tuple[str, list[tuple[int, int]]]:
    return given, share.parts


class _Number(msgspec.Struct, frozen=True):
    """A task about no file at all."""

    number: int
    stretch: Stretch


def test_tasks_that_are_divided_anew_replace_their_earlier_results(executor: SparkExecutor) -> None:
    nowhere = Stretch(surveyed(DATA / "kafka-3.9.1-info")[0], 0, None, {}, "/nowhere")
    tasks = [_Number(number, nowhere) for number in range(6)]
    shares = executor.divide(divided, tasks, {"odd": 2, "even": 2})
    assert shares.ask("even", parts_of, ["a", "b"])[1][1] == [(0, 0), (2, 2), (4, 4)]
    for number, by in ((1, 20), (1, 30), (3, 41)):
        shares.replace({number: _Number(by, nowhere)})
    assert shares.told[1] == [(30, 0), (30, 1)]
    assert shares.ask("odd", parts_of, ["a", "b"]) == [("a", [(3, 41), (5, 5)]), ("b", [(3, 41), (5, 5)])]
    assert shares.ask("even", parts_of, ["a", "b"])[1] == ("b", [(0, 0), (1, 30), (2, 2), (4, 4)])


class _Deadly(msgspec.Struct, frozen=True):
    """A task that kills its process, the first time."""

    marker: str
    stretch: Stretch


def divided_at_last(task: _Deadly) -> Iterable[DividedTask]:
    if not Path(task.marker).exists():
        Path(task.marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    yield DividedTask("done", {("all", 0): 1})


def killed_at_first(share: Share, marker: str) -> int:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return len(share.parts)


def test_a_worker_that_is_killed_costs_time_and_nothing_else(executor: SparkExecutor, tmp_path: Path) -> None:
    nowhere = Stretch(surveyed(DATA / "kafka-3.9.1-info")[0], 0, None, {}, "/nowhere")
    tasks = [_Deadly(str(tmp_path / f"divided{number}"), nowhere) for number in range(2)]
    shares = executor.divide(divided_at_last, tasks, {"all": 1})
    assert shares.told == [["done"], ["done"]]
    assert shares.ask("all", killed_at_first, [str(tmp_path / "asked")]) == [2]
    assert {path.name for path in tmp_path.iterdir()} == {"divided0", "divided1", "asked"}


def test_however_many_lines_there_are_no_more_of_them_comes_to_the_driver(
    executor: SparkExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs.engine.spark.executor import SparkShares

    asked, came = SparkShares._asked, list[int]()

    def seen(self: SparkShares, *given: Any) -> dict[int, Any]:
        found = asked(self, *given)
        came.append(len(pickle.dumps(found)))
        return found

    monkeypatch.setattr(SparkShares, "_asked", seen)
    spent = []
    for lines in (300, 6_000):
        folder = tmp_path / str(lines)
        folder.mkdir()
        log = "".join(_of_request(number) for number in range(lines // 3))
        (folder / "state-change.log").write_text(log)
        came.clear()
        done = concluded_by(executor, surveyed(folder))
        assert sum(count.events for count in done.counts) == lines
        spent.append(sum(came))
    assert spent[1] - spent[0] < 2_000, spent


def _of_request(number: int) -> str:
    """The lines of a broker and its controller about a partition, of requests without an answer."""
    at = f"[2026-11-18 07:{number // 600 % 60:02}:{number // 10 % 60:02},{number % 10}00] TRACE"
    of = f"request correlationId {number} from controller 1 epoch 3"
    return (
        f"{at} [Broker id=2] Handling LeaderAndIsr {of} starting the become-leader transition for partition a-1 "
        f"(state.change.logger)\n{at} [Broker id=2] Completed LeaderAndIsr {of} for the become-leader transition for "
        f"partition a-1 (state.change.logger)\n{at} [Broker id=2] Cached leader info "
        "(Leader:2,ISR:2,LeaderEpoch:1,ControllerEpoch:3) for partition a-1 in "
        f"response to UpdateMetadata request sent by controller 1 epoch 3 with correlation id {number} "
        "(state.change.logger)\n"
    )


def test_the_workers_find_the_kinds_of_files_as_a_local_look_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs.engine.spark import file_access
    from sparkjobs.engine.spark.file_access import RemoteFiles

    write(Simulation(1).run(faults=2), tmp_path / "logs", "TRACE", bad=True)
    for name in ("_kept.log", "empty.log", "a b [1].log", "half.log.gz"):
        content = gzip.compress(LINE.encode() * 500)[:-20] if name == "half.log.gz" else LINE.encode() * len(name)
        (tmp_path / "logs" / name).write_bytes(b"" if name == "empty.log" else content)
    look = partial(survey, cluster="c", zones=Zones("Europe/Berlin"))
    monkeypatch.chdir(tmp_path)
    paths = find_logs(["logs"])
    expected = look(paths)
    assert {file.status for file in expected} == {"read", "empty", "unreadable"}
    assert merged(file_access.surveyed_here(spark, paths, look)) == expected
    monkeypatch.setattr(file_access, "_WHOLE_BYTES", 20_000)  # some come whole, some are read from here
    there = [f"file:{tmp_path}/{path}" for path in paths]
    assert sorted(RemoteFiles(spark).find(f"file:{tmp_path}/logs")) == sorted(there)
    assert {RemoteFiles(spark).size_bytes(path) < 20_000 for path in there} == {True, False}  # type: ignore[operator]
    found = file_access.surveyed_there(spark, there, look)
    said = {file.paths[0].removeprefix(f"file:{tmp_path}/"): file for file in found}
    for path in paths:
        [own] = look([path])
        same = {"paths": own.paths, "file_id": own.file_id if own.trouble else said[path].file_id}
        assert msgspec.structs.replace(said[path], **same) == own


@pytest.mark.long
def test_a_file_that_only_hadoop_opens_is_read_in_blocks_and_its_lines_know_their_numbers(
    spark: SparkSession, executor: SparkExecutor, tmp_path: Path
) -> None:
    """A line begins just where a block does, one reaches over the end of a block, and a line is half."""
    from sparkjobs.engine.spark.file_access import RemoteFiles, surveyed_there

    logs = tmp_path / "logs"
    logs.mkdir()
    junk = "no line of a log" + " " * (8 * 1_024 - 17) + "\n"
    blocks = junk * (2 * BLOCK_BYTES // 8_192)
    failed = LINE.replace("INFO", "ERROR") + "java.lang.IllegalStateException: no\n"
    (logs / "even.log").write_text(blocks + failed)
    (logs / "odd.log").write_text("x" * 99 + "\n" + blocks + LINE.replace("a-7", "a-8")[:-9])
    (logs / "packed.log.gz").write_bytes(gzip.compress((LINE.replace("a-7", "a-9") * 2 + blocks).encode()))
    (logs / "_kept.log").write_text(LINE.replace("a-7", "a-10") + "x")
    look = partial(survey, cluster="c", zones=Zones())
    there = merged(surveyed_there(spark, RemoteFiles(spark).find(f"file:{logs}"), look))
    here = conclude(surveyed(logs))
    found = concluded_by(executor, there)
    assert digest_of(found.answers) == digest_of(here.answers)
    of_path = {count.path.rpartition("/")[2]: count for count in found.counts}
    for count in here.counts:
        assert msgspec.structs.replace(of_path[count.path.rpartition("/")[2]], path=count.path) == count
    assert len(found.quarantine) > 2 * BLOCK_BYTES // 8_192
    assert (found.quarantine, found.spoke) == (here.quarantine, here.spoke)
