"""Spark's classes kept for the next start: taken by Java where they are there, and not missed where they are not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparkjobs.engine.spark.session import JAVA_OPTIONS, cache_path, settings_for

KLAMM = (sys.executable, "-m", "sparkjobs")
#: starts Spark, and has Java write down which classes it loaded from where
START = """
import sys
from sparkjobs.engine.spark.session import JAVA_OPTIONS, session_for, settings_for
options = settings_for(None, {})[JAVA_OPTIONS]
session_for("local[1]", {JAVA_OPTIONS: f"{options} -Xlog:class+load:file={sys.argv[1]}"}).stop()
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a user whose folders have spaces."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder := tmp_path / "my cache"))
    return folder


def test_without_a_file_java_is_told_of_none(cache: Path) -> None:
    assert "SharedArchiveFile" not in settings_for(None, {})[JAVA_OPTIONS]
    cache_path().parent.mkdir(parents=True)
    cache_path().touch()
    assert f'"-XX:SharedArchiveFile={cache_path()}"' in settings_for(None, {})[JAVA_OPTIONS]


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(300)
def test_once_warmed_up_spark_takes_its_classes_from_the_file(cache: Path, tmp_path: Path) -> None:
    (cache / "klamm").mkdir(parents=True)
    of_another = cache / "klamm" / "spark-0.1.jsa"
    of_another.touch()
    done = subprocess.run((*KLAMM, "logs", "warmup"), capture_output=True, text=True, check=True)
    assert str(cache_path()) in done.stdout
    assert done.stdout.count("\n") == 1  # Java says nothing amid it
    assert list(cache_path().parent.iterdir()) == [cache_path()]

    loaded = tmp_path / "loaded.txt"
    subprocess.run((sys.executable, "-c", START, str(loaded)), capture_output=True, check=True)
    assert loaded.read_text().count("shared objects file (top)") > 3_000
