"""How a command answers: tables for people, JSON and YAML with every key, bare names for pipes; and how it fails.

Colour is for terminals only, and means the same everywhere: green is good, yellow is worse, red is bad.

A failure is one clear line on standard error with the next step, and an exit code: 0 good, 1 not healthy or refused, 2
wrong usage, 3 cannot reach the cluster.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, Self

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

Item = Mapping[str, Any]

_STYLES: Final = {
    **dict.fromkeys(("green", "healthy", "online", "live", "active", "running"), "green"),
    **dict.fromkeys(
        ("yellow", "new", "under-replicated", "not-preferred", "draining", "loading", "frozen", "cut", "unknown"),
        "yellow",
    ),
    **dict.fromkeys(("red", "offline", "gone", "vacant", "silent", "killed", "exited", "none"), "red"),
}


class Column(NamedTuple):
    """One column of a table: its title and its text for an item."""

    title: str
    text: Callable[[Item], object]
    is_number: bool = False
    #: shown with -o wide only
    is_wide: bool = False


def style_of(text: str) -> str:
    """Returns the colour of a word, the same in every table; none for most."""
    return _STYLES.get(text, "")


def emit(output: str, document: object, table: Callable[[bool], None], names: Iterable[object]) -> None:
    """Print in the format asked for; `table` prints the table, wide or not."""
    if output == "json":
        import msgspec  # noqa: PLC0415

        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    elif output == "yaml":
        import yaml  # noqa: PLC0415

        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)
    elif output == "name":
        for name in names:
            click.echo(name)
    else:
        table(output == "wide")


def emit_items(output: str, items: Sequence[Item], columns: Sequence[Column], name: Callable[[Item], object]) -> None:
    """Print a list of things."""
    emit(output, items, lambda wide: print_table(columns, items, is_wide=wide), map(name, items))
    if not items and output in ("table", "wide"):
        click.echo("nothing found", err=True)


def emit_document(output: str, document: Item, names: Iterable[object]) -> None:
    """Print one thing of which no more is known than its keys: plain values as facts, lists of things as tables."""

    def table(is_wide: bool) -> None:
        plain = {key: value for key, value in document.items() if not _is_table(value)}
        print_facts([(title_of(key).lower(), text_of(value), style_of(text_of(value))) for key, value in plain.items()])
        for key, items in document.items():
            if key not in plain:
                click.echo(f"\n{title_of(key).lower()}:")
                print_table(columns_for(items), items, is_wide=is_wide)

    emit(output, document, table, names)


def columns_for(items: Sequence[Item]) -> list[Column]:
    """Returns a column per key; numbers to the right."""
    return [
        Column(
            title_of(key),
            partial(_text_at, key),
            not key.endswith("at_ms") and all(type(item[key]) in (int, float) for item in items),
        )
        for key in items[0]
    ]


def title_of(key: str) -> str:
    key = "at" if key == "at_ms" else key
    return key.removeprefix("is_").replace("_", "-").upper()


def text_of(value: object) -> str:
    """A value as a person would write it."""
    if value is None or value in ([], {}, ""):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {text_of(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ",".join(map(text_of, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _text_at(key: str, item: Item) -> str:
    value = item[key]
    return time_text(value) if key.endswith("at_ms") and isinstance(value, int) else text_of(value)


def time_text(at_ms: int) -> str:
    """Returns a moment, with its date and its zone."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def print_table(columns: Sequence[Column], items: Iterable[Item], *, is_wide: bool = False) -> None:
    """A table of items, its columns aligned."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from controller.base.log import printable  # noqa: PLC0415

    shown = [column for column in columns if is_wide or not column.is_wide]
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for column in shown:
        table.add_column(column.title, justify="right" if column.is_number else "left", no_wrap=True)
    for item in items:
        texts = [printable(str(column.text(item))) for column in shown]
        table.add_row(*(Text(text, style=style_of(text)) for text in texts))
    _print(table)


def print_facts(facts: Iterable[tuple[str, str, str]]) -> None:
    """Lines of title, value and the value's colour, the values aligned."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from controller.base.log import printable  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_header=False)
    for title, value, style in facts:
        table.add_row(Text(title, style="bold"), Text(printable(value), style=style))
    _print(table)


class Progress:
    """How far a wait is: one line on a terminal, renewed in place and gone at the end; elsewhere nothing."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._is_shown = self._stream.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.say("")

    def say(self, text: str) -> None:
        if self._is_shown:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\033[K{text[:width]}")
            self._stream.flush()


def _print(renderable: RenderableType) -> None:
    from rich.console import Console  # noqa: PLC0415

    console = Console(highlight=False)
    if console.is_terminal:
        console.print(renderable)
        return
    # into a pipe nothing is cut to a width, and no line ends with spaces
    plain = Console(highlight=False, no_color=True, width=100_000)
    with plain.capture() as capture:
        plain.print(renderable)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())


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
    """No broker answered, or the answer is not one of our clusters'."""

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
