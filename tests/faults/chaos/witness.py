"""Records the messages between brokers: each controller's request as its receiver got it, row by row, and the requests
of brokers to controllers.

The brokers' own lines show that a request was answered, and in which order. These proxies saw its content. A request of
a broker to itself passes no proxy, so its rows stay unknown, as do the requests of the controller to itself.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from functools import partial

from brokerstub.lab.http_proxy import Exchange
from brokerstub.lab.peers import Peers
from tests.faults.checker.history import BrokerRequest, Rpc
from tests.faults.simulate.decoded_requests import ASKED, TOLD, broker_request_of, rpc_of
from tests.faults.simulate.network import Exchange as Told

_Key = tuple[int, str, int, int, str | None]


class Witness:
    """Hears every way of a cluster, from before its brokers start."""

    def __init__(self, peers: Peers) -> None:
        self.broker_requests: list[BrokerRequest] = []
        #: the controllers' requests, entered when their answers passed by
        self.told: list[Rpc] = []
        self._peers = peers
        self._used: set[tuple[int, int]] = set()
        for (source, target), way in peers.ways.items():
            way.witness = partial(self._hear, source, target)

    @property
    def unfollowed(self) -> frozenset[tuple[int, int]]:
        """Pairs of brokers whose messages were not all recorded: some were malformed, or took another way."""
        ways = self._peers.ways.items()
        return frozenset(pair for pair, way in ways if not (way.is_followed and pair in self._used))

    def _hear(self, source: int, target: int, exchange: Exchange) -> None:
        self._used.add((source, target))
        is_answered = bool(exchange.answer)
        if exchange.path not in (*TOLD, *ASKED) or (is_answered and not exchange.answer.startswith(b"HTTP/1.1 200")):
            return
        head, _, body = exchange.request.partition(b"\r\n\r\n")
        lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
        headers = {name.strip(): value.strip() for name, _, value in lines}
        answer = exchange.answer.partition(b"\r\n\r\n")[2]
        names, sent_ms = (f"b{source}:80", f"b{target}:80"), exchange.arrived_ms
        told = Told(*names, exchange.path, headers, body, None, None, sent_ms, 200 if is_answered else 0, answer)
        now_ms = time.time_ns() // 1_000_000
        if exchange.path in ASKED:
            self.broker_requests.append(broker_request_of(told, now_ms))
        elif is_answered:
            self.told.append(rpc_of(told, now_ms))

    def completed(self, rpcs: Iterable[Rpc]) -> Iterator[Rpc]:
        """The brokers' lines, with the content of those requests that the proxies saw."""
        heard: defaultdict[_Key, deque[Rpc]] = defaultdict(deque)
        for one in self.told:
            heard[_key(one)].append(one)
        for one in rpcs:
            seen = heard[_key(one)]
            if seen and seen[0].error_code == one.error_code:
                known = seen.popleft()
                yield known._replace(at_ms=one.at_ms)
            else:
                yield one


def _key(rpc: Rpc) -> _Key:
    return rpc.broker_id, rpc.kind, rpc.broker_epoch, rpc.controller_epoch, rpc.event_id
