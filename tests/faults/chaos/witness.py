"""What went through the ways between brokers: each controller's request as its receiver got it, row by row, and what
brokers asked of controllers.

The brokers' own lines say that a request was answered, and in which order; what stood in it, these proxies saw. A
request of a broker to itself passes no proxy, so its rows stay unknown, as does what the controller asked of itself.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from functools import partial

from brokerstub.lab.http_proxy import Exchange
from brokerstub.lab.peers import Peers
from tests.faults.checker.history import Asking, Rpc
from tests.faults.simulate.network import Exchange as Told
from tests.faults.simulate.told import ASKED, TOLD, asking_of, rpc_of

_Key = tuple[int, str, int, int, str | None]


class Witness:
    """Hears every way of a cluster, from before its brokers start."""

    def __init__(self, peers: Peers) -> None:
        self.askings: list[Asking] = []
        self._heard: defaultdict[_Key, deque[Rpc]] = defaultdict(deque)
        for (source, target), way in peers.ways.items():
            way.witness = partial(self._hear, source, target)

    def _hear(self, source: int, target: int, exchange: Exchange) -> None:
        if exchange.path not in (*TOLD, *ASKED) or not exchange.answer.startswith(b"HTTP/1.1 200"):
            return
        head, _, body = exchange.request.partition(b"\r\n\r\n")
        lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
        headers = {name.strip(): value.strip() for name, _, value in lines}
        answer = exchange.answer.partition(b"\r\n\r\n")[2]
        told = Told(f"b{source}:80", f"b{target}:80", exchange.path, headers, body, 0, None, 200, answer)
        if exchange.path in ASKED:
            self.askings.append(asking_of(told, time.time_ns() // 1_000_000))
            return
        rpc = rpc_of(told, 0)
        self._heard[_key(rpc)].append(rpc)

    def completed(self, rpcs: Iterable[Rpc]) -> Iterator[Rpc]:
        """The brokers' lines, with what stood in those that were seen."""
        for one in rpcs:
            seen = self._heard[_key(one)]
            if seen and seen[0].error_code == one.error_code:
                known = seen.popleft()
                yield one._replace(rows=known.rows, stops=known.stops, refused=known.refused)
            else:
                yield one


def _key(rpc: Rpc) -> _Key:
    return rpc.broker_id, rpc.kind, rpc.broker_epoch, rpc.controller_epoch, rpc.event_id
