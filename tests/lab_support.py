"""What tests of the lab share: a stand-in for a broker, a stand-in for ZooKeeper's port, a supervisor to talk to.

Run as a script this is the stand-in broker: it serves `/readyz` and obeys SIGTERM.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

STANDIN = f"{sys.executable} {Path(__file__).resolve()}"
DEADLINE_S = 20


def until(is_so: Callable[[], Any], what: str) -> Any:
    """The first true answer; fails when there is none in time."""
    deadline = time.monotonic() + DEADLINE_S
    while not (answer := is_so()):
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
    return answer


def free_port_base(brokers: int) -> int:
    from brokerstub.lab.zookeeper import free_port, is_free  # the script below needs none of ours

    while True:
        base = free_port()
        if all(is_free(port) for port in range(base, base + brokers + 1)):
            return base


@contextmanager
def listening() -> Iterator[socket.socket]:
    """A port that accepts connections and says nothing: enough to pass for a ZooKeeper that nobody asks."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
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
        until(lambda: self.process.poll() is not None or self._is_started(), "no lab")
        assert self.process.poll() is None, self.process.communicate()[1].decode()
        return self

    def _is_started(self) -> bool:
        from brokerstub.lab.settings import read_lab_file

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


class _StandIn(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        status = "ready" if self.path == "/readyz" else os.environ.get("STANDIN_HEALTH", "green")
        self.wfile.write(json.dumps({"status": status, "reasons": ["said the stand-in"]}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def stand_in(properties: Path) -> None:
    pairs = dict(line.split("=", 1) for line in properties.read_text().splitlines() if line[0] != "#")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with ThreadingHTTPServer(("127.0.0.1", int(pairs["listeners"].rpartition(":")[2])), _StandIn) as server:
        print("stand-in listens", flush=True)  # noqa: T201 (for its log)
        server.serve_forever()


if __name__ == "__main__":
    stand_in(Path(sys.argv[sys.argv.index("--config") + 1]))
