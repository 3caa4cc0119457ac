"""`klamm status`, `wait`, `brokers` and `partitions`: their output, pinned, and their exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from controller.cli.group import klamm
from controller.cli.options import show_repeatedly, watch_option
from controller.cli.status import bootstrap_servers_of, duration_text
from tests.api.api_support import (
    FakeHandle,
    View,
    a_broker,
    a_row,
    a_topic,
    address_of,
    reserved,
    served_in_thread,
)
from tests.processes import started
from tests.waiting import DEADLINE_S

HEALTHY = a_topic("orders", a_row(0, 1, [1, 2], [1, 2]), a_row(1, 2, [2, 1], [2, 1]))
HURT = a_topic("orders", a_row(0, 1, [1], [3, 1]), a_row(1, -1, [3], [3, 2]), a_row(2, 2, [2], [2]))
BROKERS = [a_broker(1), a_broker(2), a_broker(3, "gone")]


def run(*words: str, **env: str) -> Result:
    return CliRunner().invoke(klamm, words, env={"COLUMNS": "80", **env}, prog_name="klamm")


@pytest.fixture
def healthy() -> Iterator[str]:
    with served_in_thread((View(HEALTHY, brokers=BROKERS[:2]), FakeHandle(), reserved())) as (url,):
        yield url


@pytest.fixture
def hurt() -> Iterator[str]:
    with served_in_thread((View(HURT, brokers=BROKERS), FakeHandle(), reserved())) as (url,):
        yield url


def test_status_of_a_healthy_cluster(healthy: str) -> None:
    result = run("status", "--url", healthy)
    assert result.exit_code == 0
    assert result.stdout == (
        "cluster      cluster-of-tests\n"
        "controller   broker 1, epoch 4, for 1d 1h\n"
        "health       green\n"
        "partitions   2 online, 0 offline, 0 under-replicated, 0 not led by their first replica\n"
        "\n"
        "BROKER   STATE   ROLE         LEADERS   REPLICAS   ADDRESS\n"
        "     1   live    controller         1          2   127.0.0.1:8081\n"
        "     2   live                       1          2   127.0.0.1:8082\n"
    )


def test_status_names_the_bootstrap_servers() -> None:
    brokers = [
        {"state": "live", "endpoints": ["HTTP://h1:81", "SSL://h1:94", "PLAINTEXT://h1:91"]},
        {"state": "gone", "endpoints": ["HTTP://h2:81", "PLAINTEXT://h2:91"]},
        {"state": "draining", "endpoints": ["PLAINTEXT://[::1]:91", "SSL://[::1]:94"]},
        {"state": "live", "endpoints": ["HTTP://h4:81"]},
    ]
    assert bootstrap_servers_of(brokers) == "h1:94,[::1]:94"
    assert bootstrap_servers_of(brokers[3:]) is None


def test_status_of_a_hurt_cluster_exits_1_and_says_why(hurt: str) -> None:
    result = run("status", "--url", hurt)
    assert result.exit_code == 1
    assert result.stdout == (
        "cluster      cluster-of-tests\n"
        "controller   broker 1, epoch 4, for 1d 1h\n"
        "health       red\n"
        "             1 of 3 partitions is offline\n"
        "             1 of 3 partitions is under-replicated\n"
        "             broker 3 is gone\n"
        "partitions   2 online, 1 offline, 1 under-replicated, 1 not led by their first replica\n"
        "\n"
        "BROKER   STATE   ROLE         LEADERS   REPLICAS   ADDRESS\n"
        "     1   live    controller         1          1   127.0.0.1:8081\n"
        "     2   live                       1          2   127.0.0.1:8082\n"
        "     3   gone                       0          2   127.0.0.1:8083\n"
    )


def test_status_as_json_and_yaml_carries_every_key(hurt: str) -> None:
    result = run("status", "--url", hurt, "-o", "json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert list(document) == ["id", "controller", "counts", "status", "reasons", "bootstrap_servers", "brokers"]
    assert list(document["controller"]) == ["broker_id", "controller_epoch", "since", "age_ms", "phase", "kind"]
    assert list(document["counts"]) == [
        "brokers_live",
        "brokers_draining",
        "brokers_gone",
        "topics",
        "partitions",
        "online",
        "offline",
        "under_replicated",
        "not_preferred",
        "new",
    ]
    keys = ["id", "host", "port", "rack", "broker_epoch", "state", "leaders", "replicas", "endpoints", "refused"]
    assert [list(broker) for broker in document["brokers"]] == [keys] * 3
    assert yaml.safe_load(run("status", "--url", hurt, "-o", "yaml").stdout) == document
    assert run("status", "--url", hurt, "-o", "name").stdout == "cluster-of-tests\n"


def test_colour_is_for_terminals_and_no_color_turns_it_off(hurt: str) -> None:
    red, green = "\x1b[31m", "\x1b[32m"
    assert "\x1b" not in run("status", "--url", hurt).output
    coloured = run("status", "--url", hurt, FORCE_COLOR="1", TERM="xterm").output
    assert f"{red}gone" in coloured
    assert f"{green}live" in coloured
    plain = run("status", "--url", hurt, FORCE_COLOR="1", TERM="xterm", NO_COLOR="1").output
    assert red not in plain
    assert green not in plain


def test_status_without_a_controller_says_so() -> None:
    handle = FakeHandle()
    handle.stand_by(None)
    with served_in_thread((View(HEALTHY, brokers=BROKERS[:2]), handle, reserved())) as (url,):
        result = run("status", "--url", url)
        assert result.exit_code == 1
        assert "controller   none (the last epoch was 4)\nhealth       unknown\n" in result.stdout
        assert "no controller for " in result.stdout
        waited = run("wait", "--for", "controller", "--timeout", "0", "--url", url)
        assert (waited.exit_code, waited.stdout) == (1, "")
        assert waited.stderr == (
            "klamm: still no active controller, the last one seen is vacant; `klamm status` shows more\n"
        )


def test_a_controller_that_does_not_answer_is_noticed_before_its_session_ends() -> None:
    standby = FakeHandle()
    standby.stand_by((1, 77))
    with reserved() as dead:
        brokers = [a_broker(1, port=int(address_of(dead).partition(":")[2])), a_broker(2)]
        with served_in_thread((View(HEALTHY, brokers=brokers, own_id=2), standby, reserved())) as (url,):
            result = run("status", "--url", url)
            waits = [run("wait", "--for", what, "--timeout", "0", "--url", url) for what in ("healthy", "controller")]
    assert result.exit_code == 1
    assert "controller   broker 1, epoch 4, silent\n" in result.stdout
    assert re.search(r"health       unknown\n             no controller for \d+\.\d s\n", result.stdout)
    assert [wait.exit_code for wait in waits] == [1, 1]


def test_a_standby_asked_for_the_status_asks_the_controller_how_long() -> None:
    bound, standby = reserved(), FakeHandle()
    standby.stand_by((1, 77))
    brokers = [a_broker(1, port=int(address_of(bound).partition(":")[2])), a_broker(2)]
    processes = (View(HEALTHY, brokers=brokers, own_id=2), standby, reserved()), (View(), FakeHandle(), bound)
    with served_in_thread(*processes) as urls:
        result = run("status", "--url", urls[0])
    assert result.exit_code == 0
    assert "controller   broker 1, epoch 4, for 1d 1h\n" in result.stdout


def test_wait_returns_when_its_condition_holds(healthy: str) -> None:
    for what in ("healthy", "controller"):
        result = run("wait", "--for", what, "--url", healthy)
        assert result.exit_code == 0
        assert re.fullmatch(rf"{what} after 0\.\ds\n", result.stdout)


def test_wait_gives_up_with_the_reasons(hurt: str) -> None:
    result = run("wait", "--timeout", "300ms", "--url", hurt)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "klamm: still not healthy: 1 of 3 partitions is offline; 1 of 3 partitions is under-replicated; "
        "broker 3 is gone; `klamm status` shows more\n"
    )


@pytest.mark.parametrize("words", ["status", "topics list", "partitions", "brokers list", "wait --timeout 0"])
def test_a_cluster_that_cannot_be_reached_is_exit_3_and_one_line(words: str) -> None:
    with reserved() as bound:
        url = f"http://{address_of(bound)}"
        result = run(*words.split(), "--url", url)
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == (
        f"klamm: cannot reach a cluster at {url}; start one with `klamm up`, or name a broker with --url\n"
    )


def test_the_local_cluster_is_found_and_the_controller_is_believed(tmp_path: Path) -> None:
    standby = FakeHandle()
    standby.stand_by((1, 77))
    old = View(brokers=BROKERS)
    old.cluster_id, old.controller_epoch = "not-up-to-date", 3
    with reserved() as frozen, reserved() as dead:
        frozen.listen()  # the kernel accepts, no process answers
        processes = (old, standby, reserved()), (View(HEALTHY, brokers=BROKERS[:2]), FakeHandle(), reserved())
        with served_in_thread(*processes) as urls:
            addresses = [f"http://{address_of(frozen)}", f"http://{address_of(dead)}", *urls]
            lab = {"port_base": 8080, "brokers": {str(number): url for number, url in enumerate(addresses, start=1)}}
            (tmp_path / "lab.json").write_bytes(msgspec.json.encode(lab))
            result = run("status", "-o", "name", KLAMM_VAR=str(tmp_path))
    assert (result.exit_code, result.stdout) == (0, "cluster-of-tests\n")


def test_something_else_on_the_port_is_said_clearly() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        result = run("status", "--url", address_of(other))
    assert result.exit_code == 3


def test_brokers_as_a_table_wide_and_by_name(hurt: str) -> None:
    assert run("brokers", "list", "--url", hurt, "-o", "wide").stdout.splitlines()[0].split() == [
        "BROKER", "STATE", "ROLE", "LEADERS", "REPLICAS", "ADDRESS", "RACK", "EPOCH", "ENDPOINTS",
    ]  # fmt: skip
    assert run("brokers", "list", "--url", hurt, "-o", "name").stdout == "1\n2\n3\n"


def test_partitions_that_are_not_as_they_should_be(hurt: str) -> None:
    result = run("partitions", "--offline", "--under-replicated", "--url", hurt)
    assert (result.exit_code, result.stdout) == (
        0,
        "PARTITION   STATE              LEADER   EPOCH   ISR   REPLICAS\n"
        "orders-0    under-replicated        1       7   1     3,1\n"
        "orders-1    offline              none       7   3     3,2\n",
    )
    assert run("partitions", "--not-preferred", "--url", hurt, "-o", "name").stdout == "orders-0\n"
    assert run("partitions", "--url", hurt, "-o", "name").stdout == "orders-0\norders-1\norders-2\n"
    assert run("partitions", "--broker", "2", "--url", hurt, "-o", "name").stdout == "orders-1\norders-2\n"


def test_an_empty_list_says_so_beside_the_output(healthy: str) -> None:
    result = run("partitions", "--offline", "--url", healthy)
    assert result.stdout == "PARTITION   STATE   LEADER   EPOCH   ISR   REPLICAS\n"
    assert result.stderr == "nothing found\n"
    assert json.loads(run("partitions", "--offline", "--url", healthy, "-o", "json").stdout) == []


def test_watching_goes_on_until_interrupted() -> None:
    shown: list[int] = []

    def show() -> int:
        shown.append(1)
        if len(shown) == 3:
            raise KeyboardInterrupt
        return 1

    @click.command()
    @watch_option
    def command(watch: bool) -> None:
        sys.exit(show_repeatedly(show, watch=watch))

    assert CliRunner().invoke(command, ["--watch", "--interval", "0s"]).exit_code == 0
    assert len(shown) == 3


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m 0s"), (3_725, "1h 2m"), (90_000, "1d 1h")],
)
def test_durations_are_said_in_two_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_wait_shows_how_far_it_is_on_a_terminal_and_can_be_interrupted(hurt: str) -> None:
    """Through a terminal of its own: into a pipe nothing is shown but the end."""
    terminal, child = pty.openpty()
    words = [str(Path(sys.executable).with_name("klamm")), "wait", "--timeout", "60s", "--url", hurt]
    with started(words, stdout=child, stderr=child, stdin=child) as process:
        os.close(child)
        shown = b""
        while b"still not healthy" not in shown:
            shown += os.read(terminal, 1_000)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 1
    os.close(terminal)
