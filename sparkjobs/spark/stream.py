"""Growing logs, continuously: pieces of the spool are parsed as they come, and outages are told and told again.

Structured Streaming says which pieces belong to a batch, and its checkpoint that each is taken once. A batch is staged
under its number, so that one repeated after a crash replaces itself. Nothing hangs on a watermark: duplicates go by
event_id, and an outage is concluded anew from all lines known so far; when that changes, a revision is written. Once
the input has ended, `finish` settles the staged lines exactly as a batch ingest does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkjobs.files import Zones, survey
from sparkjobs.parse.vocabulary import EVENTS
from sparkjobs.schemas import BronzeFile, Row, SilverEvent
from sparkjobs.spark.ingest import SparkIngested, rows_of, settled, stage_into, staged_schema
from sparkjobs.spool import Piece, Spool, log_id_of, piece_of

#: everything but what says nothing
_TELLING: Final = tuple(name for name in EVENTS if name != "other")
Conclude = Callable[[Iterable[SilverEvent]], Sequence[Row]]


class Stream:
    """One folder of state: the spool, the checkpoint, the staged lines, the alerts."""

    def __init__(
        self,
        spark: SparkSession,
        out: Path,
        cluster: str,
        zones: Zones,
        conclude: Conclude,
        layout: str | None = None,
    ) -> None:
        self._spark, self._out, self._cluster, self._zones = spark, out, cluster, zones
        self._conclude, self._layout = conclude, layout
        self.spool = Spool(out / "spool")
        self.alerts = out / "alerts.jsonl"

    def run_once(self) -> None:
        """Take all pieces that are there."""
        query = (
            self._spark.readStream.format("text")
            .option("lineSep", "\n")
            .load(str(self.spool.folder))
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
        heads = self._heads()
        files = [self._as_file(piece, heads[piece.log_id]) for piece in pieces]
        above = {piece.path: piece.first_line - 1 for piece in pieces}
        stage_into(self._spark, files, str(self._out / "staged" / f"batch={number}"), above)
        self._tell()

    def _heads(self) -> dict[str, BronzeFile]:
        """What the first piece of each log says of its layout and broker."""
        first = {piece.log_id: piece for piece in reversed(self.spool.pieces())}
        rows = survey([piece.path for piece in first.values()], self._cluster, self._zones, layout=self._layout)
        by_path = {path: row for row in rows for path in row.paths}
        return {log_id: by_path[piece.path] for log_id, piece in first.items()}

    def _as_file(self, piece: Piece, head: BronzeFile) -> BronzeFile:
        last = piece.first_line + Path(piece.path).read_bytes().count(b"\n")
        return msgspec.structs.replace(
            head,
            file_id=piece.log_id,
            paths=(piece.path,),
            lines=last if piece.is_cut else last - 1,
            is_whole=not piece.is_cut,
            is_text=False,
            status="read",
        )

    def staged(self) -> DataFrame:
        """All lines so far."""
        batches = sorted(str(path) for path in (self._out / "staged").glob("batch=*"))
        if not batches:
            return self._spark.createDataFrame([], staged_schema())
        return self._spark.read.schema(staged_schema()).parquet(*batches)

    def _tell(self) -> None:
        """Outages as they stand now; those that were told otherwise before get a revision."""
        silver = settled(self.staged(), [])
        events = rows_of(silver.events.filter(F.col("event").isin(*_TELLING)), SilverEvent)
        known = self._told()
        fresh = []
        for row in self._conclude(events):
            said = msgspec.to_builtins(row)
            outage_id = "/".join(str(said[name]) for name in ("cluster", "topic", "partition", "start_ms"))
            revision, before = known.get(outage_id, (0, None))
            known[outage_id] = (revision, said)
            if said != before:
                fresh.append({"outage_id": outage_id, "rev": revision + 1, **said})
        with self.alerts.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(one) + "\n" for one in fresh)

    def _told(self) -> dict[str, tuple[int, Any]]:
        told: dict[str, tuple[int, Any]] = {}
        if self.alerts.exists():
            for line in self.alerts.read_text(encoding="utf-8").splitlines():
                one = json.loads(line)
                outage_id, revision = one.pop("outage_id"), one.pop("rev")
                told[outage_id] = (revision, one)
        return told

    def finish(self, files: Sequence[BronzeFile]) -> SparkIngested:
        """As a batch over `files` would be, the logs as they are in the end."""
        names = [(log_id_of(file.paths[0]), file.file_id) for file in files if file.status == "read"]
        mapping = self._spark.createDataFrame(names, "log string, content string")
        staged = self.staged()
        renamed = staged.join(F.broadcast(mapping), staged["file_id"] == mapping["log"]).select(
            *[F.col("content").alias(name) if name == "file_id" else staged[name] for name in staged.columns]
        )
        return settled(renamed, files)
