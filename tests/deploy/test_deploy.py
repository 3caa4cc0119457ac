"""The files of `deploy/` agree with each other; tests/docker proves them with a real engine."""

from __future__ import annotations

import subprocess
import sys
from fnmatch import fnmatch
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from controller.base.config import broker_config_for, parse_properties
from controller.cli.run import controller
from controller.kafka.cluster.settings import addresses_in

DEPLOY = Path(__file__).parents[2] / "deploy"


def read(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


def brokers_in(*names: str) -> dict[str, Any]:
    services = {name: each for one in names for name, each in read(one)["services"].items()}
    return {name: each for name, each in services.items() if name.startswith("broker")}


def test_every_broker_of_the_compose_files_has_a_configuration_that_is_accepted() -> None:
    common = parse_properties((DEPLOY / "server.properties").read_text(encoding="utf-8"))
    brokers = brokers_in("compose.yaml", "compose.large.yaml")
    assert len(brokers) == 12
    for number, (name, service) in enumerate(brokers.items(), start=1):
        own = service["environment"]["KLAMM_SET"].replace("${KLAMM_PORTS:-80}", "80").split()
        config = broker_config_for({**common, **parse_properties("\n".join(own))})
        assert (name, config.broker_id) == (f"broker{number}", number)
        published = f"127.0.0.1:80{80 + number}"
        assert config.advertised_listeners == f"HTTP://{published},BROKERS://{name}.cluster:9090"
        assert service["ports"] == [published.replace(":80", ":${KLAMM_PORTS:-80}", 1) + ":8080"]
        assert service["networks"]["cluster"]["aliases"] == [f"{name}.cluster"]


def test_everything_is_published_on_loopback_only() -> None:
    for name in ("compose.yaml", "compose.large.yaml"):
        for service in read(name)["services"].values():
            assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_no_container_has_a_capability_or_a_way_to_gain_one() -> None:
    for name in ("compose.yaml", "compose.large.yaml"):
        for service_name, service in read(name)["services"].items():
            base = service.get("extends")
            inherited = {} if base is None else read(base["file"])["services"][base["service"]]
            whole = {**inherited, **service}
            assert whole.get("cap_drop") == ["ALL"], service_name
            assert whole.get("security_opt") == ["no-new-privileges:true"], service_name


def test_a_container_without_a_health_check_does_not_make_waiting_fail() -> None:
    """`docker compose up --wait` refuses a container whose health check is disabled; it waits until others run."""
    for name in ("compose.yaml", "compose.large.yaml"):
        for service_name, service in read(name)["services"].items():
            assert "disable" not in service.get("healthcheck", {}), service_name
    assert "HEALTHCHECK" not in (DEPLOY / "spark" / "Dockerfile").read_text(encoding="utf-8"), "not of each service"


def test_every_file_that_a_container_is_given_is_there() -> None:
    mounts = [one for service in read("compose.yaml")["services"].values() for one in service.get("volumes", [])]
    given = [one.partition(":")[0] for one in mounts if one.startswith("./")]
    assert len(given) == 4
    assert [one for one in given if not (DEPLOY / one).exists()] == []


def test_a_stream_reads_the_brokers_logs_keeps_the_aggregates_that_they_serve_and_no_service_waits_for_it() -> None:
    services = read("compose.yaml")["services"]
    [*_, logs, _, out] = services["aggregates"]["command"]
    assert all(fnmatch(f"{folder}/state-change.log", logs) for folder in _log_folders())
    config = broker_config_for(parse_properties((DEPLOY / "server.properties").read_text(encoding="utf-8")))
    assert config.klamm_aggregates_file == f"{out}/aggregates.json"
    assert f"aggregates:{out}" in services["aggregates"]["volumes"]
    assert f"aggregates:{out}:ro" in read("common.yaml")["services"]["broker"]["volumes"]
    assert services["aggregates"].keys().isdisjoint({"profiles", "depends_on", "ports"})
    assert not any("aggregates" in service.get("depends_on", ()) for service in services.values())
    assert "healthcheck" not in services["aggregates"]


def _log_folders() -> list[str]:
    said = " ".join(service["environment"]["KLAMM_SET"] for service in brokers_in("compose.yaml").values())
    folders = [word.removeprefix("log.dirs=") for word in said.split() if word.startswith("log.dirs=")]
    assert len(folders) == 3
    return folders


def test_prometheus_scrapes_every_broker_and_grafana_asks_that_prometheus() -> None:
    targets = read("prometheus.yaml")["scrape_configs"][0]["static_configs"][0]["targets"]
    assert targets == [f"{name}.cluster:9090" for name in brokers_in("compose.yaml")]
    source = read("grafana/provisioning/datasources/prometheus.yaml")["datasources"][0]
    aliases = read("compose.yaml")["services"]["prometheus"]["networks"]["cluster"]["aliases"]
    assert (source["type"], source["url"]) == ("prometheus", f"http://{aliases[0]}:9090")


def test_containers_and_systemd_wait_for_a_controlled_shutdown() -> None:
    """Three attempts, 5 s apart, are Kafka's defaults."""
    config = broker_config_for(parse_properties((DEPLOY / "server.properties").read_text(encoding="utf-8")))
    needed_s = config.controlled_shutdown_max_retries * config.controlled_shutdown_retry_backoff_ms / 1_000
    assert read("common.yaml")["services"]["broker"]["stop_grace_period"] == "45s"
    assert "TimeoutStopSec=45s" in (DEPLOY / "klamm.service").read_text(encoding="utf-8")
    assert needed_s + 15 < 45


def test_the_unit_of_a_dedicated_controller_is_a_command_that_is_taken_and_writes_where_it_may() -> None:
    lines = (DEPLOY / "klamm-controller.conf").read_text(encoding="utf-8").splitlines()
    *cleared, started = [line.partition("=")[2] for line in lines if line.startswith("ExecStart=")]
    assert cleared == [""], "systemd adds a command to those of the unit unless they are cleared"
    _, name, *words = started.split()
    context = controller.make_context(name, words)
    assert addresses_in(context.params["listen"])
    assert context.params["data_dir"] == Path("/var/lib/klamm")
    assert "StateDirectory=klamm" in (DEPLOY / "klamm.service").read_text(encoding="utf-8")


@pytest.mark.parametrize("extras", [[], ["spark"]])
def test_an_image_installs_all_that_it_wants_by_the_hashes_of_the_lock(extras: list[str]) -> None:
    """With `--no-deps`, so every dependency of a package has to be in the lock."""
    said = subprocess.run(
        [sys.executable, "deploy/locked.py", *extras], cwd=DEPLOY.parent, capture_output=True, text=True, check=True
    ).stdout
    stanzas = [Requirement(line.removesuffix(" \\")) for line in said.splitlines() if not line.startswith(" ")]
    pinned = {
        one.name: str(one.specifier).removeprefix("==")
        for one in stanzas
        if one.marker is None or one.marker.evaluate()
    }
    assert said.count("--hash=sha256:") >= len(pinned) > 20
    assert {name: version(name) for name in pinned} == pinned
    asked = [Requirement(one) for name in pinned for one in requires(name) or []]
    missing = {
        one.name for one in asked
        if (one.marker is None or one.marker.evaluate({"extra": ""})) and canonicalize_name(one.name) not in pinned
    }  # fmt: skip
    assert missing == set()
    assert ("pyspark" in pinned) == ("spark" in extras)


def test_no_image_installs_anything_but_by_a_hash_or_from_the_sources_here() -> None:
    installs = [
        line.strip().removeprefix("&& ").removeprefix("RUN ")
        for path in (DEPLOY / "Dockerfile", DEPLOY / "spark" / "Dockerfile")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "pip install" in line
    ]
    assert len(installs) == 4
    for one in installs:
        assert "--no-deps" in one
        assert "--require-hashes -r locked.txt" in one or "--no-build-isolation ." in one
