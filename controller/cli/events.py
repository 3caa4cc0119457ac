"""`klamm events`: the controller's decisions, live; the stream survives failovers and loses nothing of a term."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from controller.cli.options import example, url_option
from controller.cli.output import Item

if TYPE_CHECKING:
    from controller.cli.remote import Remote

KINDS: Final = ("partition", "replica", "broker", "controller", "topic", "reassignment")
RETRY_S: Final = 0.5


def register(group: click.Group) -> None:
    group.add_command(events)


@click.command(short_help="What the controller decides, live.", epilog=example("klamm events --last 20"))
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens, over failovers too, until Ctrl-C.")
@click.option(
    "--last", type=click.IntRange(0, 10_000), default=50, show_default=True, help="So many of the past first."
)
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only these; may be given several times."
)
@click.option("--topic", help="Only lines about this topic.")
@url_option
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="How to print; json: a line of the state-change log each.",
)  # fmt: skip
def events(follow: bool, last: int, kinds: tuple[str, ...], topic: str | None, url: str | None, output: str) -> None:
    """Print lines of the state-change log from the controller's own stream: the last ones, and with --follow what
    comes."""
    import asyncio  # noqa: PLC0415

    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    def show(line: Item) -> None:
        if (kinds and line["kind"] not in kinds) or (topic is not None and line.get("topic") != topic):
            return
        click.echo(_json_of(line) if output == "json" else text_of(line))

    async def question(remote: Remote) -> None:
        last_id: str | None = None
        while True:
            path = f"/v1/events?last={last}&follow={'true' if follow else 'false'}"
            async for frame in remote.events(path, last_id, is_patient=follow):
                last_id = frame.id
                if frame.kind == "reset":
                    click.echo(
                        "# some lines were missed: another controller decides now, or too much happened", err=True
                    )
                else:
                    show(frame.data)
            if not follow:
                return
            await asyncio.sleep(RETRY_S)

    try:
        ask_cluster(url, question)
    except KeyboardInterrupt:
        return


def _json_of(line: Item) -> str:
    import msgspec  # noqa: PLC0415

    return msgspec.json.encode(line).decode()


def text_of(line: Item) -> str:
    """Returns a line for people: time, cause, subject, new state, reason."""
    at = datetime.fromtimestamp(line["at_ms"] / 1_000, UTC).strftime("%H:%M:%S.%f")[:-3]
    about = f"{line['kind']} {_name_of(line)}".rstrip()
    move = " -> ".join(str(line[side]) for side in ("source", "target") if side in line)
    facts: list[Any] = [f"leader {line['leader']}, epoch {line['leader_epoch']}"] if "leader" in line else []
    facts += [f"in sync {','.join(map(str, line['isr']))}"] if "isr" in line else []
    facts += (
        [f"{line['took_ms']:g} ms after the seat was seen vacant"]
        if line["kind"] == "controller" and "took_ms" in line
        else []
    )
    facts += [line["reason"]] if "reason" in line else []
    facts += [" ".join(f"{topic}-{said}" for topic, said in line["partitions"].items())] if "partitions" in line else []
    return (
        f"{at}  {line.get('event_id', '-'):>8}  {about:<28}  {move}{'; ' if facts and move else ''}{'; '.join(facts)}"
    )


def _name_of(line: Item) -> str:
    if "topic" in line:
        name = str(line["topic"]) + (f"-{line['partition']}" if "partition" in line else "")
        return f"{name} on {line['broker_id']}" if "broker_id" in line else name
    return str(line.get("broker_id", ""))
