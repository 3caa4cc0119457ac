"""The command `klamm`. It starts fast: a module that only one command needs is imported when that command runs."""

from __future__ import annotations


def main() -> None:
    """The entry point of the installed command."""
    from controller.cli.group import klamm  # noqa: PLC0415 - `import controller.cli.x` must not build the whole command

    klamm(prog_name="klamm")
