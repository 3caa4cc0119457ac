"""The ways between a lab's brokers: a proxy for each ordered pair, so that any of them can be cut, either direction.

Owns these proxies and the cuts. A way to a broker that does not run refuses connections, as the broker itself would: a
client must be able to tell "nothing was sent" from "no answer". It must never pass on to another receiver.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from itertools import permutations

from brokerstub.lab.http_proxy import HttpProxy
from brokerstub.lab.settings import HOST


class PeerProxy(HttpProxy):
    """From one broker to another; its port is its own from `reserve` to `forsake`, whether it listens or not."""

    def __init__(self, target: tuple[str, int]) -> None:
        super().__init__(target)
        self._holder = socket.socket()
        self._shares_port = True

    def reserve(self) -> None:
        """Bind a socket that does not listen: connections are refused, and no other process gets the port."""
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._holder.bind((HOST, 0))
        self.port = self._holder.getsockname()[1]

    def forsake(self) -> None:
        self._holder.close()


class Peers:
    """All ways of a lab. A pair is cut (connections are reset), or one broker of it is mute: its messages do not
    arrive."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        self._ports = ports
        self.ways = {(source, target): PeerProxy((HOST, ports[target])) for source, target in permutations(ports, 2)}
        self._cuts: set[frozenset[int]] = set()
        self._mutes: set[tuple[int, int]] = set()

    def open(self) -> None:
        for way in self.ways.values():
            way.reserve()

    async def close(self) -> None:
        for way in self.ways.values():
            await way.close()
            way.forsake()

    async def admit(self, target: int) -> None:
        """It runs."""
        for way in self._ways_to(target):
            await way.start()

    async def refuse(self, target: int) -> None:
        """It does not run any more."""
        for way in self._ways_to(target):
            await way.close()

    def routes_of(self, source: int) -> dict[str, str]:
        """By the address of each other broker, where this one is to connect to."""
        return {
            f"{HOST}:{self._ports[target]}": way.address for (each, target), way in self.ways.items() if each == source
        }

    def cut_from(self, broker_id: int) -> list[int]:
        return sorted(other for pair in self._cuts if broker_id in pair for other in pair - {broker_id})

    def mute_to(self, broker_id: int) -> list[int]:
        """Returns the brokers that do not get this broker's messages."""
        return sorted(target for source, target in self._mutes if source == broker_id)

    def cut(self, one: int, other: int) -> bool:
        if frozenset((one, other)) in self._cuts:
            return False
        self._cuts.add(frozenset((one, other)))
        self.ways[one, other].cut()
        self.ways[other, one].cut()
        return True

    def mute(self, source: int, target: int) -> bool:
        """Requests of the source are silence, and so are its answers to the target."""
        if (source, target) in self._mutes:
            return False
        self._mutes.add((source, target))
        self.ways[source, target].hold("up")
        self.ways[target, source].hold("down")
        return True

    def heal(self, one: int, other: int) -> bool:
        """Remove all faults between these two brokers."""
        pairs = {(one, other), (other, one)}
        if frozenset((one, other)) not in self._cuts and not pairs & self._mutes:
            return False
        self._cuts.discard(frozenset((one, other)))
        self._mutes -= pairs
        for pair in pairs:
            self.ways[pair].heal()
            self.ways[pair].thaw()
        return True

    def heal_all_of(self, broker_id: int) -> bool:
        healed = [self.heal(broker_id, other) for other in self._ports if other != broker_id]
        return any(healed)

    def _ways_to(self, target: int) -> list[PeerProxy]:
        return [way for (_, each), way in self.ways.items() if each == target]
