"""`klamm reassign` and `klamm elect`: move replicas with Kafka's JSON files, and elect leaders by hand.

Both select partitions by the same options, in Kafka's words, and print the outcome of each partition.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

import click

from controller.cli.options import (
    FORMATS,
    example,
    ids_of,
    output_option,
    show_repeatedly,
    timeout_option,
    url_option,
    watch_option,
)
from controller.cli.output import CliError, Column, Item, UnreachableClusterError, emit, emit_items, print_table
from controller.cli.partitions import ids_text, name_of
from controller.cli.topics import path_of

if TYPE_CHECKING:
    from controller.cli.plans import Plan
    from controller.cli.remote import Remote

#: a body of the API has at most 1 MiB
PARTITIONS_PER_REQUEST: Final = 2_000
#: not done, and nothing is wrong
NEEDLESS: Final = ("NONE", "ELECTION_NOT_NEEDED", "NO_REASSIGNMENT_IN_PROGRESS")

OUTCOME_COLUMNS = (
    Column("PARTITION", name_of),
    Column("RESULT", lambda outcome: "done" if outcome["code"] == "NONE" else outcome["code"]),
    Column("DETAIL", lambda outcome: outcome["detail"].removeprefix(f"{name_of(outcome)}: ") or "-"),
)

_F = TypeVar("_F", bound=Callable[..., Any])


def selection_options(function: _F) -> _F:
    """--topic and --partition, --file, or --all."""
    for option in (
        click.option("--all", "everything", is_flag=True, help="All partitions that need it."),
        click.option("--file", type=click.File("rb"), help="Those that Kafka's JSON file names; - is standard input."),
        click.option("--partition", type=click.IntRange(0), help="Its number."),
        click.option("--topic", help="One partition: its topic."),
    ):
        function = option(function)
    return function


def selected(
    topic: str | None, partition: int | None, file: IO[bytes] | None, everything: bool
) -> list[dict[str, Any]] | None:
    """Returns the partitions by topic and number; None: all."""
    from controller.cli.plans import names_in  # noqa: PLC0415

    if (topic is None) != (partition is None):
        raise click.UsageError("--topic and --partition go together")
    if (topic is not None) + (file is not None) + everything != 1:
        raise click.UsageError("give one of: --topic with --partition, --file, or --all")
    if file is not None:
        return names_in(file.read(), file.name)
    return None if everything else [{"topic": topic, "partition": partition}]


def emit_outcomes(output: str, outcomes: Sequence[Item]) -> int:
    """Prints the outcome of each partition. Returns the exit code: 1 when one was refused."""
    items = sorted(outcomes, key=lambda one: (one["topic"], one["partition"]))
    document = {"partitions": items}
    emit(output, document, lambda is_wide: print_table(OUTCOME_COLUMNS, items, is_wide=is_wide), map(name_of, items))
    if not items and output in ("table", "wide"):
        click.echo("nothing to do", err=True)
    return 0 if all(one["code"] in NEEDLESS for one in items) else 1


PATH: Final = "/v1/reassignments"
POLL_INTERVAL_MS: Final = 500
#: the brokers are told of the end a little after it: until then a partition may look as before
TOLD_WITHIN_MS: Final = 3_000

REASSIGNMENT_COLUMNS = (
    Column("PARTITION", name_of),
    Column("ISR", lambda one: ids_text(one["isr"])),
    Column("ADDING", lambda one: ids_text(one["adding"])),
    Column("REMOVING", lambda one: ids_text(one["removing"])),
    Column("TARGET", lambda one: ids_text(one["target"])),
    Column("WAITS-FOR", lambda one: ids_text(one["waits_for"])),
    Column("GONE", lambda one: ids_text(one["gone"])),
)
PLAN_COLUMNS = (
    Column("PARTITION", name_of),
    Column("NOW", lambda one: ids_text(one["now"])),
    Column("PLANNED", lambda one: ids_text(one["replicas"])),
)
VERIFY_COLUMNS = (
    Column("PARTITION", name_of),
    Column("STATE", lambda one: one["state"]),
    Column("NOW", lambda one: ids_text(one["now"])),
    Column("PLANNED", lambda one: ids_text(one["replicas"])),
)


def register(group: click.Group) -> None:
    group.add_command(reassign)
    group.add_command(elect)


@click.group()
def reassign() -> None:
    """Move replicas: make a plan, carry it out, watch it, take it back."""


@reassign.command("list", epilog=example("klamm reassign list -o json"))
@url_option
@output_option
@watch_option
def list_reassignments(url: str | None, output: str, watch: bool) -> None:
    """List the reassignments that run, and which brokers each waits for."""
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    def show() -> int:
        emit_items(output, ask_cluster(url, lambda remote: remote.items(PATH)), REASSIGNMENT_COLUMNS, name_of)
        return 0

    sys.exit(show_repeatedly(show, watch=watch))


@reassign.command(epilog=example("klamm reassign generate --topic orders --brokers 1,2,3"))
@click.option("--topic", "names", multiple=True, help="A topic to lay out anew; may be given several times.")
@click.option("--file", type=click.File("rb"), help="Kafka's JSON file of topics to move; - is standard input.")
@click.option("--brokers", "broker_ids", callback=ids_of, help="Onto these: 1,2,3. Without it: all that are live.")
@click.option("--disable-rack-aware", is_flag=True, help="Place without a look at racks.")
@click.option("--seed", type=int, help="The same number draws the same plan.")
@url_option
@click.option("-o", "--output", type=click.Choice(FORMATS), default="json", show_default=True, help="How to print.")
def generate(
    names: tuple[str, ...],
    file: IO[bytes] | None,
    broker_ids: list[int] | None,
    disable_rack_aware: bool,
    seed: int | None,
    url: str | None,
    output: str,
) -> None:
    """Print a plan, in Kafka's JSON: topics laid out over brokers as new ones would be. Nothing is changed."""
    from controller.cli.plans import as_document, plan_for, topics_in  # noqa: PLC0415
    from controller.cli.remote import ask_cluster  # noqa: PLC0415
    from controller.core.decide.placement import Place  # noqa: PLC0415

    wanted = sorted({*names, *(topics_in(file.read(), file.name) if file is not None else ())})
    if not wanted:
        raise click.UsageError("name the topics by --topic or --file")

    async def question(remote: Remote) -> tuple[list[Item], list[Item]]:
        live = [one for one in (await remote.get("/v1/brokers"))["items"] if one["state"] != "gone"]
        found: list[Item] = []
        for name in wanted:
            await remote.get(path_of(name))  # that it is there
            found += await remote.items("/v1/partitions", {"topic": name})
        return live, found

    live, now = ask_cluster(url, question)
    racks = {one["id"]: None if disable_rack_aware else one["rack"] for one in live}
    chosen = list(racks) if broker_ids is None else sorted(set(broker_ids))
    if absent := [broker_id for broker_id in chosen if broker_id not in racks]:
        raise CliError(f"not live: {absent}; `klamm brokers list` shows who is")
    plan = plan_for(now, [Place(broker_id, racks[broker_id]) for broker_id in chosen], seed)
    before = {(one["topic"], one["partition"]): one["replicas"] for one in now}
    rows = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "now": before[one.topic, one.partition],
            "replicas": [*one.replicas],
        }
        for one in plan.partitions
    ]
    emit(output, as_document(plan), lambda wide: print_table(PLAN_COLUMNS, rows, is_wide=wide), map(name_of, rows))


@reassign.command(epilog=example("klamm reassign execute plan.json --wait"))
@click.argument("file", type=click.File("rb"))
@click.option("--save-current", type=click.Path(dir_okay=False, path_type=Path), help="Keep the way back in this file.")
@click.option("--wait", is_flag=True, help="Until all is done; Ctrl-C ends the waiting, not the reassignment.")
@timeout_option
@url_option
@output_option
def execute(
    file: IO[bytes], save_current: Path | None, wait: bool, timeout_ms: int, url: str | None, output: str
) -> None:
    """Carry out a plan: Kafka's JSON file, or - for standard input. It goes on by itself, over failovers too."""
    from controller.cli.plans import as_document, as_file, plan_of_now, read_plan  # noqa: PLC0415
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    plan = read_plan(file.read(), file.name)

    async def question(remote: Remote) -> list[Item]:
        if save_current is not None:
            planned = {(one.topic, one.partition) for one in plan.partitions}
            now = [one for one in await _partitions_of(remote, plan) if (one["topic"], one["partition"]) in planned]
            save_current.write_bytes(as_file(plan_of_now(now)))
        entries: Any = as_document(plan)["partitions"]
        return await _asked(remote, entries, timeout_ms)

    exit_code = emit_outcomes(output, ask_cluster(url, question))
    if wait and exit_code == 0:
        exit_code = _watch_to_the_end(url, plan, file.name)
    sys.exit(exit_code)


@reassign.command(epilog=example("klamm reassign verify plan.json"))
@click.argument("file", type=click.File("rb"))
@url_option
@output_option
@watch_option
def verify(file: IO[bytes], url: str | None, output: str, watch: bool) -> None:
    """Say how far a plan is; exit 1 while not all of it is complete."""
    from controller.cli.plans import read_plan  # noqa: PLC0415
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    plan = read_plan(file.read(), file.name)

    def show() -> int:
        rows = ask_cluster(url, lambda remote: _states_of(remote, plan))
        emit_items(output, rows, VERIFY_COLUMNS, name_of)
        return 0 if all(row["state"] == "complete" for row in rows) else 1

    sys.exit(show_repeatedly(show, watch=watch))


@reassign.command(epilog=example("klamm reassign cancel --all"))
@selection_options
@timeout_option
@url_option
@output_option
def cancel(
    topic: str | None,
    partition: int | None,
    file: IO[bytes] | None,
    everything: bool,
    timeout_ms: int,
    url: str | None,
    output: str,
) -> None:
    """Take reassignments back: replicas go where they were before."""
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    names = selected(topic, partition, file, everything)

    async def question(remote: Remote) -> list[Item]:
        wanted = names if names is not None else await remote.items(PATH)
        entries = [{"topic": one["topic"], "partition": one["partition"], "replicas": None} for one in wanted]
        return await _asked(remote, entries, timeout_ms)

    sys.exit(emit_outcomes(output, ask_cluster(url, question)))


async def _asked(remote: Remote, entries: Sequence[Item], timeout_ms: int) -> list[Item]:
    """Returns the outcome of each entry; large plans go in several requests."""
    outcomes: list[Item] = []
    for start in range(0, len(entries), PARTITIONS_PER_REQUEST):
        body = {"version": 1, "partitions": entries[start : start + PARTITIONS_PER_REQUEST]}
        outcomes += (await remote.write(PATH, body, timeout_ms))[1]["partitions"]
    return outcomes


async def _partitions_of(remote: Remote, plan: Plan) -> list[Item]:
    found: list[Item] = []
    for name in sorted({one.topic for one in plan.partitions}):
        found += await remote.items("/v1/partitions", {"topic": name})
    return found


async def _states_of(remote: Remote, plan: Plan) -> list[Item]:
    from controller.cli.plans import state_for  # noqa: PLC0415

    running = {(one["topic"], one["partition"]): one for one in await remote.items(PATH)}
    now = {(one["topic"], one["partition"]): one for one in await _partitions_of(remote, plan)}
    rows: list[Item] = []
    for one in plan.partitions:
        key = one.topic, one.partition
        replicas = now[key]["replicas"] if key in now else []
        state = state_for(one, running, now.get(key))
        rows.append(
            {
                "topic": one.topic,
                "partition": one.partition,
                "state": state,
                "now": replicas,
                "replicas": list(one.replicas),
            }
        )
    return rows


def _watch_to_the_end(url: str | None, plan: Plan, file_name: str) -> int:
    """Say how many are left whenever that changes; a cluster that changes its controller is asked again."""
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    said, idle_since = "", time.monotonic()
    try:
        while True:
            try:
                states = [row["state"] for row in ask_cluster(url, lambda remote: _states_of(remote, plan))]
                news = f"{states.count('complete')} of {len(states)} complete, {states.count('running')} running"
                if all(state == "complete" for state in states):
                    click.echo(news, err=True)
                    return 0
                if "running" in states:
                    idle_since = time.monotonic()
                elif time.monotonic() - idle_since > TOLD_WITHIN_MS / 1_000:
                    raise CliError(f"nothing runs any more, {news}; `klamm reassign verify {file_name}` shows the rest")
            except UnreachableClusterError as error:
                news, idle_since = str(error), time.monotonic()
            if news != said:
                click.echo(news, err=True)
            said = news
            time.sleep(POLL_INTERVAL_MS / 1_000)
    except KeyboardInterrupt:
        raise CliError(f"the reassignment goes on; `klamm reassign verify {file_name}` shows how far it is") from None


@click.command(short_help="Elect leaders by hand.", epilog=example("klamm elect --type preferred --all"))
@click.option("--type", "kind", type=click.Choice(["preferred", "unclean"]), required=True)
@selection_options
@timeout_option
@url_option
@output_option
def elect(
    kind: str,
    topic: str | None,
    partition: int | None,
    file: IO[bytes] | None,
    everything: bool,
    timeout_ms: int,
    url: str | None,
    output: str,
) -> None:
    """Elect the first replica (preferred) or, where nobody in sync is left, any that is online (unclean: data is lost).

    What needs no election is left as it is, which is no failure.
    """
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    names = selected(topic, partition, file, everything)
    starts = range(0, 1 if names is None else len(names), PARTITIONS_PER_REQUEST)
    pieces = [None if names is None else names[start : start + PARTITIONS_PER_REQUEST] for start in starts]

    async def question(remote: Remote) -> list[Item]:
        outcomes: list[Item] = []
        for piece in pieces:
            body = {"type": kind, "partitions": piece}
            outcomes += (await remote.write("/v1/elections", body, timeout_ms))[1]["partitions"]
        return outcomes

    sys.exit(emit_outcomes(output, ask_cluster(url, question)))
