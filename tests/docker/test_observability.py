"""Prometheus of the profile `observability` scrapes a live cluster: its configuration, our alert rules and dashboard.

Grafana itself is not run: the queries of its dashboard go to that Prometheus.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.docker.alerts import FIRES, unit_tests
from tests.docker.cluster import Cluster, until
from tests.docker.compose import DEPLOY, beside
from tests.docker.files import put
from tests.docker.invariants import watched

pytestmark = pytest.mark.docker

SERVICE = "prometheus"


@pytest.fixture
def prometheus(cluster: Cluster) -> Iterator[Cluster]:
    with beside(cluster, "observability", SERVICE):
        until(lambda: get(cluster, "targets"), "Prometheus answers")
        yield cluster


def get(cluster: Cluster, path: str, **query: str) -> Any:
    """The data of an answer of Prometheus; None while there is none."""
    url = f"{cluster.url(95 - 80)}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return json.load(response)["data"]
    except urllib.error.HTTPError as error:
        if error.code == 503:
            return None  # it is starting
        raise AssertionError(f"{url}: {error.read().decode()}") from None
    except OSError:
        return None


def ups(cluster: Cluster) -> dict[str, str]:
    return {one["labels"]["instance"]: one["health"] for one in get(cluster, "targets")["activeTargets"]}


def alerts(cluster: Cluster) -> dict[str, str]:
    return {one["labels"]["alertname"]: one["state"] for one in get(cluster, "alerts")["alerts"]}


def rules(cluster: Cluster) -> list[Any]:
    return [rule for group in get(cluster, "rules")["groups"] for rule in group["rules"]]


def test_prometheus_scrapes_every_broker_and_a_dead_one_raises_the_alert(prometheus: Cluster) -> None:
    cluster = prometheus
    brokers = [f"broker{one}.cluster:9090" for one in cluster.broker_ids]
    until(lambda: ups(cluster) == dict.fromkeys(brokers, "up"), "every broker is scraped")
    written = yaml.safe_load((DEPLOY / "grafana" / "alerts.yaml").read_text(encoding="utf-8"))
    names = {rule["alert"] for group in written["groups"] for rule in group["rules"]}
    until(lambda: {rule["health"] for rule in rules(cluster)} == {"ok"}, "every rule was evaluated")
    assert {rule["name"] for rule in rules(cluster)} == names == set(FIRES)
    until(lambda: alerts(cluster) == {}, "nothing is wrong")
    with watched(cluster):
        holder, _ = until(cluster.seat, "a broker holds the seat")
        victim = next(one for one in cluster.broker_ids if one != holder)
        cluster.kill(f"broker{victim}")
        until(lambda: {"KlammBrokerGone", "KlammUnderReplicatedPartitions"} <= alerts(cluster).keys(), "it is missed")
        assert ups(cluster)[f"broker{victim}.cluster:9090"] == "down"
        cluster.start(f"broker{victim}")
    until(lambda: alerts(cluster) == {}, "all is well again")


def test_every_panel_of_the_dashboard_queries_series_that_prometheus_has(prometheus: Cluster) -> None:
    cluster = prometheus
    dashboard = json.loads((DEPLOY / "grafana" / "klamm.json").read_text(encoding="utf-8"))
    panels = [one for panel in dashboard["panels"] for one in (panel, *panel.get("panels", ()))]
    asked = {target["expr"] for panel in panels for target in panel.get("targets", ())}
    assert len(asked) > 20
    filled_in = [text.replace("$job", "klamm").replace("[5m]", "[30s]") for text in sorted(asked)]
    assert [text for text in filled_in if "$" in text] == []
    for text in filled_in:
        until(lambda asked=text: get(cluster, "query", query=asked)["result"], f"there is an answer to {text}")


def test_promtool_takes_the_configuration_and_every_alert_fires_when_it_should_and_not_before(
    prometheus: Cluster,
) -> None:
    container = prometheus.container(SERVICE)
    checked = container.exec_run(["promtool", "check", "config", "/etc/prometheus/prometheus.yml"])
    assert checked.exit_code == 0, checked.output.decode()
    written = yaml.safe_load((DEPLOY / "grafana" / "alerts.yaml").read_text(encoding="utf-8"))
    put(container, "/prometheus/tests.yaml", yaml.safe_dump(unit_tests(written)))
    tested = container.exec_run(["promtool", "test", "rules", "/prometheus/tests.yaml"])
    assert tested.exit_code == 0, tested.output.decode()
