"""`klamm completion`: the shell code that completes the command's words."""

from __future__ import annotations

import click

from controller.cli.options import example


def register(group: click.Group) -> None:
    group.add_command(completion)


@click.command(epilog=example("klamm completion bash"))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print completion code: `source <(klamm completion bash)`."""
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    kind = get_completion_class(shell)
    assert kind is not None  # click knows all three
    click.echo(kind(ctx.find_root().command, {}, "klamm", "_KLAMM_COMPLETE").source())
