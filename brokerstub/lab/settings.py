"""The settings of a lab, and how a command finds the lab that runs: `lab.json` and the lock in its directory.

Owns these two files' formats. It must never start, signal or ask a process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from controller.base.config import ConfigError, given_properties
from controller.base.files import write_atomically
from controller.security.secrets import Secrets, secrets_from, trusted_bytes
from controller.wire import bodies

HOST = "127.0.0.1"
BROKERS_MAX = 99
OWNED_PROPERTIES = frozenset({"broker.id", "listeners", "log.dirs", "zookeeper.connect"})
OWNED_PROPERTIES |= {"klamm.faults.file", "klamm.lab.url", "klamm.lab.routes"}
OWNED_PROPERTIES |= {"klamm.report.file", "klamm.aggregates.file"}
LOCK_PATIENCE_MS = 500
LOCK_POLL_INTERVAL_MS = 20


class LabError(Exception):
    """The lab cannot do that; the message gives the reason and a remedy, `lines` of a log may say more."""

    def __init__(self, detail: str, code: str = "INVALID_REQUEST", lines: Sequence[str] = ()) -> None:
        self.code = code
        self.lines = lines
        super().__init__(detail)


class NoLabError(LabError):
    """No lab runs here, or it does not answer."""


class LabSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of `klamm up`."""

    var: Path
    brokers: int = 3
    port_base: int = 8080
    #: broker N serves Kafka's clients on this plus N; None: brokers keep no records
    kafka_port_base: int | None = None
    #: a connect string; None for an embedded one on `zookeeper_port`
    zookeeper: str | None = None
    zookeeper_port: int = 2181
    session_timeout_ms: int = 4_000
    #: settings of every broker, which override the lab's own
    properties: Mapping[str, str] = {}
    #: a Spark job keeps sums of the brokers' logs
    aggregate: bool = False
    #: in shell words; None for the real one
    broker_command: str | None = None

    @property
    def connect_string(self) -> str:
        return self.zookeeper or f"{HOST}:{self.zookeeper_port}"

    @property
    def ports(self) -> dict[int, int]:
        """Of each broker, by its id."""
        return {number: self.port_base + number for number in range(1, self.brokers + 1)}

    def kafka_port(self, broker_id: int) -> int | None:
        """For Kafka's clients; None without records."""
        return None if self.kafka_port_base is None else self.kafka_port_base + broker_id

    @property
    def bootstrap_servers(self) -> str | None:
        """Returns the setting with which Kafka's clients are configured."""
        ports = [port for number in self.ports if (port := self.kafka_port(number)) is not None]
        return ",".join(f"{HOST}:{port}" for port in ports) or None

    @property
    def aggregates_file(self) -> Path | None:
        """Returns the file that `klamm logs stream` keeps; None where it does not run."""
        return self.var / "aggregates" / "aggregates.json" if self.aggregate else None

    @property
    def command(self) -> list[str]:
        """Returns the command that runs a supervisor with these settings."""
        flags = {
            "--var": self.var,
            "--brokers": self.brokers,
            "--port-base": self.port_base,
            "--kafka-port-base": self.kafka_port_base,
            "--zookeeper-port": self.zookeeper_port,
            "--session-timeout-ms": self.session_timeout_ms,
            "--zookeeper": self.zookeeper,
            "--broker-command": self.broker_command,
        }
        pairs = [(flag, value) for flag, value in flags.items() if value is not None]
        pairs += [("--set", f"{key}={value}") for key, value in self.properties.items()]
        switches = ["--aggregate"] if self.aggregate else []
        return [sys.executable, "-m", "brokerstub.lab", *switches, *(str(part) for pair in pairs for part in pair)]


class LabFile(msgspec.Struct, frozen=True):
    """`lab.json`: where everything is, while the lab runs."""

    pid: int
    port_base: int
    brokers: dict[str, str]
    zookeeper: str
    zookeeper_pid: int | None
    bootstrap_servers: str | None = None

    @property
    def supervisor(self) -> str:
        return f"http://{HOST}:{self.port_base}"

    @property
    def dashboard_url(self) -> str:
        """Every broker serves the dashboard."""
        return f"{next(iter(self.brokers.values()))}/"


def properties_for(texts: Iterable[str]) -> dict[str, str]:
    """Returns the properties of `--set key=value`."""
    try:
        properties = given_properties(texts)
    except ConfigError as error:
        raise LabError(f"--set: {error}") from None
    if clash := sorted(OWNED_PROPERTIES & properties.keys()):
        raise LabError(f"--set: the lab itself sets {', '.join(clash)}")
    return properties


def lab_secrets() -> Secrets:
    """Returns the secrets of the environment: the supervisor has them, its brokers inherit them, its clients need
    them."""
    try:
        return secrets_from(os.environ)
    except ConfigError as error:
        raise LabError(str(error), "INVALID_CONFIG") from None


def write_lab_file(var: Path, lab_file: LabFile) -> None:
    write_atomically(var / "lab.json", msgspec.json.format(msgspec.json.encode(lab_file)) + b"\n")


def read_lab_file(var: Path) -> LabFile | None:
    try:
        return bodies.decode(trusted_bytes(var / "lab.json"), LabFile)
    except FileNotFoundError:
        return None
    except ConfigError as error:
        raise LabError(str(error)) from None
    except msgspec.DecodeError as error:
        raise LabError(f"{var / 'lab.json'} is damaged ({error}): remove it, and `klamm up` writes it anew") from None


@contextlib.contextmanager
def sole_owner(var: Path) -> Iterator[None]:
    """Hold the directory's lock: one supervisor per directory. The kernel lets go of it however the holder ends."""
    var.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (var / "lab.lock").open("a+") as lock:
        deadline = time.monotonic() + LOCK_PATIENCE_MS / 1000  # `owner_pid` takes it too, for an instant
        while not _has_locked(lock.fileno(), fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise LabError(f"process {owner_pid(var)} runs a lab in {var} already: `klamm down` ends it")
            time.sleep(LOCK_POLL_INTERVAL_MS / 1000)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def owner_pid(var: Path) -> int | None:
    """Returns the supervisor that runs in this directory; None when none does."""
    try:
        with (var / "lab.lock").open() as lock:
            if _has_locked(lock.fileno(), fcntl.LOCK_SH):
                return None
            return int(lock.read() or 0) or None
    except FileNotFoundError:
        return None


def _has_locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
