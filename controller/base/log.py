"""The process's own log: structlog and the standard library's loggers into one place, in one shape.

It owns the look of a line and keeps secrets out of it. The code that meets an event decides whether it is worth a line.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from controller.base.config import LIMITS

_SECRET_WORDS: Final = ("token", "secret", "password", "auth")
REDACTED: Final = "***"


def configure(destination: TextIO | Path, *, json: bool | None = None, level: str = "info") -> None:
    """Send all logging of this process to a stream or a (rotated) file. `json` None: JSON unless it is a terminal."""
    handler: logging.Handler
    if isinstance(destination, Path):
        is_terminal = False
        handler = RotatingFileHandler(
            destination,
            maxBytes=LIMITS.log_rotation_bytes,
            backupCount=LIMITS.log_files_kept,
            encoding="utf-8",
        )
    else:
        is_terminal = destination.isatty()
        handler = logging.StreamHandler(destination)
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        redact_secrets,
    ]
    is_json = not is_terminal if json is None else json
    rendering: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
        if is_json
        else [_for_a_terminal, structlog.dev.ConsoleRenderer(colors=is_terminal)]
    )
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=common,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    logging.basicConfig(force=True, handlers=[handler], level=level.upper())
    structlog.configure(
        processors=[*common, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


def printable(text: str) -> str:
    """Returns text that is safe in a terminal: a string from elsewhere must not move its cursor or set its title."""
    return "".join(one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in text)


def _for_a_terminal(_logger: WrappedLogger, _method: str, event_dict: EventDict) -> EventDict:
    return {key: printable(value) if isinstance(value, str) else value for key, value in event_dict.items()}


def redact_secrets(_logger: WrappedLogger, _method: str, event_dict: EventDict) -> EventDict:
    """Replace every value whose key names a secret, however deep."""
    return {key: _redacted(key, value) for key, value in event_dict.items()}


def _redacted(key: object, value: Any) -> Any:
    if isinstance(key, str) and any(word in key.lower() for word in _SECRET_WORDS):
        return REDACTED
    if isinstance(value, Mapping):
        return {inner: _redacted(inner, each) for inner, each in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(None, each) for each in value]
    return value
