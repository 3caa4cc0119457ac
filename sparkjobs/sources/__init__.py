"""Logs and records as tables of Spark, for notebooks: `register(spark)`, then `spark.read.format("klamm_events")`.

Three formats: `klamm_events` (state-change, controller and server logs, Kafka's and ours), `zookeeper_txnlog` and
`kraft_metadata` (the records that a cluster itself wrote). Each is read in batch and as a stream, by the readers that
the report has; the report itself does not read this way. Spark plans in a process beside the driver: there files are
listed, and of a stream only the new content is searched for the ends of whole lines or records. Files are read in
tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjobs.sources.events import KlammEvents
from sparkjobs.sources.records import KraftMetadata, ZooKeeperLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the three formats known to this session."""
    for source in (KlammEvents, ZooKeeperLog, KraftMetadata):
        spark.dataSource.register(source)
