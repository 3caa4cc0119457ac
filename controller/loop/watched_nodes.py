"""The book of znodes that a term watches, and the zxid at which each was read.

ZooKeeper sends no event about a znode that the client may not read just then, and the watch is used up. When the client
may read the znode again, it learns neither of that change nor of later ones. So the stats of the znodes are compared
from time to time, lists and brokers each time, topics in turns. A znode that changed since it was read was missed, or
its event is on its way. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import Final

from controller.core.project.znodes import topic_path
from controller.zookeeper.port import RefusedError, ZooKeeper

LOOK_EVERY_S: Final = 4.0
#: so many topics each time: with 100,000 a look costs no more, and each has its turn later
TOPICS_A_LOOK: Final = 100
#: as of which a znode was read that was not there
ABSENT: Final = -1


class WatchedNodes:
    """The reader of a znode with a watch records the zxid of the read."""

    def __init__(self) -> None:
        #: by name, in the order in which they are looked at
        self.topics: dict[str, int] = {}
        self._lists: dict[str, int] = {}
        self._nodes: dict[str, int] = {}
        self._brokers: dict[str, int] = {}

    def read_list(self, path: str, zxid: int) -> None:
        self._lists[path] = zxid

    def read_node(self, path: str, zxid: int) -> None:
        self._nodes[path] = zxid

    def read_brokers(self, paths: Iterable[str], zxid: int) -> None:
        """All that are there."""
        self._brokers = dict.fromkeys(paths, zxid)

    def read_topics(self, names: Iterable[str], zxid: int) -> None:
        self.topics |= dict.fromkeys(names, zxid)

    def forget_topics(self, names: Iterable[str]) -> None:
        """They are gone, or not watched any more."""
        for name in names:
            self.topics.pop(name, None)

    async def missed(self, zk: ZooKeeper) -> list[str]:
        """Returns those that have changed since they were read."""
        names = list(islice(self.topics, TOPICS_A_LOOK))
        for name in names:
            self.topics[name] = self.topics.pop(name)  # the last in the line
        nodes = {**self._nodes, **self._brokers, **{topic_path(name): self.topics[name] for name in names}}
        looks = [(path, read_at, True) for path, read_at in self._lists.items()]
        looks += [(path, read_at, False) for path, read_at in nodes.items()]
        found = await asyncio.gather(*(_has_changed(zk, *one) for one in looks))
        return [path for (path, *_), has_changed in zip(looks, found, strict=True) if has_changed]


async def _has_changed(zk: ZooKeeper, path: str, read_at: int, is_list: bool) -> bool:
    try:
        stat = (await zk.exists(path)).stat
    except RefusedError:
        return False
    if stat is None:
        return read_at != ABSENT
    return max(stat.czxid, stat.pzxid if is_list else stat.mzxid) > read_at
