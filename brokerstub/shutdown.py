"""Controlled shutdown: before a broker stops it asks the active controller to move its leaderships away.

It asks until nothing remains that could move, a few times, and then lets the broker stop anyway: a shutdown is never
prevented. Whom to ask is looked up anew each time. It ends no process and no session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import structlog

from brokerstub.fetch import Poster
from controller.base.config import BrokerConfig
from controller.core.codes import Code
from controller.wire import bodies
from controller.wire.bodies import ControlledShutdownAnswer
from controller.wire.client import ExchangeError
from controller.wire.signing import Incarnation, Signer

log = structlog.get_logger()


class Seat(NamedTuple):
    """Who is the active controller, as far as is known."""

    incarnation: Incarnation
    controller_epoch: int
    address: str


async def hand_over(
    http: Poster,
    own: Incarnation,
    config: BrokerConfig,
    controller_now: Callable[[], Seat | None],
    signer: Signer,
) -> bool:
    """Whether the controller said that nothing remains."""
    timeout_ms = config.controller_socket_timeout_ms
    reason = ""
    for attempt in range(config.controlled_shutdown_max_retries):
        if attempt:
            log.info("shutdown.delayed", broker_id=own.broker_id, reason=reason)
            await asyncio.sleep(config.controlled_shutdown_retry_backoff_ms / 1_000)
        controller = controller_now()
        if controller is None:
            reason = "no controller is known"
            continue
        address, url = controller.address, controller.address + bodies.CONTROLLED_SHUTDOWN
        epoch = {bodies.CONTROLLER_EPOCH: str(controller.controller_epoch)}
        headers = signer.headers_for("POST", url, b"{}", sender=own, receiver=controller.incarnation, more=epoch)
        try:
            status, body = await http.post(url, b"{}", headers, timeout_ms)
            reason = _obstacle_in(status, body)
        except (ExchangeError, msgspec.MsgspecError) as error:
            reason = f"{address}: {error}"
        if not reason:
            log.info("shutdown.granted", broker_id=own.broker_id, attempts=attempt + 1)
            return True
    log.warning("shutdown.uncontrolled", broker_id=own.broker_id, reason=reason)
    return False


def _obstacle_in(status: int, body: bytes) -> str:
    """Why the broker should not stop yet; empty when it may."""
    if status != 200:
        return f"the controller answered {status}"
    answer = bodies.decode(body, ControlledShutdownAnswer)
    if answer.error_code != Code.NONE:
        return f"the controller answered with code {answer.error_code}"
    if answer.remaining:
        first = answer.remaining[0]
        return f"{len(answer.remaining)} partitions are still led here, {first.topic}-{first.partition} among them"
    return ""
