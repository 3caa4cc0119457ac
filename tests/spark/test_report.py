"""The report says what the answers say, alone in one file, and a story is told of one partition."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from sparkjobs.answers.local import Answers, answers_for
from sparkjobs.files import Zones, find_logs, survey
from sparkjobs.gold import GOLD
from sparkjobs.local.ingest import Ingested, ingest
from sparkjobs.report.findings import findings_for, verdict_for
from sparkjobs.report.page import Input, page_for
from sparkjobs.report.story import story_for
from sparkjobs.report.summary import summary_for
from sparkjobs.report.write import digest_of, quoting, write_report
from sparkjobs.schemas import columns_of
from tests.spark.bundles import write
from tests.spark.simulate import Simulation
from tests.spark.written import Log, with_a_led_partition

#: what a page could be made to fetch
REFERENCES = re.compile(r"""(?:src|href|action|url\()\s*=?\s*["'(]?(?!#|data:)[\w/.:-]+|@import|https?://|//cdn""")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ingested, Answers]:
    folder = tmp_path_factory.mktemp("simulated")
    write(Simulation(5).run(faults=8), folder, "TRACE")
    read = ingest(survey(find_logs([str(folder)]), "shop & co", Zones()))
    return read, answers_for(read.events)


def report_in(folder: Path, of: tuple[Ingested, Answers], *, redact: bool = False) -> Path:
    read, answers = of
    quote = quoting(read.files, read.events, answers)
    return write_report(folder, answers, quote, Input(read.counts, read.quarantine), redact=redact)


def test_the_page_is_one_small_file_that_refers_to_no_other(
    tmp_path: Path, simulated: tuple[Ingested, Answers]
) -> None:
    text = report_in(tmp_path, simulated).read_text()
    assert len(text.encode()) < 2_000_000
    assert REFERENCES.findall(re.sub(r"<code>.*?</code>", "", text, flags=re.DOTALL)) == []
    assert "shop &amp; co" in text
    assert "<script>" in text
    assert text.count("\n") > 0


def test_a_page_about_sixty_thousand_outages_is_still_small_and_shows_the_longest(
    simulated: tuple[Ingested, Answers],
) -> None:
    _, answers = simulated
    one = answers["partition_outages"][0]
    many = [
        msgspec.structs.replace(
            one, partition=number % 4_000, start_ms=one.start_ms + number, end_ms=one.start_ms + number + 5
        )
        for number in range(60_000)
    ]
    longest = msgspec.structs.replace(many[30_000], partition=4_001, end_ms=many[30_000].start_ms + 3_599_000)
    text = page_for({**answers, "partition_outages": [*many, longest]}, lambda file_id, line_no: None, Input(), "")
    assert len(text.encode()) < 2_000_000
    course = text.partition('id="course"')[2].partition("</section>")[0]
    assert f"{longest.topic}-4001: " in course


def test_the_script_is_short_and_styles_know_the_dark_and_paper() -> None:
    here = Path(__file__).parents[2] / "sparkjobs" / "report"
    assert len((here / "page.js").read_text().splitlines()) <= 200
    style = (here / "style.css").read_text()
    assert "prefers-color-scheme: dark" in style
    assert "@media print" in style


def test_json_and_parquet_say_the_same_as_the_page(tmp_path: Path, simulated: tuple[Ingested, Answers]) -> None:
    page = report_in(tmp_path, simulated).read_text()
    _, answers = simulated
    whole = msgspec.json.decode((tmp_path / "report.json").read_bytes())
    assert whole["verdict"]["sentence"] in page
    assert whole["digest"] == digest_of(answers) == (tmp_path / "digest.txt").read_text().strip()
    for name, table in GOLD.items():
        stored = pq.read_table(tmp_path / "gold" / f"{name}.parquet")
        assert stored.column_names == list(columns_of(table))
        assert stored.num_rows == len(answers[name]) == len(whole["tables"][name])


def test_every_finding_about_a_broker_quotes_the_line_that_says_so(simulated: tuple[Ingested, Answers]) -> None:
    read, answers = simulated
    quote = quoting(read.files, read.events, answers)
    found = [one for one in findings_for(answers) if one.kind.startswith("broker")]
    assert len(found) == len(answers["failovers"]) > 0
    for one in found:
        said = quote(one.file_id, one.line_no)
        assert said is not None
        assert Path(said.path).read_text().splitlines()[said.line_no - 1] == said.text


def test_the_verdict_says_first_what_is_not_over() -> None:
    nothing: Answers = {name: [] for name in GOLD}
    assert verdict_for(nothing).sentence.startswith("Nothing is known: no line of these logs was understood")
    log = with_a_led_partition()
    assert verdict_for(log.answers()).sentence == "Nothing went offline in these logs."
    assert verdict_for(log.answers()).mood == "good"
    log.partition(9_000, "Online", "Offline")
    log.partition(9_005, "Offline", "Online", leader=1, leader_epoch=1, version=1, isr=(1,))
    assert verdict_for(log.answers()).sentence.startswith("Over. 1 partition ")
    log.partition(9_500, "Online", "Offline")
    assert verdict_for(log.answers()).sentence.startswith("Not over: 1 partition ")
    assert dict(summary_for(log.answers()))["Is it over?"].endswith("orders-0")


def test_where_no_line_says_who_leads_the_verdict_is_that_nothing_is_known() -> None:
    log = Log()
    log.say(0, "controller_elected", controller_epoch=1)
    verdict = verdict_for(log.answers())
    assert verdict.mood == "worn"
    assert verdict.sentence.startswith("Not known: no line of these logs says whether a partition had a leader.")
    log.say(9_000, "brokers_changed", removed=(2,), replicas=(1,))
    assert verdict_for(log.answers()).sentence == verdict.sentence
    said = dict(summary_for(log.answers()))
    assert [said[one].partition(":")[0] for one in ("Is it over?", "Which partitions?", "Was data lost?")] == [
        "Not known"
    ] * 3


def test_logs_of_kraft_are_called_by_their_name() -> None:
    log = Log()
    log.say(0, "quorum_said", role="server")
    assert verdict_for(log.answers()).sentence.endswith("They are of KRaft, which is not read here.")


def test_the_summary_answers_each_question_of_an_outage() -> None:
    log = with_a_led_partition(isr=(2,))
    log.say(12_000, "brokers_changed", removed=(2,), replicas=(1,))
    log.partition(12_002, "Online", "Offline")
    log.partition(13_002, "Offline", "Online", leader=1, leader_epoch=1, version=1, isr=(1,))
    log.say(20_000, "other", broker=1, role="server")
    assert dict(summary_for(log.answers())) == {
        "Is it over?": "Yes: the last outage ended 08:00:13.002, the logs end 08:00:20.000",
        "Which partitions?": "1; worst orders-0 (1.0 s)",
        "Since when?": "2026-11-18 08:00:12.002 UTC (orders-0)",
        "Was data lost?": "It may be: 1 leader elected that had not been in sync, of orders-0",
        "Who was controller?": "In the end broker 1 (epoch 1, since 08:00:00.000)",
        "Which broker first?": "Broker 2 lost: last heard 08:00:05.000, missed 08:00:12.000",
        "Did it flap?": "No",
    }


def test_the_story_of_a_partition_tells_what_stood_and_what_came_of_it(simulated: tuple[Ingested, Answers]) -> None:
    read, answers = simulated
    outage = max(answers["partition_outages"], key=lambda o: (o.end_ms or o.start_ms) - o.start_ms)  # type: ignore[attr-defined]
    quote = quoting(read.files, read.events, answers)
    story = list(story_for(answers, outage.topic, outage.partition, outage.start_ms + 1, quote))  # type: ignore[attr-defined]
    assert story[0].startswith(f"{outage.topic}-{outage.partition} at 2026-11-18")  # type: ignore[attr-defined]
    assert any("without a leader from" in line for line in story)
    assert any("was controller (epoch" in line for line in story)
    assert story.index("Before:") < story.index("Afterwards:")
    assert list(story_for(answers, "nowhere", 0, 0, quote))[-1] == "  These logs do not name it."
