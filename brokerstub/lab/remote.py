"""A lab seen from outside: finds it, starts it in the background, asks it, ends it.

Owns no process: the supervisor does. It must never signal a process that does not hold the lab's lock.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from brokerstub.lab.bodies import AGGREGATES, Done, Order, Processes, Trouble, TroubleOrder
from brokerstub.lab.child_process import last_lines
from brokerstub.lab.settings import (
    LabError,
    LabFile,
    LabSettings,
    NoLabError,
    lab_secrets,
    owner_pid,
    read_lab_file,
)
from controller.wire import bodies
from controller.wire.client import ExchangeError, HttpClient

PROBE_TIMEOUT_MS = 1_000
ORDER_TIMEOUT_MS = 30_000
#: a story has several steps, each of which waits for the cluster
TROUBLE_TIMEOUT_MS = 240_000
END_TIMEOUT_MS = 40_000
POLL_INTERVAL_MS = 50

T = TypeVar("T")


class UnhealthyError(LabError):
    """Everything runs, and the cluster is not healthy."""


class Verdict(msgspec.Struct, frozen=True):
    """The answer of `/healthz/cluster`."""

    status: str
    reasons: list[str] = []


class Problem(msgspec.Struct, frozen=True):
    """The body of a refusal."""

    detail: str
    code: str


def found(var: Path) -> LabFile:
    """Returns the lab that runs in this directory."""
    pid, lab = owner_pid(var), read_lab_file(var)
    if pid is None:
        raise NoLabError(f"no lab runs in {var}: `klamm up` starts one")
    if lab is None or lab.pid != pid:
        raise NoLabError(f"the lab in {var} (process {pid}) is still starting, or ending: try again")
    return lab


def processes(var: Path) -> Processes:
    """Returns the lab's processes."""
    return asyncio.run(_answer(found(var), "ps", None, Processes))


def order(var: Path, verb: str, wanted: Order) -> Done:
    """Have something done to a broker."""
    return asyncio.run(_answer(found(var), verb, wanted, Done))


def trouble(var: Path, wanted: TroubleOrder) -> Trouble:
    """Have Kafka's clients meet trouble; it has begun, and of an unclean election all is over."""
    return asyncio.run(_answer(found(var), "trouble", wanted, Trouble))


def start(settings: LabSettings, timeout_ms: int, tell: Callable[[str], None]) -> subprocess.Popen[bytes]:
    """Start a lab in the background and wait until it is healthy; its supervisor. When that fails nothing is left
    running, except of a lab whose cluster is merely not healthy (UnhealthyError)."""
    settings.var.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (settings.var / "lab.log").open("ab") as log:
        os.fchmod(log.fileno(), 0o600)
        start_bytes = log.tell()
        supervisor = subprocess.Popen(
            settings.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        asyncio.run(_Start(settings, supervisor, start_bytes).until_healthy(timeout_ms, tell))
    except UnhealthyError:
        raise
    except BaseException:
        supervisor.terminate()
        try:
            supervisor.wait(END_TIMEOUT_MS / 1000)
        except subprocess.TimeoutExpired:
            supervisor.kill()
        raise
    return supervisor


def end(var: Path) -> list[int]:
    """End the lab and wait until no process of it is left; which ones those were. Nothing to do when none runs."""
    pid = owner_pid(var)
    if pid is None:
        (var / "lab.json").unlink(missing_ok=True)  # of a supervisor that was killed: its children died with it
        return []
    try:
        pids = [row.pid for row in processes(var).processes if row.pid is not None]
    except NoLabError:
        pids = [pid]  # not serving yet, or hung: it ends its children all the same
    for number in (signal.SIGTERM, signal.SIGKILL):
        if owner_pid(var) == pid:
            os.kill(pid, number)
        deadline = time.monotonic() + END_TIMEOUT_MS / 1000
        while time.monotonic() < deadline:
            if owner_pid(var) != pid and not any(map(is_alive, pids)):
                return pids
            time.sleep(POLL_INTERVAL_MS / 1000)
    raise LabError(f"these processes do not end: {', '.join(str(each) for each in pids if is_alive(each))}")


def is_alive(pid: int) -> bool:
    """Returns whether it runs; a zombie does not, and in a container an orphan may stay one for ever."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()  # it has ended just now, or this system has no /proc


class _Start:
    """Follows a supervisor from its launch to a healthy cluster."""

    def __init__(self, settings: LabSettings, supervisor: subprocess.Popen[bytes], log_start_bytes: int) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._log_start_bytes = log_start_bytes

    async def until_healthy(self, timeout_ms: int, tell: Callable[[str], None]) -> None:
        client = HttpClient()
        awaited, wants_health = "", False
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    seen, wants_health = await self._awaited(client)
                    if not seen:
                        return
                    if seen != awaited:
                        tell(f"waiting for {seen}")
                    awaited = seen
                    await asyncio.sleep(POLL_INTERVAL_MS / 1000)
        except TimeoutError:
            words = f"after {timeout_ms / 1000:g} s still waiting for {awaited}"
            if wants_health:
                raise UnhealthyError(f"{words}; everything runs: `klamm status` says more") from None
            raise LabError(f"{words}; the logs are in {self._settings.var}") from None
        finally:
            await client.close()

    async def _awaited(self, client: HttpClient) -> tuple[str, bool]:
        """Returns the part that is still missing, empty for none; and whether only health is missing."""
        if self._supervisor.poll() is not None:
            raise self._reason()
        lab = read_lab_file(self._settings.var)
        if lab is None or lab.pid != self._supervisor.pid:
            return "the supervisor", False
        try:
            rows = (await _answer_with(client, lab, "ps", None, Processes)).processes
        except NoLabError:
            return "the supervisor", False  # it may be about to end, and then its log gives the reason
        awaited = [row for row in rows if row.name != AGGREGATES]  # no command waits for a process that only reads logs
        for row in awaited:
            if row.state == "exited":
                raise LabError(f"{row.name} has ended; its log is {row.log}", lines=row.last_lines)
        if any(row.state == "stopped" for row in awaited):
            return f"ZooKeeper at {lab.zookeeper}", False
        verdicts = [await _verdict(client, url, "readyz") for url in lab.brokers.values()]
        if missing := [verdict for verdict in verdicts if verdict.status != "ready"]:
            return f"{len(missing)} of {len(verdicts)} brokers", False
        health = await _verdict(client, next(iter(lab.brokers.values())), "healthz/cluster")
        return "" if health.status == "green" else f"a healthy cluster ({'; '.join(health.reasons)})", True

    def _reason(self) -> LabError:
        """Why there is no supervisor, from its log."""
        path = self._settings.var / "lab.log"
        text = "\n".join(last_lines(path, self._log_start_bytes))
        _, is_explained, explanation = text.rpartition("Error: ")
        if not is_explained:
            return LabError(f"the lab's supervisor has ended; its log is {path}", lines=text.splitlines())
        detail, *lines = explanation.splitlines()
        return LabError(detail, lines=lines)


async def _verdict(client: HttpClient, url: str, path: str) -> Verdict:
    try:
        headers = lab_secrets().authorization(is_write=False)
        _, body = await client.get(f"{url}/{path}", headers, PROBE_TIMEOUT_MS)
        return bodies.decode(body, Verdict)
    except (ExchangeError, msgspec.DecodeError) as error:
        return Verdict("unknown", [str(error)])


async def _answer(lab: LabFile, path: str, body: Order | TroubleOrder | None, type_: type[T]) -> T:
    client = HttpClient()
    try:
        return await _answer_with(client, lab, path, body, type_)
    finally:
        await client.close()


async def _answer_with(
    client: HttpClient, lab: LabFile, path: str, body: Order | TroubleOrder | None, type_: type[T]
) -> T:
    url = f"{lab.supervisor}/lab/v1/{path}"
    try:
        if body is None:
            status, answer = await client.get(url, lab_secrets().authorization(is_write=False), PROBE_TIMEOUT_MS)
        else:
            headers = {"Content-Type": "application/json", **lab_secrets().authorization(is_write=True)}
            timeout_ms = ORDER_TIMEOUT_MS if isinstance(body, Order) else TROUBLE_TIMEOUT_MS + (body.for_ms or 0)
            status, answer = await client.post(url, msgspec.json.encode(body), headers, timeout_ms)
    except ExchangeError as error:
        raise NoLabError(f"the lab's supervisor (process {lab.pid}) does not answer: {error}") from None
    if status >= 400:
        problem = _said(answer, Problem)
        raise LabError(problem.detail, problem.code)
    return _said(answer, type_)


def _said(answer: bytes, type_: type[T]) -> T:
    try:
        return bodies.decode(answer, type_)
    except msgspec.DecodeError as error:
        raise LabError(f"what answers there is no supervisor of ours: {error}") from None
