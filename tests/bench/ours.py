"""Our controller as a contender: the real one, on its own session, obeying lines of input.

`python -m tests.bench.ours ZOOKEEPER_PORT LOG DIALECT`; the dialect that it tells brokers in is `http`, or `kafka` as a
controller beside real brokers does. `start`, `stop`, `settle` and `shutdown ID EPOCH` are answered by themselves,
`report` by JSON: the phases of the last failover, the longest hold of the event loop, memory and CPU of the process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import structlog

from controller.base.config import LIMITS
from controller.core.codes import Code
from controller.core.events import DrainAsked
from controller.kafka.protocol.access import PLAINTEXT, Access
from controller.kafka.protocol.levels import level_for
from controller.seat.claim import Claim
from controller.seat.guard import TermGuard
from controller.statelog.journal import Journal
from controller.tell.dialects import Dialect
from controller.tell.dialects.http import HttpDialect
from controller.tell.dialects.kafka import KafkaDialect, OwnAddress
from controller.tell.outbox import Outboxes
from controller.term.daemon import Daemon
from controller.term.parts import OnAnswer, TermParts, close_at_end
from controller.wire.client import HttpClient
from controller.zookeeper.client import ZooKeeperClient, connect
from controller.zookeeper.port import SessionLostError

SESSION_TIMEOUT_MS = 18_000
BEAT_S = 0.05
#: as Kafka's controller of the bench: registered nowhere, and no server listens there
AS_KAFKA_ID = 1000
AS_KAFKA = OwnAddress(AS_KAFKA_ID, {PLAINTEXT: ("127.0.0.1", 1)})


class Pulse:
    """The longest time that the event loop was held: sessions must outlive it. In CPU time of its thread, too, to which
    other work on the machine adds nothing."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.longest_cpu_s = 0.0

    async def run(self) -> None:
        while True:
            before, used = time.monotonic(), time.thread_time()
            await asyncio.sleep(BEAT_S)
            self.longest_s = max(self.longest_s, time.monotonic() - before - BEAT_S)
            self.longest_cpu_s = max(self.longest_cpu_s, time.thread_time() - used - BEAT_S)


class Ours:
    """A daemon, started and stopped; the process stays."""

    def __init__(self, zookeeper_port: int, log: Path, dialect: str) -> None:
        self._port = zookeeper_port
        self._is_as_kafka = dialect == "kafka"
        self._journal = Journal(log)
        self._daemon: Daemon | None = None
        self._running: asyncio.Task[None] | None = None
        self._zk: ZooKeeperClient | None = None
        self._pulse = Pulse()

    async def obey(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        beating = asyncio.create_task(self._pulse.run())
        _say("ready")
        while line := (await reader.readline()).decode().strip():
            if line == "start":
                await self._start()
            elif line == "stop":
                await self._stop()
            elif line.startswith("shutdown "):
                await self._shut_down(*map(int, line.split()[1:]))
            _say(json.dumps(self._report()) if line == "report" else line)
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        await self._stop()
        await self._journal.close()

    async def _start(self) -> None:
        servers = [("127.0.0.1", self._port)]
        self._zk = await connect(servers, session_timeout_ms=SESSION_TIMEOUT_MS, connect_timeout_ms=10_000)
        parts = TermParts(
            cluster_id="bench", open_outboxes=self._open_outboxes, journal=self._journal, limits=LIMITS,
            wall_ms=lambda: time.time_ns() // 1_000_000, entropy=Random(1), is_dedicated=self._is_as_kafka,
        )  # fmt: skip
        self._daemon = Daemon(self._zk, AS_KAFKA_ID if self._is_as_kafka else 0, parts)
        self._running = asyncio.create_task(_run_until_lost(self._daemon))

    async def _stop(self) -> None:
        if self._running is None or self._zk is None:
            return
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await self._zk.close()
        self._running, self._zk, self._daemon = None, None, None

    async def _shut_down(self, broker_id: int, broker_epoch: int) -> None:
        assert self._daemon is not None
        assert self._daemon.term is not None
        reply = await self._daemon.term.ask(DrainAsked(broker_id, broker_epoch, is_shutdown=True))
        assert reply.code is Code.NONE, reply

    def _open_outboxes(
        self,
        claim: Claim,
        guard: TermGuard,
        group: asyncio.TaskGroup,
        on_fenced: Callable[[str], None],
        answer: OnAnswer,
    ) -> Outboxes:
        dialect = self._dialect(guard, group)
        return Outboxes(
            group, dialect, claim.broker_id, claim.controller_epoch, on_answer=answer,
            on_fenced=lambda: on_fenced("fenced"), entropy=Random(1),
        )  # fmt: skip

    def _dialect(self, guard: TermGuard, group: asyncio.TaskGroup) -> Dialect:
        if not self._is_as_kafka:
            client = HttpClient(guard.check)
            group.create_task(close_at_end(client.close))
            return HttpDialect(client)
        access = Access(listener="PLAINTEXT")
        dialect = KafkaDialect(level_for("3.9"), AS_KAFKA, access=access, check=guard.check)
        group.create_task(close_at_end(dialect.close))
        return dialect

    def _report(self) -> dict[str, object]:
        term = None if self._daemon is None else self._daemon.term
        history = [] if term is None else term.history()
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "phases_ms": history[-1].phases if history else {},
            "longest_hold_s": self._pulse.longest_s,
            "longest_hold_cpu_s": self._pulse.longest_cpu_s,
            "memory_bytes": _resident_bytes(),
            "cpu_s": used.ru_utime + used.ru_stime,
        }


async def _run_until_lost(daemon: Daemon) -> None:
    try:
        await daemon.run()
    except SessionLostError:
        return


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    asyncio.run(Ours(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]).obey())
