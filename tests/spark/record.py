"""Clusters of our own, recorded under faults: `.venv/bin/python -m tests.spark.record deaths FOLDER`.

The command `klamm` starts a cluster in a folder of its own and harms it, as somebody at a terminal would. What is left
in FOLDER are the logs of each broker, every write of ZooKeeper, and the times of the faults, in the form of
`tests/data/kafka-older`. `tests/data/klamm` was made by it; it judges nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from brokerstub.lab import remote
from brokerstub.lab.bodies import Order
from brokerstub.lab.ports import free_port
from sparkjobs.records.zookeeper_files import history
from tests.faults.chaos.target_cluster import elapse
from tests.lab_support import free_port_base
from tests.real_brokers.record import compress, line_of

SESSION_MS: Final = 4_000
AWAY_S: Final = 8.0
CALM_S: Final = 2.0
_KLAMM: Final = (sys.executable, "-c", "from controller.cli import main; main()")


def _let_pass(seconds: float) -> None:
    """Real time: the length of a fault."""
    asyncio.run(elapse(seconds))


class Recorder:
    """One recording."""

    def __init__(self, play: str, folder: Path, work: Path) -> None:
        self.folder, self.var = folder, work / "var"
        self.play, self.brokers = {
            "deaths": (self._deaths, 3),
            "cuts": (self._cuts, 5),
            "moves": (self._moves, 4),
        }[play]
        self.timeline: list[dict[str, Any]] = []
        self.dead = set[int]()

    def record(self) -> None:
        base = str(free_port_base(self.brokers))
        ports = ("--port-base", base, "--kafka-port-base", str(free_port_base(self.brokers)))
        zookeeper = ("--zookeeper-port", str(free_port()), "--session-timeout-ms", str(SESSION_MS))
        try:
            self._klamm("up", "--brokers", str(self.brokers), *ports, *zookeeper, "--no-records", "--timeout", "120s")
            self._note("up")
            for name, partitions, replicas in (("orders", 6, 3), ("pay_0.x", 6, 2), ("single", 3, 1)):
                self._note("create", topic=name)
                self._klamm(
                    "topics", "create", name, "--partitions", str(partitions), "--replication-factor", str(replicas)
                )
            self._healthy()
            self.play()
            self._note("end")
        finally:
            self._klamm("down")
        self._write()

    def _deaths(self) -> None:
        """A broker, then the controller: killed, frozen for longer than its session, stopped; a topic deleted."""
        for away in (self._kill, self._freeze, self._stop):
            for is_controller in (False, True):
                _let_pass(CALM_S)
                seat = self._seat()
                away(seat if is_controller else min({*range(1, self.brokers + 1)} - {seat}))
                self._healthy()
        _let_pass(CALM_S)
        self._delete("pay_0.x")

    def _cuts(self) -> None:
        """A broker, then the controller, cut off from ZooKeeper; two brokers dead at once, then the controller and
        another, so that some partitions lose all their replicas."""
        for is_controller in (False, True):
            _let_pass(CALM_S)
            seat = self._seat()
            broker = seat if is_controller else min({*range(1, self.brokers + 1)} - {seat})
            self._note("cut", broker=broker)
            self._order("cut", broker)
            _let_pass(AWAY_S)
            self._note("heal", broker=broker)
            self._order("heal", broker)
            self._healthy()
        _let_pass(CALM_S)
        seat = self._seat()
        one, other = sorted({*range(1, self.brokers + 1)} - {seat})[:2]
        self._die(one)
        _let_pass(CALM_S)
        self._die(other)
        _let_pass(AWAY_S)
        self._start(other)
        _let_pass(AWAY_S / 2)
        self._start(one)
        self._healthy()
        _let_pass(CALM_S)
        seat = self._seat()
        self._die(seat)
        self._die(min({*range(1, self.brokers + 1)} - {seat}))
        _let_pass(AWAY_S)
        for broker in sorted(self.dead):
            self._start(broker)
        self._healthy()
        _let_pass(CALM_S)

    def _moves(self) -> None:
        """Replicas moved while a broker dies; a topic grown; one deleted while a broker is away; a broker drained; an
        unclean election."""
        _let_pass(CALM_S)
        seat = self._seat()
        away = max({*range(1, self.brokers + 1)} - {seat})
        moved = {number: [1 + (number + place) % self.brokers for place in range(3)] for number in range(6)}
        rows = [{"topic": "orders", "partition": number, "replicas": moved[number]} for number in moved]
        plan = {"version": 1, "partitions": rows}
        (self.var / "plan.json").write_text(json.dumps(plan))
        self._note("reassign", topic="orders")
        self._klamm("reassign", "execute", str(self.var / "plan.json"))
        self._klamm("wait", "--for", "no-reassignments", "--timeout", "60s")
        self._note("grow", topic="single", to=6)
        self._klamm("topics", "grow", "single", "--partitions", "6")
        _let_pass(CALM_S)
        self._die(away)
        _let_pass(AWAY_S)
        self._delete("pay_0.x")
        _let_pass(CALM_S)
        self._start(away)
        self._healthy()
        _let_pass(CALM_S)
        self._note("drain", broker=away)
        self._klamm("drain", str(away))
        _let_pass(CALM_S)
        self._klamm("undrain", str(away))
        seat = self._seat()
        pair = sorted({*range(1, self.brokers + 1)} - {seat})[:2]
        self._note("create", topic="pair")
        replicas = ":".join(map(str, pair))
        self._klamm("topics", "create", "pair", "--assignment", f"{replicas},{replicas}")
        self._healthy()
        _let_pass(CALM_S)
        self._die(pair[1])
        _let_pass(AWAY_S)
        self._die(pair[0])
        _let_pass(AWAY_S)
        self._start(pair[1])
        _let_pass(CALM_S)
        self._note("elect_unclean", topic="pair")
        self._klamm("elect", "--type", "unclean", "--topic", "pair", "--partition", "0")
        _let_pass(CALM_S)
        self._start(pair[0])
        self._healthy()
        _let_pass(CALM_S)

    def _kill(self, broker: int) -> None:
        self._die(broker)
        _let_pass(AWAY_S)
        self._start(broker)

    def _die(self, broker: int) -> None:
        self._note("kill", broker=broker)
        self._order("kill", broker)
        self.dead.add(broker)

    def _freeze(self, broker: int) -> None:
        self._note("freeze", broker=broker)
        self._order("freeze", broker)
        _let_pass(AWAY_S)
        self._note("thaw", broker=broker)
        self._order("thaw", broker)
        _let_pass(CALM_S)  # it may still be registered as before

    def _stop(self, broker: int) -> None:
        self._note("stop", broker=broker)
        self._order("stop", broker)
        self._note("stopped", broker=broker)
        _let_pass(AWAY_S / 2)
        self._start(broker)

    def _start(self, broker: int) -> None:
        self._note("start", broker=broker)
        self._order("start", broker)
        self.dead.discard(broker)

    def _delete(self, name: str) -> None:
        self._note("delete", topic=name)
        self._klamm("topics", "delete", name)
        _let_pass(CALM_S)

    def _seat(self) -> int:
        """The broker that is the controller."""
        self._klamm("wait", "--for", "controller", "--timeout", "60s")
        status = json.loads(self._klamm("status", "-o", "json", may_be_unhealthy=True))
        return int(status["controller"]["broker_id"])

    def _healthy(self) -> None:
        self._klamm("wait", "--for", "healthy", "--timeout", "120s")

    def _note(self, what: str, **more: Any) -> None:
        self.timeline.append({"at_ms": time.time_ns() // 1_000_000, "what": what, **more})

    def _order(self, verb: str, broker: int) -> None:
        """At once: a command of its own would take a moment to start."""
        remote.order(self.var, verb, Order(broker))

    def _klamm(self, *words: str, may_be_unhealthy: bool = False) -> str:
        environment = {**os.environ, "KLAMM_VAR": str(self.var)}
        done = subprocess.run((*_KLAMM, *words), capture_output=True, text=True, check=False, env=environment)
        if done.returncode and not (may_be_unhealthy and done.returncode == 1):
            raise RuntimeError(f"klamm {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def _write(self) -> None:
        """Without the paths of this machine."""
        for folder in sorted(self.var.glob("broker-*")):
            own = self.folder / f"broker{folder.name.removeprefix('broker-')}"
            own.mkdir(parents=True, exist_ok=True)
            for log in sorted(folder.glob("state-change.log*")):
                compress(own / f"{log.name}.gz", log.read_bytes().replace(bytes(self.var), b"/var/lib/klamm"))
        found = map(line_of, history(self.var / "zookeeper"))
        compress(self.folder / "zookeeper.jsonl.gz", "".join(f"{json.dumps(one)}\n" for one in found).encode())
        timeline = "".join(f"{json.dumps(one)}\n" for one in self.timeline)
        (self.folder / "timeline.jsonl").write_text(timeline, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.record", description=__doc__)
    parser.add_argument("play", choices=["deaths", "cuts", "moves"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="klamm-record-") as work:
        Recorder(given.play, given.folder.resolve(), Path(work)).record()


if __name__ == "__main__":
    main()
