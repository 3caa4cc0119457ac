"""A lab without processes, served by the supervisor's own HTTP side: it only remembers its orders."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

from brokerstub.lab.bodies import ProcessRow, Trouble, TroubleOrder
from brokerstub.lab.ports import free_port
from brokerstub.lab.server import FaultTarget, serve
from controller.base.config import LIMITS, Limits
from controller.security.secrets import Secrets


class Lab:
    """Keeps the interface `brokerstub.lab.server.Supervising`."""

    def __init__(self, secrets: Secrets) -> None:
        self.secrets = secrets
        self.obeyed: list[str] = []
        self.brokers: Mapping[int, FaultTarget] = {1: cast(FaultTarget, Obedient(self.obeyed.append))}

    def rows(self) -> Sequence[ProcessRow]:
        return [self.brokers[1].row]

    def end(self) -> None:
        self.obeyed.append("down")

    async def trouble(self, order: TroubleOrder) -> Trouble:
        self.obeyed.append("trouble")
        return Trouble(str(order.kind), "orders", 0, 1, 0, "7", "nothing happened")

    @staticmethod
    def order_for(path: str) -> bytes:
        """Returns a body that is accepted there."""
        if path.endswith("trouble"):
            return b"{}"
        of_partition = {"topic": "orders", "partition": 0} if path.endswith(("hold", "release")) else {}
        return json.dumps({"broker": 1, **of_partition}).encode()


class Obedient:
    """A broker that ignores every order."""

    row = ProcessRow("broker 1", None, "running", "127.0.0.1:1")

    def __init__(self, remember: Callable[[str], None]) -> None:
        self._remember = remember

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        def obey(*_: object, **__: object) -> Any:
            self._remember(verb.replace("_", "-"))
            return done() if verb in ("kill", "stop", "start") else True

        return obey


async def done() -> bool:
    return True


@asynccontextmanager
async def a_lab(secrets: Secrets, limits: Limits = LIMITS) -> AsyncIterator[tuple[Lab, str]]:
    """The lab, and its supervisor's address."""
    lab, port = Lab(secrets), free_port()
    async with AsyncExitStack() as started:
        await serve(lab, port, started, limits)
        yield lab, f"http://127.0.0.1:{port}"
