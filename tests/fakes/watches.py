"""The armed watches of one fake client, as the server has them and as the client remembers them: one book for both.

The client's is the real one's (`controller/zk_watches.py`). What a request arms counts once its answer is there: until
then it is only the server that knows of it, and a connection that breaks makes that forget.
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.zk_model import EventKind, WatchEvent
from controller.zk_watches import WatchLists
from tests.fakes.tree import Tree


class FakeWatches(WatchLists):
    """`newly` is what the request in hand armed that was not armed before."""

    def __init__(self) -> None:
        super().__init__()
        self.newly: list[str] = []

    def begin(self) -> list[str]:
        """A request is served: the list that will say what it armed."""
        self.newly = []
        return self.newly

    def on_read(self, path: str, *, is_there: bool) -> None:
        if path not in self.present and path not in self.absent:
            self.newly.append(path)
        self.arm(*(((path,), ()) if is_there else ((), (path,))))

    def on_list(self, path: str) -> None:
        if path not in self.parents:
            self.newly.append(path)
            self.parents.add(path)

    def forget(self, newly: Iterable[str]) -> None:
        """The answer to what armed these never comes."""
        for path in newly:
            for armed in (self.present, self.absent, self.parents):
                armed.discard(path)

    def fires(self, event: WatchEvent) -> bool:
        """Whether this is to be told; what fires is gone."""
        is_child = event.path in self.parents and event.kind in (EventKind.CHILDREN, EventKind.DELETED)
        is_data = event.kind is not EventKind.CHILDREN and (event.path in self.present or event.path in self.absent)
        if is_child or is_data:
            self.on_event(event)
        return is_child or is_data

    def missed(self, tree: Tree, zxid: int) -> list[WatchEvent]:
        """What SetWatches tells after a reconnect."""
        return tree.changes_since(zxid, sorted(self.present), sorted(self.absent), sorted(self.parents))
