"""Watches mark paths dirty. Nothing is read here: a fact is read in the loop's own turn, so that it is never old."""

from __future__ import annotations

from controller.core.project.znodes import CONTROLLER, CONTROLLER_EPOCH
from controller.loop.inbox import Inbox
from controller.loop.reader import Reader
from controller.zookeeper.port import WatchEvent, ZooKeeper


class Watches:
    """From a session's watch events to the inbox of one term."""

    def __init__(self, zk: ZooKeeper, inbox: Inbox, reader: Reader) -> None:
        self._zk = zk
        self._inbox = inbox
        self._reader = reader

    def open(self) -> None:
        self._zk.on_watch(self._on_event)

    def close(self) -> None:
        self._zk.remove_handler(self._on_event)

    def _on_event(self, event: WatchEvent) -> None:
        if event.path in (CONTROLLER, CONTROLLER_EPOCH):
            return  # the daemon's: they tell the holder of the seat
        self._reader.forget_watch(event.path)
        self._inbox.mark_dirty([event.path])
