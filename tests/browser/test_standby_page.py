"""The dashboard of a standby while one of Kafka's own brokers is the controller, in a real browser."""

from __future__ import annotations

import pytest

from controller.wire.bodies import BrokerEntry
from tests.api.api_support import (
    FakeHandle,
    View,
    a_row,
    a_topic,
    served,
)
from tests.browser.pages import a_visit

pytestmark = pytest.mark.chromium


def a_kafka_broker(broker_id: int) -> BrokerEntry:
    return BrokerEntry(broker_id, 10 + broker_id, "live", None, (f"PLAINTEXT://127.0.0.1:{9090 + broker_id}",))


async def test_it_names_the_controller_shows_zookeepers_state_and_offers_nothing_that_only_klamm_could_do() -> None:
    brokers = [a_kafka_broker(1), a_kafka_broker(2)]
    view, handle = View(a_topic("orders", a_row(0, 2, [2, 1], [1, 2])), brokers=brokers), FakeHandle()
    view.own_broker_id, view.controller_id, view.is_led_by_kafka = 100, 2, True
    handle.stand_by((2, 77))
    async with a_visit() as visit, served(view, handle) as url:
        await visit.page.goto(url)
        await visit.until("document.querySelectorAll('.matrix-body .matrix-row').length === 1")
        assert await visit.text("#controller strong") == "broker 2"
        assert await visit.text("#controller .detail") == "one of Kafka's own · epoch 4"
        assert "`klamm takeover` claims the seat" in await visit.text("#verdict .reasons")
        assert await visit.text(".card.seat h3") == "Broker 2"
        assert await visit.page.locator(".card a").count() == 0, "no page is where Kafka's brokers listen"
        assert await visit.text("#stopwatch") == "", "nobody is away"
        for name in ("Create a topic", "Drain broker 1", "Elect preferred leaders", "Tell me"):
            assert not await visit.page.get_by_role("button", name=name).is_visible(), name
        assert await visit.grave_faults() == []
        assert visit.complaints == []
        view.is_led_by_kafka = False  # ours has it
        await visit.page.get_by_role("button", name="Create a topic").wait_for(state="visible")
