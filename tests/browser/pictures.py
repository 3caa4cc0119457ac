"""`python -m tests.browser.pictures`: the pictures of the README, taken anew of the cluster that `make up` started.

It kills the active controller by the page's own button and starts it again. Look at the pictures.

`python -m tests.browser.pictures --recorded` takes the picture of the report on the recorded KRaft cluster, for which
nothing has to run.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from click.testing import CliRunner

from sparkjobs.commands.cli import top
from tests.browser.pages import Visit, a_visit
from tests.waiting import DEADLINE_S

DOCS = Path(__file__).parents[2] / "docs"
RECORDED = Path(__file__).parents[1] / "data" / "kraft" / "4.3.1"
SIZE = {"width": 1400, "height": 1120}
SECONDS = 60


async def asked(url: str) -> Any:
    def get() -> Any:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            return json.load(answer)

    return await asyncio.to_thread(get)


async def see_a_failover(visit: Visit, controller: int) -> None:
    await visit.page.get_by_role("button", name=f"Kill broker {controller}").click()
    await visit.until("document.querySelectorAll('#stopwatch .laps .over').length === 7")
    seen = "document.querySelector('.card.gone') !== null && document.querySelector('#live .on') !== null"
    listed = "document.querySelector('#failovers').textContent.includes('noticed after')"
    charted = "document.querySelector('#charts').textContent.includes('at most 6')"
    await visit.until(f"{seen} && {listed} && {charted}")


async def take(url: str) -> None:
    brokers = {one["id"]: one for one in (await asked(f"{url}/v1/brokers"))["items"]}
    controller = (await asked(f"{url}/v1/controller"))["broker_id"]
    host = next(one for one in brokers.values() if one["id"] != controller and one["state"] == "live")
    address = f"http://{host['host']}:{host['port']}/"
    async with a_visit(**SIZE) as light, a_visit(**SIZE, scheme="dark") as dark:
        for visit in (light, dark):
            await visit.page.goto(address)
            await visit.until("document.querySelector('#live .on') !== null")
        await see_a_failover(light, controller)
        await light.page.screenshot(path=DOCS / "dashboard.png")
        await dark.until("document.querySelector('.state.bad') !== null")
        await dark.page.locator("#machines").scroll_into_view_if_needed()
        await dark.page.screenshot(path=DOCS / "state-machines.png")
        await light.page.get_by_role("button", name=f"Start broker {controller}").click()
        await light.until("document.querySelector('#verdict strong').textContent === 'Healthy'")
        assert light.complaints == dark.complaints == []


async def take_recorded() -> None:
    """The first screen of the report, to the end of the drawing."""
    with TemporaryDirectory() as out:
        words = ["report", "--engine", "local", "--cluster", "payments", "--out", out, str(RECORDED)]
        done = CliRunner().invoke(top, words)
        assert done.exit_code == 0, done.output
        async with a_visit(width=1400, height=1000) as visit:
            await visit.page.goto((Path(out) / "report.html").as_uri())
            lowest = "document.querySelector('#certain svg').getBoundingClientRect().bottom"
            height = await visit.page.evaluate(lowest)
            await visit.page.screenshot(
                path=DOCS / "kraft.png", clip={"x": 0, "y": 0, "width": 1400, "height": height + 12}, full_page=True
            )
            assert visit.complaints == []


@click.command()
@click.option("--url", default="http://127.0.0.1:8081", show_default=True, help="Any broker of the lab.")
@click.option("--recorded", is_flag=True, help="Only the report on the recorded KRaft cluster.")
def main(url: str, *, recorded: bool) -> None:
    """Take the pictures of the README."""
    asyncio.run(take_recorded() if recorded else take(url))


if __name__ == "__main__":
    main()
