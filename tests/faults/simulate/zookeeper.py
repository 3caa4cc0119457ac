"""The fake ZooKeeper server in virtual time: it makes the sessions of simulated processes, and ends them.

The way between it and its clients is theirs (`client.py`). It never decides when anything breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from controller.core.operations import Delete, Op
from controller.core.project.znodes import CONTROLLER
from controller.zookeeper.port import TransactionAnswer
from tests.fakes.client import FakeClient
from tests.fakes.tree import RequestContext
from tests.fakes.zookeeper import FakeZooKeeper
from tests.faults.simulate.client import SimClient
from tests.faults.simulate.loop import Clock, Process
from tests.faults.simulate.session_reads import Ledger

TICK_S = 0.5


class SimZooKeeper(FakeZooKeeper):
    """The server. `connect_for` makes a session for a process."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)  # type: ignore[arg-type]
        self.ledger = Ledger()
        #: called in the moment in which the seat falls vacant
        self.on_vacant: list[Callable[[], None]] = []

    def connect_for(
        self,
        process: Process,
        session_timeout_ms: int,
        random: Random,
        *,
        chroot: str = "",
        resume: tuple[int, bytes] | None = None,
        max_in_flight_requests: int = 1000,
        auth: str | None = None,
        owns: bool = False,
    ) -> SimClient:
        session_id, password = self.session_for(resume, session_timeout_ms)
        client = SimClient(self, session_id, password, session_timeout_ms, chroot, max_in_flight_requests)
        client.introduce(auth, owns=owns)
        client.open(process, random, self.ledger)
        self.clients.append(client)
        return client

    def commit(self, session_id: int, ops: Sequence[Op], asker: RequestContext | None = None) -> TransactionAnswer:
        answer = super().commit(session_id, ops, asker)
        if answer.refused is None and any(isinstance(op, Delete) and op.path == CONTROLLER for op in ops):
            for call in self.on_vacant:
                call()
        return answer

    def end_ephemerals(self, session_id: int) -> None:
        if paths := self.tree.ephemerals_of(session_id):
            self.commit(session_id, [Delete(path, -1) for path in paths])

    def expire(self, session: FakeClient | int) -> None:
        """The session ends; its client hears of it when it comes back."""
        session_id = session if isinstance(session, int) else session.session_id
        if self.sessions.pop(session_id, None) is not None:
            self.end_ephemerals(session_id)
        for client in self.clients_of(session_id):
            client.disconnect()

    def _on_time(self) -> None:
        now = self.clock()
        for client in self.clients:
            if isinstance(client, SimClient) and client.is_heard and client.session_id in self.sessions:
                self.sessions[client.session_id].heard_at = now
                client.pinged()
        for session_id, session in list(self.sessions.items()):
            if now - session.heard_at >= session.timeout_ms / 1000:
                self.expire(session_id)
