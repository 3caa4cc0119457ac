"""The report in a real browser: readable in light and dark, on a phone and on paper; foreign markup stays text."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from sparkjobs.commands.inputs import inputs_of
from sparkjobs.report.page import Input
from sparkjobs.report.write import write_report
from sparkjobs.rules.rules import Answers
from tests.browser.pages import PICTURES, Visit, a_visit
from tests.spark.plain import answers_for, quoting_all
from tests.spark.reading import silver_of

pytestmark = pytest.mark.chromium

RECORDED = Path(__file__).parents[1] / "data" / "kafka-3.9.1-info"
TS = "2026-11-18 07:49:10,504"
HOSTILE = "<img src=x onerror=\"document.title='obeyed'\"><script>document.title='obeyed'</script>"


def report_of(logs: Path, out: Path, cluster: str = "shop") -> Path:
    bundle = inputs_of([str(logs)], cluster, [], None)
    silver = silver_of(bundle)
    answers: Answers = answers_for(silver.ingested.events)
    read = Input(silver.ingested.counts, silver.ingested.quarantine, silver.skew)
    return write_report(out, answers, quoting_all(bundle.files, silver.ingested.events, answers), read)


@cache
def recorded(out: Path) -> Path:
    return report_of(RECORDED, out)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return recorded(tmp_path_factory.mktemp("report")).as_uri()


async def opened(visit: Visit, address: str) -> None:
    await visit.page.goto(address)
    assert [url for url in visit.urls if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in visit.urls if url.startswith("file:")]) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_loads_nothing_and_axe_finds_nothing_grave(page: str, scheme: str) -> None:
    async with a_visit(scheme=scheme) as visit:
        await opened(visit, page)
        await visit.picture(f"report-{scheme}", is_whole=False)
        assert await visit.grave_faults() == []
        assert visit.complaints == []


async def test_the_first_screen_answers_what_people_ask(page: str) -> None:
    async with a_visit(width=1280, height=800) as visit:
        await opened(visit, page)
        asked = visit.page.locator(".asked dt")
        assert await asked.all_inner_texts() == [
            *("Is it over?", "Which partitions?", "Since when?", "Was data lost?", "Who was controller?"),
            *("Which broker first?", "Did it flap?"),
        ]
        last = await visit.page.locator(".asked dd").last.bounding_box()
        assert last is not None
        assert last["y"] + last["height"] < 800
        assert (await visit.text(".verdict strong")).startswith("Over, but data may be lost")


async def test_on_a_phone_nothing_sticks_out(page: str) -> None:
    async with a_visit(width=390, height=844) as visit:
        await opened(visit, page)
        await visit.picture("report-phone", is_whole=False)
        assert await visit.page.evaluate("document.documentElement.scrollWidth") <= 390
        for told in ("#findings", "#timeline"):  # nor is a sentence cut: there is nothing to scroll sideways to
            assert await visit.page.locator(f"{told} .wide").evaluate("one => one.scrollWidth - one.clientWidth") == 0


async def test_on_paper_it_is_all_there_without_its_buttons(page: str) -> None:
    async with a_visit() as visit:
        await opened(visit, page)
        await visit.page.emulate_media(media="print")
        hidden = await visit.page.evaluate("[...document.querySelectorAll('tr')].filter(r => !r.offsetHeight).length")
        assert hidden == 0
        assert not await visit.page.locator("nav").is_visible()
        PICTURES.mkdir(parents=True, exist_ok=True)
        assert len(await visit.page.pdf(path=PICTURES / "report.pdf")) > 10_000
        assert await visit.page.locator("details").count() > 0
        assert await visit.page.locator("details:not([open])").count() == 0


async def test_long_tables_open_out_filter_and_sort(page: str) -> None:
    async with a_visit() as visit:
        await opened(visit, page)
        rows = visit.page.locator("#outages tbody tr:not([hidden])")
        assert await rows.count() == 20
        await visit.page.locator("#outages input").fill("orders-1-")
        assert {name.rpartition("-")[0] for name in await rows.locator("td:first-child").all_inner_texts()} == {
            "orders-1"
        }
        await visit.page.locator("#outages input").fill("")
        await visit.page.locator("#outages button").click()
        assert await rows.count() > 100
        await visit.page.locator("#outages th", has_text="length").click()
        lengths = await rows.locator("td:nth-child(4)").evaluate_all("cells => cells.map(c => Number(c.dataset.v))")
        assert lengths == sorted(lengths)


async def test_markup_in_a_log_is_shown_and_never_obeyed(tmp_path: Path) -> None:
    logs = tmp_path / HOSTILE.replace("/", "_") / "broker1"
    logs.mkdir(parents=True)
    prefix = f"[{TS}] INFO [Controller id=1 epoch=3]"
    lines = [
        f"{prefix} Changed partition a-0 state from OnlinePartition to OfflinePartition (state.change.logger)",
        f"{prefix} Ignored {HOSTILE} (state.change.logger)",
        f"[{TS}] INFO [Controller id=1] 1 successfully elected as the controller. Epoch incremented to 3 and epoch zk "
        f"version is now 3 {HOSTILE} (kafka.controller.KafkaController)",
        f"[{TS}] ERROR [Controller id=1 epoch=3] Controller 1 epoch 3 failed to change state for partition a-1 from "
        f"OfflinePartition to OnlinePartition {HOSTILE} (state.change.logger)",
        HOSTILE,
    ]
    (logs / "state-change.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    page = report_of(tmp_path, tmp_path / "out", cluster=HOSTILE)
    async with a_visit() as visit:
        await opened(visit, page.as_uri())
        await visit.until("document.readyState === 'complete'")
        await visit.page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        assert await visit.page.title() == f"What happened: {HOSTILE}"
        assert await visit.page.locator("img").count() == 0
        assert await visit.page.locator("script").count() == 1
        assert "onerror" in await visit.page.inner_text("#findings")
