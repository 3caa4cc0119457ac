"""A page in Debian's Chromium, driven by Playwright: its complaints and its requests are kept.

Pictures go to `var/screenshots`: artefacts to be looked at by people. This module does not know the dashboard.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, async_playwright

from tests.waiting import until

COMMANDS: Final = ("chromium", "chromium-browser", "google-chrome")
PICTURES: Final = Path(__file__).parents[2] / "var" / "screenshots"
DEADLINE_MS: Final = 60_000
POLL_S: Final = 0.03
GRAVE: Final = ("serious", "critical")


class Visit:
    """One page; its messages on the console and every address that it loads."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.urls: list[str] = []
        page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.urls.append(request.url))

    async def until(self, expression: str) -> None:
        """Until a JavaScript expression is true. Asked from here: the page's policy lets it evaluate no text."""
        await until(lambda: self.page.evaluate(expression), f"{expression}; {self.complaints}", poll_s=POLL_S)

    async def text(self, selector: str) -> str:
        return (await self.page.locator(selector).first.inner_text()).strip()

    async def picture(self, name: str, *, is_whole: bool = True) -> Path:
        PICTURES.mkdir(parents=True, exist_ok=True)
        path = PICTURES / f"{name}.png"
        await self.page.screenshot(path=path, full_page=is_whole)
        return path

    async def grave_faults(self) -> list[str]:
        """Return the findings of axe that are serious or critical: rule, and place."""
        found: dict[str, Any] = (await Axe().run(self.page)).response
        assert found["passes"], "axe looked at nothing"
        return [
            f"{fault['id']} ({fault['impact']}): {node['target']} {node['failureSummary']}"
            for fault in found["violations"]
            if fault["impact"] in GRAVE
            for node in fault["nodes"]
        ]

    def foreign_brokers(self, *hosts: str) -> list[str]:
        """Addresses asked that belong to none of these."""
        ours = tuple(f"http://{host}/" for host in hosts)
        return [url for url in self.urls if not url.startswith(ours) and not re.match("(about|blob|data):", url)]


@asynccontextmanager
async def a_visit(
    *, width: int = 1280, height: int = 900, scheme: str = "light", flags: Sequence[str] = ()
) -> AsyncIterator[Visit]:
    """An empty page in a browser of its own; both end with the scope."""
    command = next(found for name in COMMANDS if (found := shutil.which(name)))
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=command, args=["--no-sandbox", *flags])
        try:
            page = await browser.new_page(
                viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
            )
            page.set_default_timeout(DEADLINE_MS)
            yield Visit(page)
        finally:
            await browser.close()
