"""`klamm up`, `down`, `ps`, the faults of a local cluster's brokers (kill, freeze, cut and back), `klamm trouble`, and
`klamm rates`.

`klamm trouble` gives authors of Kafka clients the stories that their clients have to withstand, from a seed. The module
owns the words only. The supervisor acts (`brokerstub/lab/troubles.py`), and `brokerstub.lab.remote` reaches it.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from click.core import ParameterSource

from controller.cli.options import Duration, example, output_option, show_repeatedly, watch_option
from controller.cli.output import CliError, Column, Item, UnreachableClusterError, emit, print_table

if TYPE_CHECKING:
    from brokerstub.lab.bodies import Order

#: in the place of a broker's id
CONTROLLER: Final = "controller"
TRY_NEXT: Final = (
    ("status", "who is the controller, is all well?"),
    ("topics create orders --partitions 6 --replication-factor 3", "something to lead"),
    ("kill controller", "and watch another broker take over; `start N` brings it back"),
    ("down", "end everything; data and logs stay"),
)


class Verb(NamedTuple):
    """How one of the verbs is said."""

    help: str
    done: str
    #: when it changed nothing
    idle: str


VERBS: Final = {
    "kill": Verb("SIGKILL: brokers N are gone at once.", "was killed", "does not run"),
    "stop": Verb("SIGTERM: brokers N shut down in an orderly way.", "has stopped", "does not run"),
    "start": Verb("Start brokers N again.", "was started", "runs already"),
    "freeze": Verb("SIGSTOP: brokers N stand still, their connections stay open.", "is frozen", "is frozen already"),
    "thaw": Verb("SIGCONT: frozen brokers N go on.", "goes on", "is not frozen"),
    "cut": Verb("Cut brokers N from ZooKeeper, or from another broker.", "is cut from {}", "is cut from {} already"),
    "heal": Verb("Undo every cut of brokers N.", "reaches {} again", "is cut from nobody"),
    "break-disk": Verb(
        "A log directory of each broker N fails.", "has lost a log directory", "has lost that one already"
    ),
    "mend-disk": Verb("Log directories of brokers N are repaired.", "has its log directories again", "misses none"),
}

var_option = click.option(
    "--var",
    envvar="KLAMM_VAR",
    show_envvar=True,
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("var"),
    show_default=True,
    help="Directory of the data, logs and pid files.",
)


def register(group: click.Group) -> None:
    for command in (up, down, ps, *(_command_for(name, verb) for name, verb in VERBS.items()), trouble, rates):
        group.add_command(command)


@contextmanager
def explained() -> Iterator[None]:
    """The lab's errors as the command's."""
    from brokerstub.lab.settings import LabError, NoLabError  # noqa: PLC0415

    try:
        yield
    except LabError as error:
        for line in error.lines:
            click.echo(f"  {line}", err=True)
        kind = UnreachableClusterError if isinstance(error, NoLabError) else CliError
        raise kind(str(error)) from None


@click.command(short_help="A local cluster: ZooKeeper and brokers.", epilog=example("klamm up --brokers 3"))
@click.option("--brokers", type=click.IntRange(1, 99), default=3, show_default=True)
@click.option("--port-base", type=click.IntRange(1, 65_000), default=8080, show_default=True, help="Broker N: plus N.")
@click.option("--no-records", is_flag=True, help="Brokers keep no records: cheap at 100,000 partitions.")
@click.option(
    "--kafka-port-base",
    type=click.IntRange(1, 65_000),
    default=9090,
    show_default=True,
    help="Broker N serves Kafka's clients on this plus N.",
)
@click.option("--zookeeper", metavar="HOST:PORT/CHROOT", help="Use this ZooKeeper instead of an embedded one.")
@click.option("--zookeeper-port", type=click.IntRange(1, 65_535), default=2181, show_default=True)
@click.option("--session-timeout-ms", type=click.IntRange(1_000, 60_000), default=4_000, show_default=True)
@click.option("--set", "properties", multiple=True, metavar="KEY=VALUE", help="A property of every broker.")
@click.option("--aggregate", is_flag=True, help="A Spark job keeps sums of the logs: /v1/aggregates, dashboard.")
@click.option("--timeout", "timeout_ms", type=Duration(), default="60s", show_default=True, help="To become healthy.")
@click.option("--broker-command", hidden=True, help="What runs as a broker, for tests.")
@var_option
@click.pass_context
def up(
    ctx: click.Context,
    /,
    properties: tuple[str, ...],
    timeout_ms: int,
    var: Path,
    no_records: bool,
    kafka_port_base: int,
    **settings: Any,
) -> None:
    """Start a cluster on this machine and wait until it is healthy. When one runs already, nothing changes."""
    from brokerstub.lab import remote  # noqa: PLC0415
    from brokerstub.lab.settings import LabSettings, owner_pid, properties_for  # noqa: PLC0415

    with explained():
        if (pid := owner_pid(var)) is not None:
            _say_running(ctx, pid, var)
            return
        started = time.monotonic()

        def tell(news: str) -> None:
            click.echo(f"{time.monotonic() - started:5.1f} s  {news}")

        settings["kafka_port_base"] = None if no_records else kafka_port_base
        lab = LabSettings(var=var.resolve(), properties=properties_for(properties), **settings)
        remote.start(lab, timeout_ms, tell)
        tell(f"healthy: {lab.brokers} brokers on a ZooKeeper at {lab.connect_string}")
        click.echo(f"\nThe dashboard: {remote.found(var).dashboard_url}")
        if lab.bootstrap_servers is not None:
            click.echo(f"Bootstrap servers, for Kafka's clients: {lab.bootstrap_servers}")
        click.echo("\nTry next:")
    name = _own_name()
    if _is_given(ctx, "var"):
        click.echo(f"  export KLAMM_VAR={shlex.quote(str(var))}")
    width = max(len(words) for words, _ in TRY_NEXT)
    for words, purpose in TRY_NEXT:
        click.echo(f"  {name} {words:<{width}}  # {purpose}")


def _is_given(ctx: click.Context, option: str) -> bool:
    """Returns whether the option was typed, or is in the environment for this command alone."""
    return ctx.get_parameter_source(option) is ParameterSource.COMMANDLINE


def _say_running(ctx: click.Context, pid: int, var: Path) -> None:
    """Raises CliError where another lab was asked for than runs."""
    from brokerstub.lab.settings import read_lab_file  # noqa: PLC0415

    found = read_lab_file(var)
    brokers = ctx.params["brokers"]
    if found is not None and _is_given(ctx, "brokers") and brokers != len(found.brokers):
        raise CliError(
            f"a lab of {len(found.brokers)} brokers runs in {var}, and not of {brokers}; nothing was changed; "
            "`klamm down` ends it, or give another directory with --var and other ports"
        )
    click.echo(f"A lab runs in {var} already (process {pid}); nothing was changed.")
    if found is not None:
        click.echo(f"The dashboard: {found.dashboard_url}")
        if found.bootstrap_servers is not None:
            click.echo(f"Bootstrap servers: {found.bootstrap_servers}")


@click.command(short_help="End the local cluster.", epilog=example("klamm down"))
@var_option
def down(var: Path) -> None:
    """End everything that `klamm up` started, and wait until it has ended; data and logs stay."""
    from brokerstub.lab import remote  # noqa: PLC0415

    with explained():
        ended = remote.end(var)
    click.echo(f"{len(ended)} processes have ended; data and logs stay in {var}" if ended else f"no lab runs in {var}")


@click.command(short_help="What runs where.", epilog=example("klamm ps -o wide"))
@output_option
@watch_option
@var_option
def ps(output: str, watch: bool, var: Path) -> None:
    """The local cluster's processes: the supervisor, ZooKeeper, the brokers."""

    def show() -> int:
        rows = _rows(var)
        emit(output, {"processes": rows}, lambda wide: _print_rows(rows, is_wide=wide), [row["name"] for row in rows])
        return 0

    sys.exit(show_repeatedly(show, watch=watch))


class BrokerName(click.ParamType[int | str]):
    """A broker's id, or the word `controller`."""

    name = "broker"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == CONTROLLER:
            return CONTROLLER
        if not (isinstance(value, str) and value.isdecimal() and value.isascii() and int(value) > 0):
            self.fail(f"{value!r} is no broker; give its id, such as 1, or the word {CONTROLLER}", param, ctx)
        return int(value)


def _command_for(name: str, verb: Verb) -> click.Command:
    def callback(brokers: tuple[int | str, ...], var: Path, **more: Any) -> None:
        from brokerstub.lab.bodies import Order  # noqa: PLC0415

        if more.get("one_way") and more.get("peer") is None:
            raise click.UsageError("--one-way needs --from: which broker is not to hear it")
        with explained():
            for broker in _ids_of(brokers, var):
                _carry_out(name, verb, Order(broker, **more), var)

    argument = click.argument("brokers", metavar="N...", type=BrokerName(), nargs=-1, required=True)
    command: Callable[..., Any] = var_option(argument(callback))
    for option in _options_for(name):
        command = option(command)
    words = "klamm freeze 2 --for 10s" if name == "freeze" else f"klamm {name} 2"
    own = "By the word `controller`, N is the broker that is the controller now."
    return click.command(name, help=f"{verb.help}\n\n{own}", short_help=verb.help, epilog=example(words))(command)


def _ids_of(brokers: Sequence[int | str], var: Path) -> list[int]:
    """Returns the ids, each once. Raises CliError where one of them is no broker of the lab: then nothing is done."""
    from brokerstub.lab import remote  # noqa: PLC0415

    ids = [_controller_id(var) if isinstance(one, str) else one for one in brokers]
    names = [row.name for row in remote.processes(var).processes]
    known = [name.removeprefix("broker-") for name in names if name.startswith("broker-")]
    if strangers := [one for one in ids if str(one) not in known]:
        raise CliError(f"there is no broker {strangers[0]} here, only {', '.join(known)}; nothing was done")
    return list(dict.fromkeys(ids))


def _controller_id(var: Path) -> int:
    from controller.cli.remote import ask_cluster  # noqa: PLC0415

    controller = ask_cluster(None, lambda remote: remote.controller(), var=var)
    if controller["phase"] != "active":
        raise CliError("there is no active controller now; `klamm wait --for controller` waits for one")
    return int(controller["broker_id"])


def _carry_out(name: str, verb: Verb, order: Order, var: Path) -> None:
    """Have the supervisor do it, and say what became of it."""
    from brokerstub.lab import remote  # noqa: PLC0415

    done = remote.order(var, name, order)
    other = "everybody" if name == "heal" else "ZooKeeper"
    other = other if order.peer is None else f"broker {order.peer}" + (", one way" if order.one_way else "")
    if not done.changed:
        click.echo(f"broker {order.broker} {verb.idle.format(other)}; it is {done.process.state}")
        return
    text = verb.done if name != "stop" or done.process.state == "stopped" else "did not stop in time: killed"
    tail = f" (process {done.process.pid}, {done.process.address})" if name == "start" else ""
    tail += f" for {order.for_ms / 1000:g} s" if order.for_ms is not None else ""
    click.echo(f"broker {order.broker} {text.format(other)}{tail}")


def _options_for(name: str) -> list[Callable[..., Any]]:
    """Returns the options of a verb besides the broker; each is a field of the order."""
    number = click.IntRange(0)
    match name:
        case "freeze":
            return [click.option("--for", "for_ms", type=Duration(), help="Thaw by itself after this long.")]
        case "break-disk" | "mend-disk":
            default = "the first good one" if name == "break-disk" else "all that failed"
            return [click.option("--dir", "dir", type=number, help=f"Which one, from 0; default: {default}.")]
        case "cut":
            return [
                click.option("--one-way", is_flag=True, help="Only what N sends to M is lost, in silence."),
                click.option("--from", "peer", metavar="M", type=number, help="Another broker, instead of ZooKeeper."),
            ]
        case "heal":
            return [click.option("--from", "peer", metavar="M", type=number, help="Only the way to this broker.")]
        case _:
            return []


def _rows(var: Path) -> list[Item]:
    """Returns the running processes; none when no lab runs."""
    import msgspec  # noqa: PLC0415

    from brokerstub.lab import remote  # noqa: PLC0415
    from brokerstub.lab.settings import owner_pid  # noqa: PLC0415

    if owner_pid(var) is None:
        return []
    with explained():
        return [msgspec.to_builtins(row) for row in remote.processes(var).processes]


def _state_text(row: Item) -> str:
    """Returns the state, with the exit code where it tells something."""
    is_telling = row["state"] == "exited" or (row["state"] == "stopped" and row["exit_code"])
    return f"{row['state']} ({row['exit_code']})" if is_telling and row["exit_code"] is not None else row["state"]


def _way_text(row: Item) -> str:
    """Returns whether the way to ZooKeeper is open."""
    if not row["name"].startswith("broker-"):
        return "-"
    return "cut" if row["cut"] else "connected"


def _peers_text(row: Item) -> str:
    """The brokers it is cut from; one way only, where it hears them but not they it."""
    names = [str(each) for each in row["cut_peers"]] + [f"{each} (one way)" for each in row["mute_peers"]]
    return ", ".join(names) or "-"


COLUMNS: Final = (
    Column("NAME", lambda row: row["name"]),
    Column("PID", lambda row: "-" if row["pid"] is None else row["pid"], is_number=True),
    Column("STATE", _state_text),
    Column("ADDRESS", lambda row: row["address"]),
    Column("ZOOKEEPER", _way_text),
    Column("CUT FROM", _peers_text, is_wide=True),
    Column("FAILED DIRS", lambda row: ",".join(map(str, row["broken_dirs"])) or "-", is_wide=True),
    Column("LOG", lambda row: row["log"] or "-", is_wide=True),
)


def _print_rows(rows: list[Item], *, is_wide: bool) -> None:
    if not rows:
        click.echo("no lab runs here; `klamm up` starts one", err=True)
        return
    print_table(COLUMNS, rows, is_wide=is_wide)
    for row in rows:
        if row["last_lines"]:
            click.echo(f"\nthe last lines of {row['log']}:")
            for line in row["last_lines"]:
                click.echo(f"  {line}")


def _own_name() -> str:
    """How this command was called, to be called again."""
    path = Path(sys.argv[0])
    return "klamm" if path.name != "klamm" or shutil.which("klamm") == str(path) else str(path)


KINDS = ("lost-answers", "move-leader", "silent-broker", "slow-broker", "stale-leader", "unclean-election")


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


@click.command(short_help="A producer and a consumer, with their rates.", epilog=example("klamm rates --for 5s"))
@click.option("--topic", default="orders", show_default=True)
@click.option("--per-second", type=click.IntRange(1, 100_000), default=500, show_default=True, help="Records.")
@click.option("--for", "for_ms", type=Duration(), help="End by itself; otherwise Ctrl-C ends it.")
@var_option
def rates(topic: str, per_second: int, for_ms: int | None, var: Path) -> None:
    """Write to a topic of the local cluster with `acks=all` and read it back, while brokers die.

    A line each second says how many records were acknowledged and read. The last one says whether each acknowledged
    record was read once, in order; otherwise the exit code is 1.
    """
    from brokerstub.lab import remote  # noqa: PLC0415

    try:
        from brokerstub.lab.rates import Traffic  # noqa: PLC0415
    except ImportError:
        raise CliError("this needs librdkafka: pip install confluent-kafka") from None
    with explained():
        servers = remote.found(var).bootstrap_servers
        if servers is None:
            raise CliError("these brokers keep no records: they were started with --no-records")
        traffic = Traffic(servers, topic, per_second)
    end = None if for_ms is None else time.monotonic() + for_ms / 1_000
    try:
        with suppress(KeyboardInterrupt):
            for one in traffic.run(lambda: end is not None and time.monotonic() >= end):
                away = [row["name"] for row in _rows(var) if row["state"] != "running"]
                note = f"   {', '.join(away)} does not run".replace("-", " ") if away else ""
                click.echo(f"acknowledged {one.acknowledged:5d}/s   consumed {one.consumed:5d}/s{note}")
        traffic.finish()
    finally:
        traffic.close()
    click.echo(traffic.book.verdict)
    sys.exit(1 if any(traffic.book.faults()) else 0)
