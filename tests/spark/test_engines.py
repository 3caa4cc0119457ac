"""Both executors, and the stream, conclude the same from the same logs, however these are packed, copied and named."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjobs.commands.inputs import LogInputs
from sparkjobs.engine.local import stretches
from sparkjobs.input.files import SCHEME, Zones, find_logs, survey
from sparkjobs.parse.layouts import LAYOUTS
from sparkjobs.report.write import digest_of, places_of_findings
from sparkjobs.rules.facts import Place
from sparkjobs.rules.rules import Answers
from tests.spark import plain as local
from tests.spark.bundles import write
from tests.spark.lines import MESSAGES, damaged
from tests.spark.reading import silver_of
from tests.spark.simulate import Simulation
from tests.spark.test_lines import rendered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjobs.engine.local.conclude import Concluded

_AROUND = ("{}", "{}", "kafka-1  | {}", "2026-11-18T07:49:10.504123Z {}", "kafka1/state-change.log:{}")
_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")


def write_anything(folder: Path, draw: random.Random) -> None:
    """Lines of all versions in random layouts, damaged, packed and copied; and a cluster's own story among them."""
    simulation = Simulation(draw.randrange(1_000), skew_ms={2: draw.choice((0, 90_000))}).run(faults=4)
    write(simulation, folder / "story", draw.choice(("TRACE", "INFO")), bad=True)
    for broker in range(5, 9):
        layout, around = draw.choice(LAYOUTS), draw.choice(_AROUND)
        lines = []
        for _ in range(draw.randrange(1, 120)):
            message, logger, _columns = draw.choice(MESSAGES)
            hour, minute, second = draw.randrange(24), draw.randrange(60), draw.randrange(60)
            ts = f"2026-11-18 {hour:02}:{minute:02}:{second:02},{draw.randrange(9)}00"
            lines.append(rendered(layout, message, ts=ts, logger=logger))
            if draw.random() < 0.2:
                lines.append(damaged(lines[-1], draw))
            if draw.random() < 0.1:
                lines += ["java.lang.IllegalStateException: no", "\tat a.b(C.java:1)"]
        path = folder / f"broker{broker}" / draw.choice(("state-change.log", "controller.log", "server.log"))
        path.parent.mkdir(parents=True)
        text = "\n".join(around.format(line) for line in lines).encode("utf-8", "surrogateescape")
        path.write_bytes(draw.choice((text, text + b"\n", gzip.compress(text, mtime=0))))


def by_local(folder: Path, zones: Zones) -> Answers:
    return local.answers_for(silver_of(LogInputs(survey(find_logs([str(folder)]), "c", zones))).ingested.events)


def by_spark(spark: SparkSession, named: Path | str, zones: Zones, folder: Path) -> Concluded:
    """A path with a scheme only Hadoop opens."""
    from sparkjobs.engine.local.conclude import concluded_by
    from sparkjobs.engine.spark.executor import SparkExecutor
    from sparkjobs.engine.spark.file_access import RemoteFiles

    if SCHEME.match(str(named)):
        remote = RemoteFiles(spark)
        files = survey(remote.find(str(named)), "c", zones, open_file=remote.open)
    else:
        files = survey(find_logs([str(named)]), "c", zones)
    return concluded_by(SparkExecutor(spark, folder), files, places_in=places_of_findings)


def pack(contents: list[bytes], folder: Path, draw: random.Random) -> None:
    """Under other names, in another order, some compressed, some of them twice."""
    draw.shuffle(contents)
    for number, content in enumerate(contents):
        for copy in range(draw.choice((1, 1, 2))):
            path = folder / f"{number % 3}" / f"{draw.randrange(100):02}-{number}-{copy}.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(content) if draw.random() < 0.5 else content)


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(6))
def test_random_logs_of_all_dialects_give_equal_rows_in_every_table(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stretches, "STRETCH_BYTES", 2_000)
    monkeypatch.setattr("sparkjobs.engine.spark.executor._SHARE_BYTES", 20_000)
    draw = random.Random(seed)
    write_anything(tmp_path / "logs", draw)
    zones = Zones(draw.choice(_ZONES), {broker: draw.choice(_ZONES) for broker in (2, 6)})
    silver = silver_of(LogInputs(survey(find_logs([str(tmp_path / "logs")]), "c", zones)))
    expected, read = local.answers_for(silver.ingested.events), silver.ingested
    assert expected["partition_outages"]
    for named in (tmp_path / "logs", f"file:{tmp_path}/logs"):
        found = by_spark(spark, named, zones, tmp_path)
        for name, rows in expected.items():
            assert found.answers[name] == rows, name
        assert [count.events for count in found.counts] == [count.events for count in read.counts]
        assert (found.quarantine, found.skew) == (read.quarantine, silver.skew)
        texts = {Place(event.file_id, event.line_no): event.line for event in read.events}
        assert found.lines == {place: texts[place] for place in places_of_findings(expected)}


@pytest.mark.parametrize("seed", range(3))
def test_names_order_copies_and_compression_change_nothing(tmp_path: Path, seed: int) -> None:
    digests, draw = set(), random.Random(seed)
    write(Simulation(seed).run(faults=6), tmp_path / "plain", "TRACE", bad=bool(seed))
    contents = [
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for path in sorted((tmp_path / "plain").rglob("*.*"))
    ]
    for variant in range(4):
        pack(contents, tmp_path / str(variant), draw)
        digests.add(digest_of(by_local(tmp_path / str(variant), Zones())))
    assert len(digests) == 1
    assert digests == {digest_of(by_local(tmp_path / "0", Zones()))}, "and a rerun"


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(900)
def test_spark_and_a_stream_have_that_digest_too(spark: SparkSession, tmp_path: Path) -> None:
    from sparkjobs.engine.spark.stream import Stream

    draw = random.Random(5)
    write(Simulation(5).run(faults=6), tmp_path / "plain", "TRACE", bad=True)
    contents = [path.read_bytes() for path in sorted((tmp_path / "plain").rglob("*.log.*")) if path.suffix != ".gz"]
    digests = {}
    for variant in ("one", "other"):
        pack(contents, tmp_path / variant, draw)
        digests[f"local, {variant}"] = digest_of(by_local(tmp_path / variant, Zones()))
        digests[f"spark, {variant}"] = digest_of(by_spark(spark, tmp_path / variant, Zones(), tmp_path).answers)
    watched = Stream(spark, tmp_path / "out", "c", Zones())
    logs = find_logs([str(tmp_path / "other")])
    for part in logs[::2], logs:
        watched.spool.advance(part, is_end=part is logs)
        watched.run_once()
    digests["stream"] = digest_of(watched.finish(survey(logs, "c", Zones())))
    assert len(set(digests.values())) == 1, digests


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", ["0.8.0", "0.9.0.1", "1.0.2"])
def test_of_older_kafka_both_say_the_same(spark: SparkSession, version: str, tmp_path: Path) -> None:
    folder = Path(__file__).parents[1] / "data" / "kafka-older" / version
    found = by_spark(spark, folder, Zones(), tmp_path).answers
    assert digest_of(found) == digest_of(by_local(folder, Zones()))
