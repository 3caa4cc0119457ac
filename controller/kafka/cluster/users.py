"""The users of SCRAM, where Kafka keeps them: `/config/users/<name>`. Read at each login, never written."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import structlog

from controller.core import formats
from controller.zookeeper.port import ZooKeeper, ZooKeeperError

log = structlog.get_logger()


class ScramUsers:
    """`session`: the present one, if any."""

    def __init__(self, session: Callable[[], ZooKeeper | None]) -> None:
        self._session = session

    async def record_of(self, user: str, mechanism: str) -> str | None:
        """As Kafka wrote it; None: nobody, or nobody who can be read now."""
        zk = self._session()
        if zk is None:
            return None
        try:
            node = await zk.get(f"/config/users/{quote(user, safe='').replace('~', '%7E')}")
            value = None if node is None else formats.decode(node.data, formats.ConfigZnode).config.get(mechanism)
        except (ZooKeeperError, formats.FormatError) as error:
            log.warning("user.unread", user=user, reason=str(error))
            return None
        return value
