"""The examples in the help of the commands that act on processes: one after the other, each as it stands."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerstub.lab.ports import free_port
from controller.cli.group import klamm
from tests.cli.test_cli_examples import OF_THE_LAB
from tests.lab_support import free_port_base
from tests.processes import started
from tests.waiting import DEADLINE_S, waited_for

pytestmark = [pytest.mark.java, pytest.mark.slow]

KLAMM = str(Path(sys.executable).with_name("klamm"))
#: the lab's own; `run` is one process and `down` the end of all
TOUR = (
    *("up", "ps", "trouble", "rates", "kill", "start", "freeze", "thaw", "cut", "heal", "break-disk", "mend-disk"),
    "stop",
)


@pytest.fixture
def surroundings(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A working directory and the environment that takes the place of ports; nothing runs on, however the test ends."""
    zookeeper_port = str(free_port())
    environment = {
        **os.environ,
        "KLAMM_VAR": str(tmp_path / "var"),
        "KLAMM_UP_PORT_BASE": str(free_port_base(3)),
        "KLAMM_UP_KAFKA_PORT_BASE": str(free_port_base(3)),
        "KLAMM_UP_ZOOKEEPER_PORT": zookeeper_port,
    }
    (tmp_path / "server.properties").write_text(
        f"broker.id=9\nzookeeper.connect=127.0.0.1:{zookeeper_port}\nlog.dirs={tmp_path}/broker-9\n"
        f"listeners=HTTP://127.0.0.1:{free_port()}\n"
    )
    yield environment
    subprocess.run([KLAMM, "down"], env=environment, cwd=tmp_path, capture_output=True, check=True, timeout=60)


def example_of(name: str) -> list[str]:
    epilog = klamm.commands[name].epilog
    assert epilog is not None, f"`klamm {name} --help` has no example"
    words = shlex.split(epilog.splitlines()[-1])
    assert words[:2] == ["klamm", name]
    return [KLAMM, *words[1:]]


def test_every_command_of_the_lab_has_a_place_in_the_tour() -> None:
    assert set(TOUR) | {"run", "down"} == OF_THE_LAB


@pytest.mark.long
def test_the_examples_of_the_lab_run_one_after_the_other(surroundings: dict[str, str], tmp_path: Path) -> None:
    def run(words: list[str]) -> str:
        done = subprocess.run(
            words, env=surroundings, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    for name in TOUR:
        if name == "trouble":
            run([KLAMM, "topics", "create", "orders", "--partitions", "1", "--replication-factor", "3"])
        run(example_of(name))
    run([KLAMM, "start", "1", "2", "3"])
    run([KLAMM, "wait", "--for", "controller"])
    assert run([KLAMM, "kill", "controller"]).endswith(" was killed\n")
    url = (tmp_path / "server.properties").read_text().rpartition("//")[2].strip()
    with started(example_of("run"), env=surroundings, cwd=tmp_path, stderr=subprocess.PIPE) as broker:
        waited_for(lambda: broker.poll() is not None or is_ready(f"http://{url}/readyz"), "the broker is ready")
        assert broker.poll() is None, broker.stderr and broker.stderr.read().decode()
        broker.send_signal(signal.SIGTERM)
        broker.communicate(timeout=DEADLINE_S)
        assert broker.returncode == 0
    assert "processes have ended" in run(example_of("down"))


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
