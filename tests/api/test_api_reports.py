"""The report that the dashboard links, over real HTTP."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.api.api_support import (
    CONFIG,
    FakeHandle,
    View,
    asking,
)


async def test_the_last_report_is_served_as_a_page_that_may_load_nothing(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    config = msgspec.structs.replace(CONFIG, klamm_report_file=str(page))
    async with asking(View(), FakeHandle(), config=config) as client:
        async with client.get("/v1/reports/latest") as response:
            assert response.status == 404
            assert (await response.json())["code"] == "NO_REPORT"
        page.write_text("<p>Over.</p>", encoding="utf-8")
        async with client.get("/v1/reports/latest") as response:
            assert (response.status, response.content_type) == (200, "text/html")
            assert await response.text() == "<p>Over.</p>"
            policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "sandbox" in policy
    assert "frame-ancestors 'none'" in policy


async def test_where_no_report_is_configured_there_is_none() -> None:
    async with asking(View(), FakeHandle()) as client, client.get("/v1/reports/latest") as response:
        assert response.status == 404
