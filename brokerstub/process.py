"""One broker process: its directories, its signals, and its exit code.

SIGTERM and Ctrl-C begin a controlled shutdown, a second one ends it. The parts of the process are in `runtime.py`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from contextlib import ExitStack, closing
from typing import Any, Final

import structlog

from brokerstub.identity import DataDirectory, DirectoryLockedError
from brokerstub.listeners import check_listeners, listeners_in
from brokerstub.registration import DuplicateBrokerError
from brokerstub.runtime import Runtime
from controller.base import log as process_log
from controller.base.config import BrokerConfig, ConfigError
from controller.kafka.protocol.access import Admission
from controller.security.exposure import check_exposure
from controller.security.secrets import Secrets, secrets_from
from controller.term.term import first_cause
from controller.zookeeper.port import ZooKeeperError

#: the errors of accept(2) then
OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
QUIET_S: Final = 10.0

log = structlog.get_logger()


def run_broker(config: BrokerConfig, admission: Admission | None = None, *, is_insecure: bool = False) -> int:
    """Runs until SIGTERM or Ctrl-C, and returns the exit code. An obstacle to the start is one clear line. `admission`:
    the clients that its SASL listeners let in. `is_insecure` lets it listen where others reach it though nothing guards
    it."""
    process_log.configure(sys.stderr)
    exit_code = 1
    try:
        secrets = secrets_from(os.environ)
        check_listeners(config, admission, is_insecure=is_insecure)
        hosts = [one.host for one in listeners_in(config.listeners) if not one.speaks_kafka]
        check_exposure(hosts, secrets, is_insecure=is_insecure)
        exit_code = asyncio.run(_run(config, secrets, admission))
    except* (DirectoryLockedError, DuplicateBrokerError, ConfigError, ZooKeeperError, OSError) as errors:
        log.critical("broker.failed", broker_id=config.broker_id, reason=str(first_cause(errors)))
    return exit_code


async def _run(config: BrokerConfig, secrets: Secrets, admission: Admission | None) -> int:
    stopping, hurrying = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (hurrying if stopping.is_set() else stopping).set()

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(ErrorThrottle())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    with ExitStack() as opened:
        directories = [opened.enter_context(closing(DataDirectory(path))) for path in config.log_directories]
        runtime = Runtime(config, directories[0], secrets, admission)
        living = asyncio.create_task(runtime.live())
        farewell = asyncio.create_task(_farewell(runtime, stopping, hurrying))
        try:
            await asyncio.wait((living, farewell), return_when=asyncio.FIRST_COMPLETED)
            if living.done():
                living.result()  # only an error ends a life by itself
            farewell.result()
            return 0
        finally:
            living.cancel()
            farewell.cancel()
            await asyncio.gather(living, farewell, return_exceptions=True)


class ErrorThrottle:
    """The complaints of asyncio, without repetitions: while no files are left, it reports a hundred times a second that
    it cannot accept a connection, which would fill the disk next."""

    def __init__(self) -> None:
        self._quiet_until = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in OUT_OF_FILES:
            loop.default_exception_handler(context)
        elif loop.time() >= self._quiet_until:
            self._quiet_until = loop.time() + QUIET_S
            log.error("connections.refused", reason=str(error))


async def _farewell(runtime: Runtime, stopping: asyncio.Event, hurrying: asyncio.Event) -> None:
    """Return when the process may end: after a controlled shutdown, or at the second signal."""
    await stopping.wait()
    log.info("broker.stopping", broker_id=runtime.config.broker_id)
    async with asyncio.TaskGroup() as group:
        handing_over = group.create_task(runtime.hand_over())
        hurry = group.create_task(hurrying.wait())
        await asyncio.wait((handing_over, hurry), return_when=asyncio.FIRST_COMPLETED)
        handing_over.cancel()
        hurry.cancel()
