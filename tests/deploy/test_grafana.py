"""The dashboard and the alert rules for Prometheus and Grafana use only exposed series."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from controller.tell.outbox import OutboxStatus
from controller.term.term import TermRecord
from tests.api.api_support import FakeHandle
from tests.api.test_metrics import (
    HURT,
    a_standby_handle,
    an_active_handle,
    scraped,
)

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"
DASHBOARD = FOLDER / "klamm.json"
RULES = FOLDER / "alerts.yaml"
NAME = re.compile(r"\b(?:kafka|klamm|process)_\w+")


def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text(encoding="utf-8"))


def rules() -> list[Any]:
    return [rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from strings_in(one)


def a_busy_handle() -> FakeHandle:
    """Each family has a sample."""
    handle = an_active_handle()
    handle.owed = {1: OutboxStatus(101, 3, 40, None)}
    handle.terms = [TermRecord(4, 1, 3, None, None, {"claimed": 20.0})]
    with handle.meters.handling("an event"):
        pass
    return handle


async def exposed(handle: FakeHandle) -> set[str]:
    return {name for name, _ in await scraped(HURT, handle)}


async def test_every_metric_of_the_dashboard_is_exposed() -> None:
    used = {name for text in strings_in(dashboard()) for name in NAME.findall(text)}
    assert len(used) > 20
    assert used <= await exposed(a_busy_handle())


async def test_every_metric_of_the_alert_rules_is_exposed() -> None:
    used = {name for rule in rules() for name in NAME.findall(rule["expr"])}
    assert used
    assert used <= await exposed(a_busy_handle())


async def test_alerts_about_a_cluster_need_no_active_controller_to_be_scraped() -> None:
    """They would fall silent when it is needed most."""
    [rule] = [rule for rule in rules() if rule["alert"] == "KlammNoController"]
    assert set(NAME.findall(rule["expr"])) <= await exposed(a_standby_handle())


def test_every_alert_names_the_trouble_and_a_remedy() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]


def test_no_two_panels_lie_upon_each_other() -> None:
    cells = [
        (x, y)
        for panel in dashboard()["panels"]
        for at in (panel["gridPos"],)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
    assert len({panel["id"] for panel in dashboard()["panels"]}) == len(dashboard()["panels"])
