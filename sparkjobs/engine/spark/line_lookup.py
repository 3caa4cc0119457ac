"""The words of lines whose place is known, out of silver.

As `sparkjobs.engine.local.line_lookup` does out of the files themselves, which may lie where only Spark reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjobs.engine.local.line_lookup import Place
from sparkjobs.engine.spark.frames import frame_of


def lines_of(events: DataFrame, places: Iterable[Place]) -> Mapping[Place, str]:
    """Of each place its line. `events` is silver. The few lines that are wanted come to the driver, no others."""
    wanted = frame_of(events.sparkSession, sorted(set(places)), {"file_id": "string", "line_no": "bigint"})
    lines = events.select("file_id", "line_no", "line")
    found = lines.join(F.broadcast(wanted), ["file_id", "line_no"], "left_semi").collect()
    return {(file_id, line_no): line for file_id, line_no, line in found}
