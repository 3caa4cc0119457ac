"""The tour of deploy/README.md: up, a topic, the controller killed, another one leads, and it comes back."""

from __future__ import annotations

import re

import pytest

from tests.docker.cluster import Cluster, until
from tests.docker.invariants import watched

pytestmark = pytest.mark.docker


def test_the_tour_in_containers(cluster: Cluster) -> None:
    with watched(cluster):
        assert "state        online" in cluster.klamm(
            1, "topics", "create", "orders", "--partitions", "6", "--replication-factor", "3"
        )
        holder, epoch = until(cluster.seat, "a broker holds the seat")
        other = next(broker_id for broker_id in cluster.broker_ids if broker_id != holder)
        cluster.kill(f"broker{holder}")
        successor, successor_epoch = until(
            lambda: (seat := cluster.seat()) is not None and seat[1] > epoch and seat, "another broker takes the seat"
        )
        assert (successor != holder, successor_epoch) == (True, epoch + 1)
        cluster.klamm(other, "wait", "--for", "controller", "--timeout", "20s")
        table = cluster.klamm(other, "partitions", "--topic", "orders")
        assert len(re.findall(r"orders-\d +under-replicated", table)) == 6

        cluster.start(f"broker{holder}")
        cluster.klamm(other, "wait", "--for", "healthy", "--timeout", "60s")
        orders = [set(state.isr) for (topic, _), state in cluster.told(other).items() if topic == "orders"]
        assert orders == [{1, 2, 3}] * 6
    history = cluster.klamm(successor, "history")
    assert re.search(rf"^ +{epoch} +{holder} .* session gone", history, re.MULTILINE), history


def test_every_broker_sends_a_browser_on_the_host_to_the_controllers_published_port(cluster: Cluster) -> None:
    import http.client

    holder, _ = until(cluster.seat, "a broker holds the seat")
    for broker_id in cluster.broker_ids:
        connection = http.client.HTTPConnection(cluster.url(broker_id).removeprefix("http://"), timeout=10)
        connection.request("GET", "/v1/reassignments")
        response = connection.getresponse()
        response.read()
        expected = 200 if broker_id == holder else 307
        assert response.status == expected
        if expected == 307:
            assert response.headers["Location"] == f"{cluster.url(holder)}/v1/reassignments"
        connection.close()


def test_a_health_check_costs_less_than_50_ms_of_cpu(cluster: Cluster) -> None:
    """Without curl and without a JVM: measured on the very command, in the container."""
    for service in ("broker1", "zookeeper1"):
        container = cluster.container(service)
        command = container.attrs["Config"]["Healthcheck"]["Test"]
        assert command[0] == "CMD"
        times = container.exec_run(
            ["bash", "-c", 'for _ in 1 2 3 4 5; do "$@" || exit 1; done; times', "_", *command[1:]]
        )
        assert times.exit_code == 0, times.output
        minutes_and_seconds = re.findall(r"(\d+)m([\d.]+)s", times.output.decode().splitlines()[-1])
        cpu_s = sum(int(minutes) * 60 + float(seconds) for minutes, seconds in minutes_and_seconds)
        assert cpu_s / 5 < 0.05
