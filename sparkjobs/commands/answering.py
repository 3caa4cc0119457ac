"""`klamm logs analyze | slo | stream` and `klamm report`: what follows from the lines."""

from __future__ import annotations

import click


def register(logs: click.Group, top: click.Group) -> None:
    """Filled in with the answers."""
