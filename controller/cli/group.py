"""The group `klamm`: its commands, how wrong usage is reported, and the shell's completion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

import click

from controller.cli.options import example
from controller.cli.output import WrongUsageError

#: modules by the heading of their commands in the help. Each module has `register(group)`; none imports at its top a
#: module that only a running command needs
SECTIONS: Final = {
    "A cluster on this machine": ("lab",),
    "The running cluster": (
        "status",
        "topics",
        "partitions",
        "brokers",
        "configs",
        "reassign",
        "drains",
        "insights",
        "events",
    ),
    "Logs and records": ("logs",),
    "Processes of their own, and real Kafka brokers": ("run",),
}
OTHERS: Final = "Help"


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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = {name: command for name, command in self.commands.items() if not command.hidden}
        width = formatter.width - 6 - max(map(len, shown))
        for section in dict.fromkeys(map(section_of, shown)):
            with formatter.section(section):
                formatter.write_dl(
                    [
                        (name, command.get_short_help_str(width))
                        for name, command in shown.items()
                        if section_of(name) == section
                    ]
                )


def section_of(command: str) -> str:
    """Returns the heading of a command in the help."""
    return _sections.get(command, OTHERS)


def _say_version(ctx: click.Context, param: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version  # noqa: PLC0415

        click.echo(f"klamm {version('klamm')}")
        ctx.exit()


@click.group(
    cls=KlammGroup,
    context_settings={"auto_envvar_prefix": "KLAMM", "help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_say_version, help="Show the version."
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


_sections: dict[str, str] = {}
for _section, _modules in SECTIONS.items():
    for _module in _modules:
        import_module(f"controller.cli.{_module}").register(klamm)
        _sections |= {name: _section for name in klamm.commands if name not in _sections}
klamm.add_command(completion)
