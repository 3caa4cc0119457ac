"""One Spark session for all tests of the Spark engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """As the commands make it, but in haste: each query is run only once, so making it faster costs more than it
    brings. Those that run commands have sessions as they are made there. Ask for it only in tests marked `java`."""
    from sparkjobs.engine.spark.session import session_for

    in_haste = {
        "spark.driver.memory": "3g",  # it keeps something of every plan, and here are hundreds
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    session = session_for("local[2,4]", in_haste)
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _forgetting(request: pytest.FixtureRequest) -> Iterator[None]:
    """The memory of one test is not carried through the others."""
    yield
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark").catalog.clearCache()
