"""How a command fails: one clear line on standard error that says what to do next, and an exit code.

0 good, 1 not healthy or refused, 2 wrong usage, 3 cannot reach the cluster.
"""

from __future__ import annotations

from typing import IO, Any

import click


class CliError(click.ClickException):
    """Refused, or not healthy."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        from controller.base.log import printable  # noqa: PLC0415

        click.echo(f"klamm: {printable(' '.join(self.format_message().split()))}", file=file, err=file is None)


class WrongUsageError(CliError):
    """The command was not called as it must be."""

    exit_code = 2


class UnreachableClusterError(CliError):
    """Nobody answered, or not as a cluster of ours would."""

    exit_code = 3


class RefusedError(CliError):
    """The cluster said no. `code` is its stable name for the reason."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        self.status, self.code = status, code
        hint = _HINTS.get(code, "")
        super().__init__(f"{detail} ({code})" + (f"; {hint}" if hint else ""))


_HINTS = {
    "UNKNOWN_TOPIC_OR_PARTITION": "`klamm topics list` shows what there is",
    "TOPIC_ALREADY_EXISTS": "`klamm topics describe` shows how it differs",
    "INVALID_REPLICATION_FACTOR": "`klamm brokers list` shows who is live",
    "BROKER_ID_NOT_REGISTERED": "`klamm brokers list` shows who is there",
    "NOT_CONTROLLER": "`klamm wait --for controller` waits for one",
    "AUTHENTICATION_FAILED": "KLAMM_API_TOKEN must be the cluster's",
    "CLUSTER_AUTHORIZATION_FAILED": "KLAMM_API_TOKEN has the right to change things, KLAMM_READ_TOKEN has not",
    "FOREIGN_HOST": "ask at an address that the broker listens on",
}
