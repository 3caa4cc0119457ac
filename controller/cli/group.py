"""The group `klamm`: its commands, how wrong usage is reported, and the shell's completion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import click

from controller.cli.options import example
from controller.cli.output import WrongUsageError

#: each has `register(group)`; none imports at its top a module that only a running command needs
MODULES: Final = (
    "lab",
    "run",
    "status",
    "topics",
    "partitions",
    "brokers",
    "configs",
    "reassign",
    "drains",
    "insights",
    "events",
    "logs",
)


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Wrong usage is said in one line, like every other error."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        command = "klamm" if error.ctx is None else error.ctx.command_path
        raise WrongUsageError(f"{error.format_message().rstrip('.')}. See `{command} --help`.") from None


class KlammGroup(click.Group):
    """The top of the command."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _in_one_line():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _in_one_line():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of a tour, not of the alphabet


@click.group(
    cls=KlammGroup,
    context_settings={"auto_envvar_prefix": "KLAMM", "help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def klamm() -> None:
    """A Kafka controller you can run, break, watch and measure.

    Every flag can be set by an environment variable: --partitions of `klamm topics create` by
    KLAMM_TOPICS_CREATE_PARTITIONS. Exit codes: 0 good, 1 not healthy or refused, 2 wrong usage, 3 cannot reach the
    cluster.
    """


@click.command(epilog=example("klamm completion bash"))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print completion code: `source <(klamm completion bash)`."""
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    kind = get_completion_class(shell)
    assert kind is not None  # click knows all three
    click.echo(kind(ctx.find_root().command, {}, "klamm", "_KLAMM_COMPLETE").source())


for _module in MODULES:
    if find_spec(f"controller.cli.{_module}") is not None:
        import_module(f"controller.cli.{_module}").register(klamm)
klamm.add_command(completion)
