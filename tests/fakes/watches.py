"""The armed watches of one fake client, as the server has them and as the client remembers them: one book for both.

The client's is the real one's (`controller/zookeeper/watches.py`). A watch of a request counts once its answer is
there: until then only the server knows of it, and forgets it when the connection breaks.
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.zookeeper.port import EventKind, WatchEvent
from controller.zookeeper.watches import WatchLists
from tests.fakes.tree import Tree


class FakeWatches(WatchLists):
    """`newly` are the watches that the request in hand armed and that were not armed before."""

    def __init__(self) -> None:
        super().__init__()
        self.newly: list[str] = []
        #: fired at the server for a client that may not read: it is not told, and still believes it armed
        self._swallowed: set[tuple[str, bool]] = set()

    def begin(self) -> list[str]:
        """A request is served: returns the list that will hold its watches."""
        self.newly = []
        return self.newly

    def arm(self, present: Iterable[str] = (), absent: Iterable[str] = ()) -> None:
        present, absent = list(present), list(absent)
        super().arm(present, absent)
        self._swallowed.difference_update((path, False) for path in (*present, *absent))

    def on_read(self, path: str, *, is_there: bool) -> None:
        if path not in self.present and path not in self.absent:
            self.newly.append(path)
        self.arm(*(((path,), ()) if is_there else ((), (path,))))

    def on_list(self, path: str) -> None:
        if path not in self.parents:
            self.newly.append(path)
            self.parents.add(path)
        self._swallowed.discard((path, True))

    def forget(self, newly: Iterable[str]) -> None:
        """The answer to the request that armed these never comes."""
        for path in newly:
            for armed in (self.present, self.absent, self.parents):
                armed.discard(path)

    def fires(self, event: WatchEvent) -> bool:
        """Returns whether this is to be told; a watch that fires is gone."""
        is_child, is_data = self._would_fire(event)
        if is_child or is_data:
            self.on_event(event)
        return is_child or is_data

    def swallow(self, event: WatchEvent) -> None:
        """The server would tell a client that may not read: the watch is gone there, and no client hears."""
        is_child, is_data = self._would_fire(event)
        if is_child:
            self._swallowed.add((event.path, True))
        if is_data:
            self._swallowed.add((event.path, False))

    def _would_fire(self, event: WatchEvent) -> tuple[bool, bool]:
        is_child = event.path in self.parents and event.kind in (EventKind.CHILDREN, EventKind.DELETED)
        is_data = event.kind is not EventKind.CHILDREN and (event.path in self.present or event.path in self.absent)
        gone = self._swallowed
        return is_child and (event.path, True) not in gone, is_data and (event.path, False) not in gone

    def missed(self, tree: Tree, zxid: int) -> list[WatchEvent]:
        """Returns the events that SetWatches tells after a reconnect, which arms all of them again."""
        self._swallowed.clear()
        return tree.changes_since(zxid, sorted(self.present), sorted(self.absent), sorted(self.parents))
