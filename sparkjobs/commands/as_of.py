"""`klamm explain --at`, `klamm what-if kill --at`, `klamm diff`: a cluster as of a moment, from its own records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click
import msgspec

from sparkjobs.commands.shared import Moment as TimeType
from sparkjobs.commands.shared import example, moment_text, table
from sparkjobs.history.answers import election_of, is_secret
from sparkjobs.history.as_of import Moment, moment_of
from sparkjobs.history.cluster import NOBODY, Broker, Cluster, Name, Partition, PartitionStep, Step
from sparkjobs.history.elections import RULES, PartitionFate, fates, has_elr, rule_of, safe_order
from sparkjobs.records import RecordError

_F = TypeVar("_F", bound=Callable[..., Any])
#: rows of a list that a terminal shows before it says how many more there are
SHOWN: Final = 20
_DIFFERENCE: Final = ("what", "name", "before", "after")


class AtType(TimeType):
    """A time, or `end`: where the record ends."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return _END if value in ("end", _END) else super().convert(value, param, ctx)


_END: Final = -1


def register(logs: click.Group, top: click.Group) -> None:
    for command in (explain_at, what_if, diff):
        top.add_command(command)


def _options(function: _F) -> _F:
    options = (
        click.option("--mode", type=click.Choice(["zookeeper", "kraft"]), help="Which, where both records are there."),
        click.option("--chroot", help="Which cluster, where an ensemble has several: /kafka, or / for the root."),
        click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _moment(named: Sequence[str], at_ms: int, given: dict[str, Any], of: Name | None = None) -> Moment:
    try:
        return moment_of(named, None if at_ms == _END else at_ms, mode=given["mode"], chroot=given["chroot"], of=of)
    except (RecordError, OSError) as error:
        raise click.ClickException(str(error)) from None


def _as_of(moment: Moment) -> str:
    position = "offset" if moment.cluster.mode == "kraft" else "zxid"
    if moment.cluster.position < 0:
        return f"From {moment.rests_on}."
    until = "" if moment.next_ms is None else f", until {moment_text(moment.next_ms)}"
    when = f"{moment_text(moment.cluster.at_ms)}{until}"
    return f"As of {position} {moment.cluster.position} ({when}), from {moment.rests_on}."


@click.command(
    "explain",
    short_help="How a partition stood at a time, and why.",
    epilog=example("klamm explain orders-0 --at end var/zookeeper"),
)
@click.argument("which", metavar="TOPIC-PARTITION")
@click.argument("named", metavar="RECORDS...", nargs=-1, required=True)
@click.option("--at", "at_ms", type=AtType(), default="end", show_default=True, help="The time, or `end`.")
@_options
def explain_at(which: str, named: tuple[str, ...], at_ms: int, output: str, **given: Any) -> None:
    """How a partition stood, who could lead it, and what had been done to it: exactly, from records.

    RECORDS are folders with ZooKeeper's transaction logs and snapshots or KRaft's __cluster_metadata-0, of any number
    of nodes; a file with what kafka-topics --describe printed; or zookeeper://HOST:PORT/CHROOT, as it is now.
    """
    topic, _, number = which.rpartition("-")
    if not topic or not number.isdecimal():
        raise click.BadParameter(f"{which!r}; write it like orders-0", param_hint="TOPIC-PARTITION")
    name = topic, int(number)
    moment = _moment(named, at_ms, given, of=name)
    partition = moment.cluster.partitions.get(name)
    if partition is None:
        gone = [step for step, one in moment.past if one.after is None]
        why = f"it was deleted at {moment_text(gone[-1].at_ms)}" if gone else "no record names it"
        raise click.ClickException(f"there was no {which} then: {why}")
    if output == "json":
        is_led = moment.cluster.is_led(partition)
        _emit({"as_of": _head(moment), "partition": which, "state": partition, "is_led": is_led,
               "replicas": [_replica(moment.cluster, partition, one) for one in partition.replicas],
               "past": [{"at_ms": step.at_ms, "position": step.position, "said": _said(step, one, moment.cluster.mode)}
                        for step, one in moment.past]})  # fmt: skip
        return
    click.echo(_as_of(moment))
    click.echo(f"\n{which}: {_stands(moment.cluster, partition)}")
    rows = [_replica(moment.cluster, partition, one) for one in partition.replicas]
    table(("REPLICA", "BROKER", "IN-SYNC", "LEADS", "COULD-LEAD"), [tuple(one.values()) for one in rows])
    if moment.past:
        click.echo("\nWhat was done to it, the last of it:")
        for step, one in moment.past:
            click.echo(f"{moment_text(step.at_ms)}  {_said(step, one, moment.cluster.mode)}")


def _stands(cluster: Cluster, partition: Partition) -> str:
    isr = ", ".join(map(str, partition.isr)) or "nobody"
    if partition.leader == NOBODY:
        words = f"nobody led; in sync last: {isr}"
    elif not cluster.is_led(partition):
        words = f"broker {partition.leader} was named leader and is gone; in sync: {isr}"
    else:
        words = f"broker {partition.leader} led at leader epoch {partition.leader_epoch}; in sync: {isr}"
    if partition.elr:
        words += f"; eligible: {', '.join(map(str, partition.elr))}"
    if partition.is_recovering:
        words += "; elected uncleanly, not recovered yet"
    return words + (f"; partition epoch {partition.epoch}" if cluster.mode == "kraft" else "")


def _replica(cluster: Cluster, partition: Partition, broker: int) -> dict[str, object]:
    known = cluster.brokers.get(broker)
    is_in_sync = broker in partition.isr
    is_eligible = is_in_sync or (not partition.isr and broker in partition.elr)
    could = "yes" if known is not None and known.is_serving and is_eligible and not known.is_leaving else "no"
    return {
        "replica": broker,
        "broker": _broker_words(known),
        "in_sync": "yes" if is_in_sync else "eligible" if broker in partition.elr else "no",
        "leads": "yes" if broker == partition.leader else "no",
        "could_lead": could,
    }


def _broker_words(known: Broker | None) -> str:
    if known is None:
        return "gone"
    if known.is_fenced:
        return "fenced"
    return "shutting down" if known.is_leaving else "alive"


def _said(step: Step, change: PartitionStep, mode: str) -> str:
    before, after = change.before, change.after
    if after is None:
        return "deleted"
    if before is None:
        came = "found" if step.since_ms is not None else "created" if change.elects else "imported from ZooKeeper"
        return f"{came}, led by {_who(after.leader)}, in sync {list(after.isr)}"
    parts = []
    how = election_of(change, mode)
    if after.leader == NOBODY and before.leader != NOBODY:
        parts.append("nobody leads")
    elif how is not None:
        parts.append(f"{_who(after.leader)} elected ({how}), leader epoch {after.leader_epoch}")
    elif after.leader != before.leader:
        parts.append(f"{_who(after.leader)} leads, leader epoch {after.leader_epoch}")
    for words, old, new in (
        ("in sync", before.isr, after.isr),
        ("replicas", before.replicas, after.replicas),
        ("adding", before.adding, after.adding),
        ("removing", before.removing, after.removing),
        ("eligible", before.elr, after.elr),
    ):
        if old != new:
            parts.append(f"{words} {list(old)} to {list(new)}")
    if before.is_recovering and not after.is_recovering:
        parts.append("recovered")
    return "; ".join(parts) or f"written again, epoch {after.epoch}"


def _who(leader: int) -> str:
    return "nobody" if leader == NOBODY else f"broker {leader}"


@click.group("what-if", short_help="What would have happened at a time?")
def what_if() -> None:
    """What would have happened, by the rule of Kafka's controllers: from records, nothing is asked or written."""


@what_if.command(epilog=example("klamm what-if kill 2 --at end var/zookeeper"))
@click.argument("words", metavar="N... RECORDS...", nargs=-1, required=True)
@click.option("--at", "at_ms", type=AtType(), default="end", show_default=True, help="The time, or `end`.")
@_options
def kill(words: tuple[str, ...], at_ms: int, output: str, **given: Any) -> None:
    """If these brokers had died then: which partitions would be without a leader, and who would lead the others?

    Numbers are brokers, all other words RECORDS: folders with ZooKeeper's transaction logs and snapshots or KRaft's
    __cluster_metadata-0, a file with what kafka-topics --describe printed, or zookeeper://HOST:PORT/CHROOT.
    """
    brokers = sorted({int(one) for one in words if one.isdecimal()})
    named = [one for one in words if not one.isdecimal()]
    if not brokers or not named:
        raise click.UsageError("name brokers by their numbers, and the records: klamm what-if kill 4 7 --at end DIR")
    moment = _moment(named, at_ms, given)
    cluster = moment.cluster
    unknown = [one for one in brokers if one not in cluster.brokers]
    found = fates(cluster, set(brokers))
    order = safe_order(cluster, brokers)
    offline = [one for one in found if one.is_offline]
    already = sorted(name for name, one in cluster.partitions.items() if not cluster.is_led(one))
    if output == "json":
        _emit({"as_of": _head(moment), "killed": brokers, "not_alive": unknown, "rule": RULES[rule_of(cluster)],
               "offline": [_fate(one) for one in offline],
               "moved": [_fate(one) for one in found if one.is_moved and not one.is_offline],
               "shrunk": [_fate(one) for one in found if one.is_shrunk],
               "refused": [{"partition": _text(one.name), "why": one.refused} for one in found if one.refused],
               "concerned": len(found), "offline_before": [_text(one) for one in already],
               "safe_order": order.order, "blocked": {one: [_text(each) for each in names]
                                                      for one, names in order.blocked.items()}})  # fmt: skip
    else:
        _show_kill(moment, brokers, unknown, found, already)
        _show_order(order.order, {one: list(names) for one, names in order.blocked.items()})


def _show_kill(
    moment: Moment, brokers: list[int], unknown: list[int], found: list[PartitionFate], already: list[Name]
) -> None:
    cluster = moment.cluster
    click.echo(_as_of(moment))
    click.echo(f"Elections by the rule of {RULES[rule_of(cluster)]}.")
    if unknown:
        click.echo(f"Not alive then: {', '.join(map(str, unknown))}.")
    offline = [one for one in found if one.is_offline]
    moved = [one for one in found if one.is_moved and not one.is_offline]
    refused = [one for one in found if one.refused]
    click.echo(
        f"\nWithout {', '.join(map(str, brokers))}: {len(found)} of {len(cluster.partitions)} partitions concerned, "
        f"{len(offline)} without a leader, {len(moved)} led by another, {len(refused)} not told."
    )
    if offline:
        click.echo("Without a leader, as their last in-sync replicas would be gone:")
        table(("PARTITION", "LED-BY", "IN-SYNC", "KEPT"), [_row(one, cluster) for one in offline[:SHOWN]])
        _say_more(offline)
    if moved:
        leaders = Counter(each.partition.leader for one in moved for each in one.outcomes[:1])
        click.echo(
            "Led by another: " + ", ".join(f"broker {one} leads {count}" for one, count in sorted(leaders.items()))
        )
    for reason, count in Counter(one.refused for one in refused).items():
        click.echo(f"Not told of {count}: {reason}.")
    if already:
        click.echo(f"Without a leader before, too: {len(already)} ({_text(already[0])}, ...).")


def _row(one: PartitionFate, cluster: Cluster) -> tuple[object, ...]:
    kept = " or ".join(
        str(list(each.partition.elr if has_elr(cluster) else each.partition.isr)) for each in one.outcomes
    )
    return _text(one.name), one.before.leader, list(one.before.isr), kept


def _say_more(rows: Sequence[object]) -> None:
    if len(rows) > SHOWN:
        click.echo(f"... and {len(rows) - SHOWN} more: -o json has all")


def _show_order(order: list[int], blocked: dict[int, list[Name]]) -> None:
    if order:
        click.echo(f"Can be stopped one after the other, none coming back: {', '.join(map(str, order))}.")
    for broker, names in blocked.items():
        listed = ", ".join(_text(one) for one in names[:3])
        click.echo(
            f"{'Then stopping' if order else 'Stopping'} {broker} would leave {len(names)} without a leader: {listed}."
        )


def _fate(one: PartitionFate) -> dict[str, object]:
    outcomes = [{"order": each.order, "orders": each.orders, "state": each.partition} for each in one.outcomes]
    return {"partition": _text(one.name), "before": one.before, "outcomes": outcomes}


@click.command(
    short_help="What differs between two times.", epilog=example("klamm diff 2026-11-19T13:55 end var/zookeeper")
)
@click.argument("from_ms", metavar="TIME", type=AtType())
@click.argument("to_ms", metavar="TIME", type=AtType())
@click.argument("named", metavar="RECORDS...", nargs=-1, required=True)
@_options
def diff(from_ms: int, to_ms: int, named: tuple[str, ...], output: str, **given: Any) -> None:
    """What differs between two moments: brokers, controller, topics, leaders, replicas, ISRs, configuration."""
    one, other = _moment(named, from_ms, given), _moment(named, to_ms, given)
    rows = _differences(one.cluster, other.cluster)
    if output == "json":
        _emit({"from": _head(one), "to": _head(other),
               "differences": [dict(zip(_DIFFERENCE, row, strict=True)) for row in rows]})  # fmt: skip
    else:
        click.echo(_as_of(one))
        click.echo(_as_of(other))
        table(("WHAT", "NAME", "BEFORE", "AFTER"), rows)
        if not rows:
            click.echo("Nothing differs.")


def _differences(one: Cluster, other: Cluster) -> list[tuple[str, str, str | None, str | None]]:
    found: list[tuple[str, str, str | None, str | None]] = []

    def differ(what: str, name: str, before: object, after: object) -> None:
        if before != after:
            texts = (None if value is None else str(value) for value in (before, after))
            found.append((what, name, *texts))  # type: ignore[arg-type]

    differ("controller", "", one.controller, other.controller)
    for broker in sorted(one.brokers.keys() | other.brokers.keys()):
        states = [_broker_words(cluster.brokers.get(broker)) for cluster in (one, other)]
        differ("broker", str(broker), *states)
        epochs = [None if (known := cluster.brokers.get(broker)) is None else known.epoch for cluster in (one, other)]
        if None not in epochs:
            differ("broker restarted", str(broker), *epochs)
    for name in sorted(one.partitions.keys() | other.partitions.keys()):
        before, after = one.partitions.get(name), other.partitions.get(name)
        if before is None or after is None:
            differ("partition", _text(name), *("there" if each else None for each in (before, after)))
            continue
        differ("leader", _text(name), _who(before.leader), _who(after.leader))
        differ("in sync", _text(name), sorted(before.isr), sorted(after.isr))
        differ("replicas", _text(name), list(before.replicas), list(after.replicas))
        differ("eligible", _text(name), sorted(before.elr), sorted(after.elr))
    for target in sorted(one.configs.keys() | other.configs.keys()):
        old, new = one.configs.get(target, {}), other.configs.get(target, {})
        for key in sorted(old.keys() | new.keys()):
            differ(f"{target[0]} setting", f"{target[1] or 'default'} {key}", *shown(key, old.get(key), new.get(key)))
    return found


def shown(key: str, *values: str | None) -> list[str | None]:
    """Settings as anybody may read them: of secrets only that they changed."""
    if not is_secret(key):
        return list(values)
    return [None if one is None else f"(hidden {number})" for number, one in enumerate(values)]


def _head(moment: Moment) -> dict[str, object]:
    cluster = moment.cluster
    return {"mode": cluster.mode, "position": cluster.position, "at_ms": cluster.at_ms, "next_ms": moment.next_ms,
            "rests_on": moment.rests_on}  # fmt: skip


def _text(name: Name) -> str:
    return f"{name[0]}-{name[1]}"


def _emit(document: dict[str, object]) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
