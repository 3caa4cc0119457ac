"""Growing logs, continuously: pieces of the spool are parsed as they come, and outages are told and told again.

Structured Streaming says which pieces belong to a batch, and its checkpoint that each is taken once. A batch is staged
under its number, so that one repeated after a crash replaces itself. Nothing hangs on a watermark: `StreamState` sorts
new lines in among those it knows, by their epochs, and a finding that changes then is told as a revision. `StreamState`
knows the content of the staged lines. A process that begins anew reads it from there, and reads the told revisions from
the alerts. In memory are the lines about partitions that were in trouble, and those about controllers and brokers. The
summary stands in `aggregates.json`, for the server of `/v1/aggregates`.

Alerts use uncorrected clocks. Once the input has ended, `finish` concludes as a batch over the logs does, corrects the
clocks, and revises the alerts that change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkjobs.engine.local.conclude import concluded_by
from sparkjobs.engine.local.stretches import Stretch
from sparkjobs.engine.spark import silver
from sparkjobs.engine.spark.executor import SparkExecutor
from sparkjobs.engine.spark.file_access import literal, whole
from sparkjobs.engine.spark.frames import frame_of
from sparkjobs.engine.spark.tables import Writing, as_said, events_in, stage
from sparkjobs.input.files import Zones, survey
from sparkjobs.input.spool import Piece, Spool, piece_of
from sparkjobs.rules import outages
from sparkjobs.rules.facts import CLUSTER_EVENTS
from sparkjobs.rules.rules import Answers
from sparkjobs.rules.slo import DEFAULT_TARGET
from sparkjobs.rules.stream_state import (
    Aggregates,
    Moment,
    Revision,
    StreamState,
    ToldOutages,
    aggregates_of,
)
from sparkjobs.tables.gold import Outage
from sparkjobs.tables.silver import BronzeFile

_IS_ABOUT_ONE: Final = "topic IS NOT NULL AND partition IS NOT NULL"
_BATCH: Final = re.compile(r"batch=(\d+)", re.ASCII)
_COMMIT: Final = re.compile(r"(\d+)", re.ASCII)


class Stream:
    """One cluster, one folder of state: the spool, the checkpoint, the staged lines, the alerts."""

    def __init__(self, spark: SparkSession, out: Path, cluster: str, zones: Zones, layout: str | None = None) -> None:
        self._spark, self._out, self._cluster = spark, out, cluster
        self._zones, self._layout = zones, layout
        self._executor = SparkExecutor(spark, out / "copies")
        self.spool = Spool(out / "spool")
        self.alerts, self.aggregates = out / "alerts.jsonl", out / "aggregates.json"
        self._told = ToldOutages(_revisions_in(self.alerts))
        self._watch: StreamState | None = None
        self._aggregated: Aggregates | None = None  # of all that was taken and told by now
        self._heads: dict[str, BronzeFile] = {}

    def run_once(self) -> None:
        """Take all pieces that are there."""
        query = (
            self._spark.readStream.format("text")
            .option("lineSep", "\n")
            .load(literal(whole(str(self.spool.folder))))
            .select(F.col("_metadata.file_path").alias("path"))
            .writeStream.foreachBatch(self._on_batch)
            .option("checkpointLocation", str(self._out / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _on_batch(self, batch: DataFrame, number: int) -> None:
        named = (row.path for row in batch.select("path").distinct().collect())
        pieces = [piece for piece in map(piece_of, named) if piece is not None]
        if not pieces:
            return
        # the batch names the pieces; they are read as files, so that lines know their numbers
        pieces = [msgspec.structs.replace(one, path=str(self.spool.folder / Path(one.path).name)) for one in pieces]
        target = (self._out / "staged" / f"batch={number}").absolute()
        tasks = [
            Writing(
                Stretch(self._as_file(one), 0, None, {}, str(Path(one.path).absolute())),
                str(target),
                f"part-{place:06}",
                one.first_line - 1,
            )
            for place, one in enumerate(pieces)
        ]
        stage(self._executor, tasks, target)
        self._follow(number)

    def resume(self) -> None:
        """Restore the knowledge of the process before this one."""
        if self._watch is None and (taken := _numbers_in(self._out / "checkpoint" / "commits", _COMMIT)):
            self._follow(max(taken))

    def _follow(self, number: int) -> None:
        """Take in the staged lines, those of this batch the last."""
        is_new = self._watch is None
        if self._watch is None:
            self._watch = StreamState(self._cluster)
        self._take(self._watch, range(number + 1) if is_new else (number,))
        self._hear(self._watch, number)
        self._tell([one for key, found in self._watch.conclude().items() for one in self._told.tell(key, found)])

    def write_aggregates(self, looked_ms: int) -> None:
        """Write all that is known, small. The new file replaces the old one at once, so a concurrent reader sees one of
        them."""
        if self._aggregated is None:
            watch = StreamState(self._cluster) if self._watch is None else self._watch
            standing = self._told.standing
            self._aggregated = aggregates_of(watch.facts, watch.events, standing, self._executor.name, looked_ms)
        found = msgspec.structs.replace(self._aggregated, looked_ms=looked_ms)
        unfinished = self.aggregates.with_name(f"_{self.aggregates.name}")
        unfinished.write_bytes(msgspec.json.encode(found) + b"\n")
        unfinished.replace(self.aggregates)

    def _as_file(self, piece: Piece) -> BronzeFile:
        """Returns the file's row. The layout and broker in the first piece of a log hold for all of it; where the first
        piece has none, those of each piece hold for that piece."""
        if piece.log_id not in self._heads:
            self._heads[piece.log_id] = self._surveyed(self.spool.first(piece.log_id))
        head = self._heads[piece.log_id]
        head = self._surveyed(piece) if head.layout is None else head
        return msgspec.structs.replace(
            head, file_id=piece.log_id, paths=(piece.path,), is_whole=not piece.is_cut, is_text=False, status="read"
        )

    def _surveyed(self, piece: Piece) -> BronzeFile:
        [file] = survey([piece.path], self._cluster, self._zones, layout=self._layout)
        return file

    def staged(self, numbers: Iterable[int] | None = None) -> DataFrame:
        """Returns the lines of these batches, or of all so far."""
        wanted = None if numbers is None else set(numbers)
        staged = _numbers_in(self._out / "staged", _BATCH)
        taken = [path for number, path in sorted(staged.items()) if wanted is None or number in wanted]
        return events_in(self._spark, taken)

    def _take(self, watch: StreamState, numbers: Iterable[int]) -> None:
        events = as_said(self.staged(numbers))
        fresh = watch.take(
            silver.tallies_of(events),
            silver.collected(events.filter(F.col("event").isin(*CLUSTER_EVENTS))),
            silver.one_by_one(events.filter(_IS_ABOUT_ONE), outages.EVENTS),
        )
        if fresh:
            wanted = F.broadcast(frame_of(self._spark, sorted(fresh), {"topic": "string", "partition": "int"}))
            before = as_said(self.staged()).join(wanted, ["topic", "partition"], "left_semi")
            watch.recall(silver.one_by_one(before, outages.EVENTS))

    def _hear(self, watch: StreamState, number: int) -> None:
        """Of moments that mattered before, only the new lines can say more."""
        known, new = watch.moments()
        for moments, numbers in ((known, (number,)), (new, None)):
            if moments:
                watch.hear(moments, self._voices(moments, numbers))

    def _voices(self, moments: Sequence[Moment], numbers: Iterable[int] | None) -> dict[Moment, int]:
        events = as_said(self.staged(numbers))
        return silver.voices_of(events, {self._cluster: moments}).get(self._cluster, {})

    def _tell(self, fresh: Sequence[Revision]) -> None:
        self._aggregated = None
        with self.alerts.open("ab") as file:
            for one in fresh:
                said: dict[str, Any] = {"outage_id": one.outage_id, "rev": one.rev, "retracted": one.retracted}
                file.write(msgspec.json.encode({**said, **msgspec.to_builtins(one.outage)}) + b"\n")

    def finish(self, files: Sequence[BronzeFile], target: float = DEFAULT_TARGET) -> Answers:
        """Every table of gold, as a batch over `files` has it, the logs as they are in the end: it is that batch. The
        last revisions are its outages."""
        answers = concluded_by(self._executor, files, target).answers
        self._tell(self._told.tell_all(row for row in answers["partition_outages"] if isinstance(row, Outage)))
        return answers


def _numbers_in(folder: Path, name: re.Pattern[str]) -> dict[int, Path]:
    """Returns the files and folders in it, by the numbers of batches."""
    return {int(found[1]): path for path in folder.glob("*") if (found := name.fullmatch(path.name))}


def _revisions_in(alerts: Path) -> list[Revision]:
    """Returns the revisions that were told; half a line is cut off, and that revision is told again."""
    if not alerts.exists():
        return []
    whole, newline, half = alerts.read_bytes().rpartition(b"\n")
    if half:
        with alerts.open("r+b") as file:
            file.truncate(len(whole) + len(newline))
    told = []
    for line in whole.splitlines():
        said = msgspec.json.decode(line, type=dict[str, Any])
        head = (said.pop("outage_id"), said.pop("rev"), said.pop("retracted"))
        told.append(Revision(*head, msgspec.convert(said, Outage)))
    return told
