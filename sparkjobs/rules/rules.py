"""The rules by the group that they walk through: a partition, a topic, single events, a whole cluster. No I/O.

Both executors go by this list: it says which events a question reads, and which function answers it. The rows of all
partitions are put together and sorted here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from sparkjobs.rules import (
    failovers,
    isr_timeline,
    kraft,
    leader_changes,
    moves,
    operations,
    outages,
    receipts,
    rpc_latency,
    truncations,
    zombies,
)
from sparkjobs.rules.coverage import coverage_of
from sparkjobs.rules.facts import Facts, Tally, in_order
from sparkjobs.rules.leader_changes import flapping_brokers, flapping_of
from sparkjobs.rules.moves import illegal_transitions_of
from sparkjobs.rules.rpc_latency import rpc_latency_of
from sparkjobs.rules.slo import Extent, slo_of
from sparkjobs.rules.tenures import lives_of_brokers, phases_of, silences_of, tenures_of
from sparkjobs.rules.zookeeper_outages import zookeeper_outages_of
from sparkjobs.tables.gold import GOLD, LogSpan
from sparkjobs.tables.silver import Row, SilverEvent

__all__ = ["flapping_of", "illegal_transitions_of", "rpc_latency_of"]


class Rule(NamedTuple):
    """One question about a partition or a topic, answered from its events alone and the cluster's facts."""

    events: frozenset[str]
    rows: Callable[[Sequence[SilverEvent], Facts], Iterator[Row]]


OF_PARTITION: Final[Mapping[str, Rule]] = {
    "partition_outages": Rule(outages.EVENTS, outages.outages_of),
    "leader_changes": Rule(leader_changes.EVENTS, leader_changes.leader_changes_of),
    "isr_timeline": Rule(isr_timeline.EVENTS, isr_timeline.isr_timeline_of),
    "unclean_elections": Rule(isr_timeline.EVENTS, isr_timeline.unclean_elections_of),
    "truncations": Rule(truncations.EVENTS, truncations.truncations_of),
    "zombies": Rule(zombies.EVENTS, zombies.obeyed_leaders_of),
    "replica_roles": Rule(kraft.EVENTS, kraft.replica_roles_of),
}
PARTITION_EVENTS: Final = moves.EVENTS.union(*(rule.events for rule in OF_PARTITION.values()))
OF_TOPIC: Final[Mapping[str, Rule]] = {
    "operations": Rule(operations.EVENTS, operations.operations_of),
    "stuck_ops": Rule(operations.EVENTS, operations.stuck_ops_of),
}
TOPIC_EVENTS: Final = frozenset[str]().union(*(rule.events for rule in OF_TOPIC.values()))
SINGLE_EVENTS: Final = moves.ILLEGAL_EVENTS | rpc_latency.EVENTS


def of_cluster(
    facts: Facts,
    tallies: Sequence[Tally],
    extents: Mapping[str, Extent],
    ended: Iterable[Any],
    changes: Iterable[Any],
    target: float,
    moved: Mapping[str, Iterable[Any]],
    only: Collection[str] = tuple(GOLD),
) -> Iterator[tuple[str, list[Row]]]:
    """Returns the tables that need all of a cluster. `ended` are its outages, `changes` its leader changes, `moved` the
    sums over the moves of single partitions; `only` the requested tables."""
    ended, changes, tallies = list(ended), list(changes), in_order(tallies)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for one in tallies:
        if one.broker is not None:
            first[one.broker] = min(one.first_ms, first.get(one.broker, one.first_ms))
            last[one.broker] = max(one.last_ms, last.get(one.broker, one.last_ms))
    lives = list(lives_of_brokers(facts, first, last))
    silences = list(silences_of(facts.cluster, lives))
    of_many = moves.MoveTotals(facts)
    if not {*moves.TABLES}.isdisjoint(only):
        of_many.take_lines(facts.moved)
    of_ours = of_many.rows()
    tables: dict[str, Callable[[], Iterable[Row]]] = {
        "controller_tenures": lambda: tenures_of(facts),
        "controller_phases": lambda: phases_of(facts),
        "broker_lives": lambda: lives,
        "zookeeper_outages": lambda: zookeeper_outages_of(facts, lives),
        "cluster_silences": lambda: silences,
        "failovers": lambda: failovers.failovers_of(facts, failovers.moves_of(changes, facts), ended),
        "leader_churn": lambda: leader_changes.churn_of(changes),
        "flapping": lambda: flapping_brokers(facts),
        "operations": lambda: operations.elections_asked(facts),
        "zombies": lambda: zombies.zombies_of(tallies, facts),
        "slo_daily": lambda: slo_of(ended, extents, facts.cluster, target, silences),
        "fencings": lambda: kraft.fencings_of(facts),
        "node_signs": lambda: kraft.node_signs_of(facts),
        "migration_states": lambda: kraft.migration_states_of(facts),
        "quorum_tenures": lambda: kraft.quorum_tenures_of(facts),
        "log_spans": lambda: [LogSpan(cluster=facts.cluster, from_ms=facts.first_ms, to_ms=facts.last_ms)],
        "coverage": lambda: coverage_of(tallies, facts),
        "illegal_transitions": lambda: moves.illegal_moves_of_many(facts.moved),
        "replica_lives": lambda: of_ours["replica_lives"],
        **{name: partial(moves.added_up, name, [*moved.get(name, ()), *of_ours[name]]) for name in moves.ADDED_UP},
    }
    for name, rows_of in tables.items():
        if name in only:
            yield name, list(rows_of())


def cut_at_deletion(extents: Mapping[str, Extent], facts: Facts) -> dict[str, Extent]:
    """A topic is observed until it is deleted, or to the end of the logs."""
    found = {}
    for topic, extent in extents.items():
        gone_ms = max(facts.deleted.get(topic, ()), default=-1)
        found[topic] = extent._replace(last_ms=gone_ms if gone_ms >= extent.last_ms else facts.last_ms)
    return found


#: columns that nearly tell rows apart
_HEAD: Final = 4
Answers = Mapping[str, Sequence[Row]]


def partition_rows(
    groups: Iterable[list[SilverEvent]],
    facts: Facts,
    only: Collection[str] = (*OF_PARTITION, *moves.TABLES),
    said: Mapping[tuple[str, int], list[moves.Move]] = MappingProxyType({}),
) -> dict[str, list[Row]]:
    """Returns the rows of the rules about partitions. `groups`: all events of a partition each; `only`: of these
    tables; `said`: moves that are no events."""
    tables: dict[str, list[Row]] = defaultdict(list)
    wanted = {name: rule for name, rule in OF_PARTITION.items() if name in only}
    book, are_moves_asked = moves.MoveTotals(facts), not {*moves.TABLES}.isdisjoint(only)
    done = set[tuple[str, int]]()
    for group in groups:
        found: dict[str, list[Any]] = {
            name: list(rule.rows([event for event in group if event.event in rule.events], facts))
            for name, rule in wanted.items()
        }
        if "leader_changes" in found:
            found["leader_changes"] = list(receipts.with_requests(found["leader_changes"], group, facts))
        for name, rows in found.items():
            tables[name] += rows
        if wanted.keys() >= {"leader_changes", "isr_timeline"}:
            tables["flapping"] += flapping_of(found["leader_changes"], found["isr_timeline"])
        if are_moves_asked:
            key = (str(group[0].topic), group[0].partition or 0)
            own = [move for event in group if (move := moves.move_in(event, facts)) is not None]
            book.take(*key, [*own, *said.get(key, ())])
            done.add(key)
    if are_moves_asked:
        for key in said.keys() - done:
            book.take(*key, said[key])
        tables.update(book.rows())
    return tables


def sorted_rows(rows: Iterable[Row]) -> list[Row]:
    """By all columns in order, `None` first."""
    rows = list(rows)
    if len(rows) < 2:
        return rows
    first = msgspec.structs.fields(rows[0])[:_HEAD]
    if any(column.default is None and None in set(map(attrgetter(column.name), rows)) for column in first):
        return sorted(rows, key=row_key)
    heads = list(map(attrgetter(*[column.name for column in first]), rows))
    order = sorted(range(len(rows)), key=heads.__getitem__)
    if len(set(heads)) == len(heads):
        return [rows[place] for place in order]
    found: list[Row] = []
    for _, places in groupby(order, key=heads.__getitem__):
        alike = [rows[place] for place in places]
        found += alike if len(alike) == 1 else sorted(alike, key=row_key)
    return found


def row_key(row: Row) -> tuple[Any, ...]:
    """Compares with that of any row of the same table."""
    values: Callable[[str], Any] = row.__getattribute__
    return tuple((value is not None, value) for value in map(values, row.__struct_fields__))
