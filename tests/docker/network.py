"""Cuts and losses between the nodes, by iptables in the network of one of them; published ports stay open.

Every cut proves itself: the rules count the packets that they dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from tests.docker.cluster import Cluster

IMAGE: Final = "klamm-tests-netns"
#: which packets of a node: those that come to it from the others, and those that go from it to them
ARRIVING: Final = "INPUT"
LEAVING: Final = "OUTPUT"
_SIDES: Final = {ARRIVING: "-s", LEAVING: "-d"}


class Packets(NamedTuple):
    """The counters of a node's rules: packets that matched, and dropped ones among them."""

    seen: int
    dropped: int


class Filter:
    """The rules of one node, in force."""

    def __init__(self, cluster: Cluster, service: str) -> None:
        self._cluster = cluster
        self._service = service

    def packets(self, chain: str) -> Packets:
        """So far. A rule without a target only counts."""
        saved = self._cluster.run_beside(self._service, IMAGE, "iptables-save -c")
        rules = re.findall(rf"^\[(\d+):\d+\] -A {chain} (.*)$", saved, re.MULTILINE)
        dropped = sum(int(count) for count, rule in rules if rule.endswith("-j DROP"))
        return Packets(sum(int(count) for count, rule in rules if "-j" not in rule), dropped)


@contextmanager
def cut(cluster: Cluster, service: str, others: Sequence[str], *chains: str) -> Iterator[Filter]:
    """No packet passes between the node and those others: those that arrive from them, that leave for them, or both."""
    rules = [f"-A {chain} {_SIDES[chain]} {cluster.address(other)} -j DROP" for other in others for chain in chains]
    with _filtered(cluster, service, rules) as it:
        yield it
        for chain in chains:
            assert it.packets(chain).dropped > 0, f"the cut of {service} dropped nothing of {chain}: it was none"


@contextmanager
def losing(cluster: Cluster, service: str, probability: float) -> Iterator[Filter]:
    """Of the packets from all others to the node, ZooKeeper's servers included, a share is lost at random."""
    subnet = cluster.subnet()
    arriving = f"-A {ARRIVING} -s {subnet}"
    rules = [arriving, f"{arriving} -m statistic --mode random --probability {probability} -j DROP"]
    with _filtered(cluster, service, rules) as it:
        yield it


@contextmanager
def _filtered(cluster: Cluster, service: str, rules: Sequence[str]) -> Iterator[Filter]:
    cluster.run_beside(service, IMAGE, " && ".join(f"iptables {rule}" for rule in rules))
    try:
        yield Filter(cluster, service)
    finally:
        cluster.run_beside(service, IMAGE, "iptables -F")
