"""One Spark session for all tests of the Spark engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """As the commands make it, on two cores and with few shuffles. Ask for it only in tests marked `java`."""
    from sparkjobs.spark.session import session_for

    session = session_for("local[2]", {"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()
