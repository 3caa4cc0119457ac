"""A run of real processes as a history: ZooKeeper's transaction log, and the state-change logs of the brokers.

It reads files of servers and brokers that may be running, and asks no process. A line torn by a kill is left out, as
the contract of the log says; the rules find lines that are missing for another reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from brokerstub.lab.zookeeper import ZooKeeperServer
from sparkjobs.records.zookeeper_files import longest_history
from tests.faults.checker.commits import from_operations
from tests.faults.checker.history import Fault, History, Rpc, json_of

LOG = "state-change.log"
#: lines of a broker about requests to it; all others are a controller's
BROKERS_KINDS = ("rpc", "transition")
#: the log lines of a process when a term of its own is over
TERM_OVER = ("term.ended", "term.failed")


def history_of(
    servers: Sequence[ZooKeeperServer],
    chroot: str,
    broker_folders: Iterable[Path],
    *,
    faults: Iterable[Fault] = (),
    **known: Any,
) -> History:
    """Returns the history of a cluster below a chroot so far."""
    lines = [line for folder in broker_folders for line in lines_of(folder)]
    return History(
        commits=from_operations(longest_history([server.data_dir for server in servers]), chroot),
        rpcs=[rpc_of(line) for line in lines if line["kind"] == "rpc"],
        lines=[line for line in lines if line["kind"] not in BROKERS_KINDS],
        faults=list(faults),
        **known,
    )


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """One broker's lines in order, those of rotated files first."""
    found = sorted(folder.glob(f"{LOG}*"), key=lambda path: -int(path.suffix[1:]) if path.suffix != ".log" else 0)
    return [line for path in found for line in json_lines(path)]


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The last one may be in the making, or torn by a kill; where a fault put a folder in the file's place, there are
    none."""
    said = [json_of(raw) for raw in path.read_bytes().splitlines()] if path.is_file() else []
    return [line for line in said if isinstance(line, dict)]


def ended_in(log: Path) -> dict[int, int]:
    """When which terms were over, as a process's own log says."""
    return {
        line["controller_epoch"]: round(datetime.fromisoformat(line["timestamp"]).timestamp() * 1_000)
        for line in json_lines(log)
        if line["event"] in TERM_OVER
    }


def rpc_of(line: dict[str, Any]) -> Rpc:
    """A broker's line about a request that it answered."""
    kind, _, about = line["reason"].partition(": ")
    return Rpc(
        at_ms=line["at_ms"],
        broker_id=line["broker_id"],
        broker_epoch=line["broker_epoch"],
        controller_id=line["controller_id"],
        controller_epoch=line["controller_epoch"],
        kind=kind,
        error_code=line["error_code"],
        event_id=line.get("event_id"),
        is_full="of a full list" in about,
    )
