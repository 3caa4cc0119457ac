"""The wheel as spark-submit takes it: `--py-files` for the workers, the entry point for the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sparkjobs.answers.local import answers_for
from sparkjobs.bundle import Bundle, silver_of
from sparkjobs.files import Zones, find_logs, survey
from sparkjobs.report.write import digest_of

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "tests" / "data" / "kafka-3.9.1-info" / "broker5"
#: the package in this environment is not there: it can only come from the wheel
NOT_INSTALLED = "import sys\nsys.meta_path = [one for one in sys.meta_path if 'editable' not in repr(one)]\n"


def test_spark_submit_reports_with_nothing_but_the_wheel_on_the_master_it_was_given(tmp_path: Path) -> None:
    import pyspark

    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-q"]
    subprocess.run([*build, "-w", str(tmp_path), str(ROOT)], check=True, timeout=200, capture_output=True)
    [wheel] = tmp_path.glob("klamm-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        entry = tmp_path / "entry" / "report.py"
        entry.parent.mkdir()
        entry.write_bytes(packed.read("sparkjobs/__main__.py"))
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(NOT_INSTALLED)
    (tmp_path / "history").mkdir()
    settings = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file:{tmp_path / 'history'}"}
    settings |= {"spark.eventLog.compress": "false", "spark.driver.host": "127.0.0.1"}
    settings |= {"spark.driver.bindAddress": "127.0.0.1"}
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command += ["--py-files", str(wheel), str(entry), "report", str(LOGS), "--out", str(tmp_path / "out")]
    environment = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    bundle = Bundle(survey(find_logs([str(LOGS)]), "kafka", Zones()))
    expected = digest_of(answers_for(silver_of(bundle).ingested.events))
    assert (tmp_path / "out" / "digest.txt").read_text().strip() == expected
    told = "".join(path.read_text() for path in (tmp_path / "history").rglob("events_*"))
    properties = [json.loads(line).get("Spark Properties", {}) for line in told.splitlines()]
    assert {one["spark.master"] for one in properties if one} == {"local[1]"}
