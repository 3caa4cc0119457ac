"""The report agrees with the answers, alone in one file, and a story is told of one partition."""

from __future__ import annotations

import gzip
import re
from base64 import b64encode
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow.parquet as pq
import pytest

from sparkjobs.input.files import Zones, find_logs, survey
from sparkjobs.report.findings import findings_for
from sparkjobs.report.markup import span_of
from sparkjobs.report.page import Input, Quote, page_for
from sparkjobs.report.pictures import heat
from sparkjobs.report.story import story_for
from sparkjobs.report.verdict import summary_for, verdict_for
from sparkjobs.report.write import digest_of, write_report
from sparkjobs.rules.rules import Answers
from sparkjobs.rules.state_machines import LEGAL
from sparkjobs.tables.gold import GOLD
from sparkjobs.tables.silver import (
    Row,
    SilverCount,
    SilverQuarantine,
    SilverSkew,
    columns_of,
)
from tests.spark.bundles import write
from tests.spark.lines import TS
from tests.spark.plain import answers_for, quoting_all
from tests.spark.reading import Ingested, ingest
from tests.spark.simulate import Simulation
from tests.spark.written import T0, Log, with_a_led_partition

#: addresses that a page could be made to fetch
REFERENCES = re.compile(r"""(?:src|href|action|url\()\s*=?\s*["'(]?(?!#|data:)[\w/.:-]+|@import|https?://|//cdn""")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ingested, Answers]:
    folder = tmp_path_factory.mktemp("simulated")
    write(Simulation(5).run(faults=8), folder, "TRACE")
    read = ingest(survey(find_logs([str(folder)]), "shop & co", Zones()))
    return read, answers_for(read.events)


def report_in(folder: Path, of: tuple[Ingested, Answers], *, redact: bool = False) -> Path:
    read, answers = of
    quote = quoting_all(read.files, read.events, answers)
    return write_report(folder, answers, quote, Input(read.counts, read.quarantine, (), read.files), redact=redact)


def test_the_page_is_one_small_file_that_refers_to_no_other(
    tmp_path: Path, simulated: tuple[Ingested, Answers]
) -> None:
    text = report_in(tmp_path, simulated).read_text()
    assert len(text.encode()) < 2_000_000
    rest = re.sub(r"<code>.*?</code>|<meta http-equiv=[^>]*>", "", text, flags=re.DOTALL)
    assert REFERENCES.findall(rest) == []
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


#: values that a column must have for a page to have words for it
WORDS: Final = {
    **{"proof": "said", "how": "crashed", "kind": "controller_obeyed", "grade": "none", "ended": "crashed"},
    **{"what": "broker", "why_ended": "deposed", "dt": "2026-11-18", "cause": "broker_lost", "evidence": "inferred"},
    "unseen": "deletion",
}


def filled(table: type[Row], number: int) -> Row:
    """A row that says something in every column."""
    values: dict[str, Any] = {}
    for name, kind in columns_of(table).items():
        values[name] = {
            "int": number % 2_000,
            "bigint": T0 + 7_919 * number if name.endswith("_ms") else number,
            "double": number + 0.5,
            "boolean": number % 2 == 0,
            "string": WORDS.get(name, f"a-rather-long-{name}-{number % 3_000}"),
        }.get(kind, (1, 2, 3))
    return table(**values)


@pytest.mark.long
def test_whatever_there_is_too_much_of_the_page_is_small_and_says_where_the_rest_is() -> None:
    answers: Answers = {name: [filled(table, number) for number in range(6_000)] for name, table in GOLD.items()}
    read = Input(*([filled(table, n) for n in range(2_000)] for table in (SilverCount, SilverQuarantine, SilverSkew)))  # type: ignore[arg-type]
    text = page_for(answers, lambda file_id, line_no: Quote("folder/" * 9, line_no, '{"a":1},' * 250), read, "")
    assert len(text.encode()) < 2_000_000
    tables = [one for one in text.split("<table>")[1:] if one.count("<tr") > 250]
    assert len(tables) == 13
    for one in tables:
        assert one.count("<tr") <= 301
        assert "more are in report.json" in one


def test_a_leaders_silence_before_it_was_missed_is_not_drawn_as_an_outage(simulated: tuple[Ingested, Answers]) -> None:
    _, answers = simulated
    one, span = answers["partition_outages"][0], span_of(answers)
    assert span is not None
    drawn = {
        heat({**answers, "partition_outages": [msgspec.structs.replace(one, leader_last_seen_ms=heard_ms)]}, span)
        for heard_ms in (None, one.start_ms - 60_000)
    }
    assert len(drawn) == 1


def test_a_page_without_room_drops_the_smaller_findings(simulated: tuple[Ingested, Answers]) -> None:
    _, answers = simulated
    [one] = answers["controller_tenures"][:1]
    terms = [msgspec.structs.replace(one, controller_epoch=epoch, gap_before_ms=5) for epoch in range(1_000)]
    terms[777] = msgspec.structs.replace(terms[777], gap_before_ms=3_599_000)
    one = answers["partition_outages"][0]
    outages = [
        msgspec.structs.replace(one, topic="a", partition=number, end_ms=one.start_ms + 5) for number in range(1_000)
    ]
    outages.append(msgspec.structs.replace(one, topic="the-worst", end_ms=one.start_ms + 5_000))
    many = {**answers, "controller_tenures": terms, "partition_outages": outages}
    text = page_for(many, lambda file_id, line_no: None, Input(), "")
    assert "60.0 min" in text.partition('id="controllers"')[2].partition("</section>")[0]
    heat = text.partition('id="heat"')[2].partition("</section>")[0]
    assert "the-worst" in heat
    assert "601 more partitions" in heat


def test_of_more_than_a_day_every_moment_has_its_date() -> None:
    log = with_a_led_partition()
    log.partition(9_000, "Online", "Offline")
    log.partition(9_005, "Offline", "Online", leader=1, leader_epoch=1, version=1, isr=(1,))
    moment = re.compile(r">(?:2026-11-18 )?08:00:09\.000<")
    short = page_for(log.answers(), lambda file_id, line_no: None, Input(), "")
    assert set(moment.findall(short)) == {">08:00:09.000<"}
    log.say(90_000_000, "other", broker=1, role="server")
    long = page_for(log.answers(), lambda file_id, line_no: None, Input(), "")
    assert set(moment.findall(long)) == {">2026-11-18 08:00:09.000<"}


def test_of_logs_of_two_days_findings_summary_and_story_say_of_each_moment_which() -> None:
    log = with_a_led_partition()
    log.say(12_000, "brokers_changed", removed=(2,), replicas=(1,))
    log.partition(12_002, "Online", "Offline")
    log.partition(13_002, "Offline", "Online", leader=1, leader_epoch=1, version=1, isr=(1,))
    for day, brief in (("", "08:00:12"), ("2026-11-18 ", "11-18 08:00")):
        if day:
            log.say(57_600_000, "other", broker=1, role="server")  # midnight
        answers = log.answers()
        [lost] = [one for one in findings_for(answers) if one.kind.startswith("broker")]
        assert lost.at_ms == T0 + 12_000
        assert f"Last heard {day}08:00:05.000" in lost.words
        summary = dict(summary_for(answers))
        assert (
            summary["Which broker first?"]
            == f"Broker 2 was lost: last heard {day}08:00:05.000, missed {day}08:00:12.000"
        )
        assert f"(epoch 1, since {day}08:00:00.000)" in summary["Who was controller?"]
        story = list(story_for(answers, "orders", 0, T0 + 12_500, lambda file_id, line_no: None))
        assert f"  It was without a leader from {day}08:00:12.002 until {day}08:00:13.002." in story
        assert f">{brief} broker 2<" in page_for(answers, lambda file_id, line_no: None, Input(), "")


def test_a_file_that_could_not_be_read_stands_first_with_its_trouble_and_hides_its_path(tmp_path: Path) -> None:
    good = f"[{TS}] INFO [Controller id=1 epoch=3] Changed partition a-0 state from OnlinePartition to OfflinePartition"
    (tmp_path / "a-state-change.log").write_text(f"{good} (state.change.logger)\n")
    half = gzip.compress(f"{good} (state.change.logger)\n".encode() * 99)
    (tmp_path / "b-state-change.log").write_bytes(half[: len(half) // 2])
    read = ingest(survey(find_logs([str(tmp_path)]), "c", Zones()))
    report = (read, answers_for(read.events))
    shown = report_in(tmp_path / "out", report).read_text().partition('id="input"')[2]
    assert shown.index("b-state-change.log") < shown.index("a-state-change.log")
    assert "EOFError" in shown
    hidden = report_in(tmp_path / "hidden", report, redact=True).read_text()
    assert "EOFError" in hidden
    assert str(tmp_path) not in hidden + (tmp_path / "hidden" / "report.json").read_text()


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
    quote = quoting_all(read.files, read.events, answers)
    found = [one for one in findings_for(answers) if one.kind.startswith("broker")]
    assert len(found) == len(answers["failovers"]) > 0
    for one in found:
        said = quote(one.file_id, one.line_no)
        assert said is not None
        assert Path(said.path).read_text().splitlines()[said.line_no - 1] == said.text


def test_the_verdict_names_lasting_trouble_first() -> None:
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


def test_where_no_line_names_a_leader_the_verdict_is_that_nothing_is_known() -> None:
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
    assert verdict_for(log.answers()).sentence.endswith("bring `__cluster_metadata-0` of any node, which does.")


def test_the_summary_answers_each_question_of_an_outage() -> None:
    log = with_a_led_partition(isr=(2,))
    log.say(12_000, "brokers_changed", removed=(2,), replicas=(1,))
    log.partition(12_002, "Online", "Offline")
    log.partition(13_002, "Offline", "Online", leader=1, leader_epoch=1, version=1, isr=(1,))
    log.say(20_000, "other", broker=1, role="server")
    assert dict(summary_for(log.answers())) == {
        "Is it over?": "Yes: the last outage ended 08:00:13.002, the logs end 08:00:20.000",
        "Which partitions?": "1; longest without one orders-0 (1.0 s)",
        "Since when?": "2026-11-18 08:00:12.002 UTC (orders-0)",
        "Was data lost?": "It may be: 1 leader elected that had not been in sync, of orders-0",
        "Who was controller?": "In the end broker 1 (epoch 1, since 08:00:00.000)",
        "Which broker first?": "Broker 2 was lost: last heard 08:00:05.000, missed 08:00:12.000",
        "Did it flap?": "No",
    }


def test_the_story_of_a_partition_tells_its_states_and_their_effects(simulated: tuple[Ingested, Answers]) -> None:
    read, answers = simulated
    outage = max(answers["partition_outages"], key=lambda o: (o.end_ms or o.start_ms) - o.start_ms)  # type: ignore[attr-defined]
    quote = quoting_all(read.files, read.events, answers)
    story = list(story_for(answers, outage.topic, outage.partition, outage.start_ms + 1, quote))  # type: ignore[attr-defined]
    assert story[0].startswith(f"{outage.topic}-{outage.partition} at 2026-11-18")  # type: ignore[attr-defined]
    assert any("without a leader from" in line for line in story)
    assert any("was controller (epoch" in line for line in story)
    assert story.index("Before:") < story.index("Afterwards:")
    assert list(story_for(answers, "nowhere", 0, 0, quote))[-1] == "  These logs do not name it."


def test_nothing_in_a_log_steers_a_reader_of_the_page(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "own\x1b[31med.log"
    path.parent.mkdir()
    path.write_bytes(b"junk \x1b]0;owned\x07 \0 \x9b2J \xe2\x80\xae<script>alert(1)</script>\n")
    read = ingest(survey(find_logs([str(path)]), "c", Zones()))
    out = tmp_path / "out"
    write_report(out, answers_for([]), lambda file_id, line_no: None, Input(read.counts, read.quarantine))
    page = (out / "report.html").read_text()
    assert r"junk \x1b]0;owned\x07 \x00" in page
    assert "own\\x1b[31med.log" in page
    assert {letter for letter in page if not letter.isprintable()} <= set("\n\t")
    assert "<script>alert" not in page
    script = page.split("<script>")[1].split("</script>")[0]
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'\"" in page
    assert page.index("Content-Security-Policy") < page.index("<title>")


def test_both_machines_are_drawn_with_how_often_each_arrow_was_taken() -> None:
    log = with_a_led_partition()
    known = {"topic": "orders", "partition": 0, "controller_epoch": 1, "peer_broker": 2, "level": "TRACE"}
    states = ("NonExistentReplica", "NewReplica", "OnlineReplica", "ReplicaDeletionSuccessful")
    for number, (before, after) in enumerate(pairwise(states)):
        log.say(6_000 + number, "replica_changed", from_state=before, to_state=after, **known)
    text = page_for(log.answers(), lambda file_id, line_no: None, Input(), "")
    drawn = text.partition('id="machines"')[2].partition("</section>")[0]
    assert drawn.count("<svg viewBox") == 2
    assert drawn.count('<path class="arrow') == len(LEGAL) + 1
    for words in (
        "NonExistentPartition to NewPartition: 1 time<",
        "OnlineReplica to ReplicaDeletionSuccessful: 1 time<",
        "OnlinePartition to OfflinePartition: not in these logs<",
        ">1 replica, 1 at the end<",
        ">1 partition, 1 at the end<",
    ):
        assert words in drawn, words
    assert '<path class="arrow odd"' in drawn
    assert "No line of these logs" not in drawn
    none = page_for(with_a_led_partition().answers(), lambda file_id, line_no: None, Input(), "")
    assert "Kafka's state-change.log has them at TRACE." in none.replace("&#x27;", "'")
