"""Answers by a Spark cluster: `python -m tests.spark.on_a_cluster MASTER LOGS` prints their digest.

A process, because one cannot have two Spark sessions with different masters.
"""

from __future__ import annotations

import os
import sys

import msgspec
from pyspark.sql import SparkSession

from sparkjobs.answers.spark import answers_for
from sparkjobs.files import Zones, find_logs, survey
from sparkjobs.local.ingest import ingest
from sparkjobs.report.write import digest_of
from sparkjobs.schemas import SilverEvent, spark_schema


def main(master: str, logs: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    events = ingest(survey(find_logs([logs]), "c", Zones())).events
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    rows = [msgspec.structs.astuple(event) for event in events]
    frame = session.createDataFrame(rows, spark_schema(SilverEvent)).repartition(3)
    sys.stdout.write(f"{digest_of(answers_for(frame))}\n")
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
