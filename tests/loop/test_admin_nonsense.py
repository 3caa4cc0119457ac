"""Nonsense in nodes that operators and brokers write: reported once, removed where it is a request, fatal to none."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from controller.core.codes import Code
from controller.core.events import CreateTopicAsked
from tests.loop.admin_site import (
    CHANGES,
    ELECTION,
    LOG_DIR_EVENTS,
    REASSIGN,
    a_site,
    leading,
)
from tests.support.harness import settled, until

NONSENSE = {
    "cut": b'{"version":1,"partitions":[{"topic":"orders"',
    "types": b'{"version":1,"partitions":[{"topic":"orders","partition":"0","replicas":"1"}],"config":[],"broker":"1"}',
    "no object": b"[]",
    "empty": b"",
    "no text": b"\xff\xfe\x00",
    "deep": b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}
REQUESTS = [(ELECTION, False), (REASSIGN, False)]
ANNOUNCEMENTS = [
    (f"{LOG_DIR_EVENTS}/log_dir_event_", True),
    ("/isr_change_notification/isr_change_", True),
    (f"{CHANGES}/config_change_", True),
]


@pytest.mark.parametrize("data", NONSENSE.values(), ids=NONSENSE)
@pytest.mark.parametrize(("path", "sequential"), REQUESTS + ANNOUNCEMENTS)
async def test_nonsense_is_reported_once_and_stops_no_other(path: str, sequential: bool, data: bytes) -> None:
    site = await a_site()
    with capture_logs() as logs:
        async with leading(site) as node:
            made = await site.write(path, data, sequential=sequential)
            if not made.startswith(CHANGES):  # those go after 15 minutes
                await until(lambda: site.server.read(made) is None)
            await settled()
            assert (await node.ask(CreateTopicAsked("users", assignment={0: (1, 2)}))).code is Code.NONE
            assert node.handle.controller_epoch == 1
    reports = [log for log in logs if log["event"] in ("subject.left_out", "notification.unreadable")]
    assert len(reports) == 1
    assert made in str(reports[0])


@pytest.mark.parametrize("data", NONSENSE.values(), ids=NONSENSE)
async def test_nonsense_that_lay_there_before_the_term_stops_no_controller(data: bytes) -> None:
    """KAFKA-4914."""
    site = await a_site()
    for path in ("/klamm", "/klamm/draining", "/klamm/failed_dirs", "/klamm/terms"):
        await site.write(path, b"")
    ours = ("/klamm/draining/1", "/klamm/failed_dirs/1", "/klamm/terms/3", "/klamm/terms/none")
    for path in (*ours, "/config/topics/orders", "/config/brokers/<default>", "/admin/delete_topics/nothing"):
        await site.write(path, data)
    for path, sequential in REQUESTS + ANNOUNCEMENTS:
        await site.write(path, data, sequential=sequential)
    async with leading(site) as node:
        for path, _ in REQUESTS:
            await until(lambda path=path: site.server.read(path) is None)  # type: ignore[misc]
        await until(lambda: site.names(LOG_DIR_EVENTS) == site.names("/isr_change_notification") == [])
        await site.topic("orders", [1, 2])
        reported = [line.reason for line in node.heard.lines if line.target == "reported"]
        assert len([reason for reason in reported if ELECTION in (reason or "")]) == 1
        assert len([reason for reason in reported if REASSIGN in (reason or "")]) == 1
        assert node.handle.controller_epoch == 4, "above the recorded term, whatever its content"
