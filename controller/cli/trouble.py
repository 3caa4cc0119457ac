"""`klamm trouble`: what authors of Kafka clients have to stand, on the local cluster, from a seed.

It owns the words only. What happens is the supervisor's (`brokerstub/lab/troubles.py`).
"""

from __future__ import annotations

import time
from pathlib import Path
from random import SystemRandom

import click

from controller.cli.lab import explained, var_option
from controller.cli.options import Duration, example, output_option
from controller.cli.output import Item, emit

KINDS = ("lost-answers", "move-leader", "silent-broker", "slow-broker", "stale-leader", "unclean-election")


def register(group: click.Group) -> None:
    group.add_command(trouble)


@click.command(
    short_help="Trouble for Kafka's clients.", epilog=example("klamm trouble move-leader --topic orders --partition 0")
)
@click.argument("kind", required=False, type=click.Choice(KINDS))
@click.option("--topic", help="Of this topic; default: any, drawn.")
@click.option("--partition", type=click.IntRange(0), help="This partition; default: any, drawn.")
@click.option("--for", "for_ms", type=Duration(), help="How long it lasts.")
@click.option("--seed", help="What is not said is drawn from it; drawn when not given.")
@click.option("--count", type=click.IntRange(1, 10_000), default=1, show_default=True, help="One after the other.")
@click.option("--pause", "pause_ms", type=Duration(), default="3s", show_default=True, help="Between two of them.")
@output_option
@var_option
def trouble(
    kind: str | None,
    topic: str | None,
    partition: int | None,
    for_ms: int | None,
    seed: str | None,
    count: int,
    pause_ms: int,
    output: str,
    var: Path,
) -> None:
    """Have the clients of the local cluster meet trouble: a leader that moves, a stale leader that still answers, a
    slow or a silent broker, lost answers to Produce, an unclean election with truncation. Without KIND it is drawn.

    Each heals by itself, and is told in one sentence. The same seed draws the same, on the same topics.
    """
    import msgspec  # noqa: PLC0415

    from brokerstub.lab import remote  # noqa: PLC0415
    from brokerstub.lab.bodies import TroubleOrder  # noqa: PLC0415

    seed = seed or str(SystemRandom().randrange(1, 10**6))
    rows: list[Item] = []
    for number in range(1, count + 1):
        if number > 1:
            time.sleep(pause_ms / 1_000)
        each = seed if count == 1 else f"{seed}.{number}"
        with explained():
            wanted = msgspec.convert(
                {"kind": kind, "topic": topic, "partition": partition, "for_ms": for_ms, "seed": each}, TroubleOrder
            )
            done = remote.trouble(var, wanted)
        rows.append(msgspec.to_builtins(done))
        if output in ("table", "wide"):
            click.echo(f"{done.kind} (seed {done.seed}): {done.told}")
    if output not in ("table", "wide"):
        emit(output, {"troubles": rows}, lambda _: None, [f"{row['topic']}-{row['partition']}" for row in rows])
