"""The real ZooKeeper of the integration tests, for those here that need one."""

from __future__ import annotations

from tests.integration.conftest import zookeeper

__all__ = ["zookeeper"]
