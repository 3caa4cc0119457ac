"""Parts for tests of the lab: a stand-in for a broker, a stand-in for ZooKeeper's port, a supervisor to talk to."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from brokerstub.lab.ports import free_ports
from brokerstub.lab.settings import read_lab_file
from tests.waiting import DEADLINE_S, waited_for

STANDIN = f"{sys.executable} {Path(__file__).resolve().with_name('standin.py')}"


def free_port_base(brokers: int) -> int:
    """A port for a supervisor, with those of its brokers right after it."""
    return free_ports(brokers + 1)


@contextmanager
def listening() -> Iterator[socket.socket]:
    """A port that accepts connections and says nothing: enough to pass for a ZooKeeper without requests. The ports
    beside it are free: a lab may be told to begin there."""
    from brokerstub.lab.ports import free_ports

    with socket.create_server(("127.0.0.1", free_ports(4) + 1)) as listener:
        yield listener


def address_of(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def pid_of(row: dict[str, Any]) -> int | None:
    return row["pid"]


class LabProcess:
    """A supervisor in a process of its own; it is killed at the end if nothing else ended it."""

    def __init__(self, var: Path, *flags: str, brokers: int = 2, command: str = STANDIN) -> None:
        self.var = var
        self.port_base = free_port_base(brokers)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "brokerstub.lab", "--var", str(var), "--brokers", str(brokers)),
                *("--port-base", str(self.port_base), "--broker-command", command, *flags),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def __enter__(self) -> LabProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.end(signal.SIGKILL)

    def started(self) -> LabProcess:
        """Wait until every broker was launched."""
        waited_for(lambda: self.process.poll() is not None or self._is_started(), "no lab")
        assert self.process.poll() is None, self.process.communicate()[1].decode()
        return self

    def _is_started(self) -> bool:
        lab_file = read_lab_file(self.var)
        return lab_file is not None and lab_file.pid == self.process.pid and None not in map(pid_of, self.brokers())

    def ask(self, verb: str, body: object = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port_base, timeout=DEADLINE_S)
        try:
            if body is None:
                connection.request("GET", f"/lab/v1/{verb}", headers=headers)
            else:
                headers = {"Content-Type": "application/json", **headers}
                connection.request("POST", f"/lab/v1/{verb}", json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def order(self, verb: str, broker: int = 1, **more: int) -> dict[str, Any]:
        status, done = self.ask(verb, {"broker": broker, **more})
        assert status == 200, done
        return done["process"] | {"changed": done["changed"]}

    def rows(self) -> list[dict[str, Any]]:
        return self.ask("ps")[1]["processes"]

    def brokers(self) -> list[dict[str, Any]]:
        return self.rows()[2:]

    def pids(self) -> list[int]:
        return [pid for pid in map(pid_of, self.rows()) if pid is not None]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode
