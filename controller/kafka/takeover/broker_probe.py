"""Whether brokers can be spoken to as this controller would: a connection to each, and what they say that they serve.

A broker that is silent may only stand still: it is passed over as long as any other answers.
"""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from controller.base.config import Limits
from controller.core.model import Broker
from controller.kafka.protocol.access import Access
from controller.kafka.protocol.codec import WireError
from controller.kafka.protocol.levels import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    Level,
)
from controller.kafka.protocol.nodes import Listener
from controller.kafka.server.versions import versions_at

NAMES: Final = {LEADER_AND_ISR: "LeaderAndIsr", STOP_REPLICA: "StopReplica", UPDATE_METADATA: "UpdateMetadata"}


async def vetoes_from_brokers(brokers: Iterable[Broker], access: Access, level: Level, limits: Limits) -> list[str]:
    """Why this controller cannot tell them anything, or not in the versions of this protocol level."""
    addresses = {one.broker_id: address for one in brokers if (address := access.listener_of(one)) is not None}
    said = dict(zip(addresses, await _all_said(addresses.values(), access, level, limits), strict=True))
    silent = [broker_id for broker_id, trouble in said.items() if trouble is None]
    by_trouble: dict[str, list[int]] = defaultdict(list)
    for broker_id, trouble in said.items():
        if trouble:
            by_trouble[trouble].append(broker_id)
    reasons = [f"brokers {ids} {trouble}" for trouble, ids in by_trouble.items()]
    if silent and len(silent) == len(said):
        reasons.append(f"brokers {silent} do not answer where they listen for this controller")
    return reasons


async def _all_said(addresses: Iterable[Listener], access: Access, level: Level, limits: Limits) -> list[str | None]:
    """In the same order; None: nothing was heard. Once one of them has answered, the others get little more time: who
    takes the seat from a controller that stands still is in a hurry."""
    first_s, rest_s = limits.kafka_probe_ms / 1000, limits.kafka_probe_rest_ms / 1000
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(_trouble_at(address, access, level, limits)) for address in addresses]
        if asked:
            await asyncio.wait(asked, timeout=first_s, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(asked, timeout=rest_s)
        for task in asked:
            task.cancel()
    return [None if task.cancelled() else task.result() for task in asked]


async def _trouble_at(address: Listener, access: Access, level: Level, limits: Limits) -> str:
    """Empty: all is well."""
    try:
        served = await versions_at(await access.open(address), limits.kafka_answer_max_bytes)
    except (OSError, EOFError, WireError, struct.error) as error:
        return f"cannot be spoken to by {address.name} ({str(error) or type(error).__name__})"
    low = [
        f"{name} from version {first} to {last} and not {level.version_of(key)}"
        for key, name in NAMES.items()
        for first, last in [served.get(key, (0, -1))]
        if not first <= level.version_of(key) <= last
    ]
    if not low:
        return ""
    return (
        f"take {', '.join(low)}, which protocol level {level.name} asks for: start this controller with --protocol and "
        "what they have as inter.broker.protocol.version"
    )
