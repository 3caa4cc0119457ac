"""Which models are checked, and the broken specifications, each of which lacks one clause and fails one invariant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tests.spec.tlc import HERE

#: module -> its invariants, its properties of each step, and its liveness properties
INVARIANTS: Final[Mapping[str, tuple[str, ...]]] = {
    "Seat": (
        "EpochsCountByOne",
        "EpochIsUsedOnce",
        "NothingAfterTheSuccessor",
        "WriterHoldsTheSeat",
        "OnlyItsOwnerVacates",
        "StampsNeverFall",
    ),
    "Partitions": (
        "LeaderIsInSync",
        "IsrIsNeverEmpty",
        "IsrIsAssigned",
        "OneLeaderAnEpoch",
        "WhoIsInSyncHasAll",
        "NobodyIsAhead",
    ),
    "Records": ("ReliedIsInSync", "ReadersAgree", "LogsMatch", "MarksAgree", "SaidIsLost"),
}
STEPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Seat": ("BrokersObeyUpwards",),
    "Partitions": (
        "LeaderEpochsCountDecisions",
        "WhoIsElectedLives",
        "BrokersObeyUpwards",
        "OnlyThisLifeObeys",
        "ViewsNeverFall",
        "MovesEndInSync",
        "ErasedIsDeleted",
        "DeletedStaysDeleted",
        "MovesAreInTheTables",
    ),
    "Records": ("RemovedIsSaid",),
}
LIVENESS: Final[Mapping[str, tuple[str, ...]]] = {
    "Seat": ("SomebodyRules",),
    "Partitions": ("EverythingIsLed", "DeletionsEnd"),
    "Records": ("LogsMeet",),
}


class Model(NamedTuple):
    """A module with its constants. The values of `alike` constants may be exchanged, where no liveness is checked."""

    name: str
    module: str
    constants: Mapping[str, str]
    alike: tuple[str, ...] = ()
    is_about_liveness: bool = False
    #: only states of which this is true are gone on from
    within: str | None = None


class Broken(NamedTuple):
    """A specification without a clause, the smallest model that shows it, and the property that fails. `also`: other
    clauses that would hide the omission."""

    module: str
    clause: str
    fails: str
    model: Model
    also: tuple[str, ...] = ()
    #: a system that had this bug
    known: str = ""

    @property
    def without(self) -> tuple[str, ...]:
        return (self.clause, *self.also)


def seats(processes: int, faults: int, brokers: int, *, liveness: bool = False) -> Model:
    names = tuple(f"p{number}" for number in range(1, processes + 1))
    constants = {
        **{name: name for name in names},
        "Processes": f"{{{', '.join(names)}}}",
        "Brokers": f"{{{', '.join(map(str, range(1, brokers + 1)))}}}",
        "MaxFaults": str(faults),
    }
    about = f"{processes} processes, {_said(faults, 'failure')}{', in the end' if liveness else ''}"
    return Model(about, "Seat", constants, () if liveness else names, liveness)


def partitions(
    about: str,
    *,
    count: int = 1,
    made: int | None = None,
    faults: int = 0,
    asked: int = 0,
    changes: int = 0,
    unclean: bool = False,
    liveness: bool = False,
) -> Model:
    """Three brokers. `made`: how many partitions are there as it begins."""
    constants = {
        "Brokers": "{1, 2, 3}",
        "Partitions": _set(count),
        "Made": _set(count if made is None else made),
        "First": "<- FirstOnes",
        "Target": "<- LastOnes",
        "Unclean": _set(1 if unclean else 0),
        "MaxFaults": str(faults),
        "MaxAsked": str(asked),
        "MaxChanges": str(changes),
        "OneStep": "TRUE",
    }
    return Model(about, "Partitions", constants, (), liveness)


def records(
    about: str,
    *,
    brokers: int = 3,
    writes: int = 2,
    elections: int = 0,
    changes: int = 0,
    faults: int = 0,
    unclean: bool = False,
    liveness: bool = False,
) -> Model:
    """One partition with a replica on each broker."""
    names = tuple(f"b{number}" for number in range(1, brokers + 1))
    constants = {
        **{name: name for name in names},
        "Brokers": f"{{{', '.join(names)}}}",
        "Unclean": "TRUE" if unclean else "FALSE",
        "MaxWrites": str(writes),
        "MaxElections": str(elections),
        "MaxChanges": str(changes),
        "MaxFaults": str(faults),
    }
    return Model(about, "Records", constants, () if liveness else names, liveness)


def _set(count: int) -> str:
    return f"{{{', '.join(map(str, range(1, count + 1)))}}}"


def models(depth: int = 0) -> list[Model]:
    """Those of `make spec`; with a depth, so many failures, wishes and changes more."""
    one, two = 1 + depth, 2 + depth
    return [
        seats(3, two, 1),
        seats(2, one, 1, liveness=True),
        partitions(f"two partitions: {_said(two, 'failure')}", count=2, faults=two),
        partitions(
            f"in-sync replicas: {_said(two, 'failure')}, {_said(one, 'change')}", faults=two, changes=one, unclean=True
        ),
        partitions(f"a topic is made, moved, deleted: {_said(one, 'wish')}", made=0, asked=one, changes=one),
        partitions(f"a move is taken back: {_said(two, 'wish')}", asked=two),
        partitions(f"operators: {_said(one, 'failure')}, 1 wish", faults=one, asked=1, changes=depth),
        partitions(f"in the end: {_said(one, 'failure')}", made=0, faults=one, liveness=True),
        partitions(f"in the end: 1 failure, {_said(one, 'wish')}", faults=1, asked=one, liveness=True),
        records(f"3 replicas: {_said(one, 'election')}, 1 change", elections=one, changes=1),
        records(
            f"2 replicas: {_said(two, 'failure')}",
            brokers=2,
            writes=1,
            elections=1,
            changes=1,
            faults=two,
            unclean=True,
        ),
        records(f"2 replicas, in the end: {_said(one, 'failure')}", brokers=2, elections=1, faults=one, liveness=True),
    ]


def _said(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what.replace('wish', 'wishe')}s"


def _small(**bounds: int) -> Model:
    return partitions("small", **bounds)  # type: ignore[arg-type]


def _logs(**bounds: int) -> Model:
    return records("small", **bounds)  # type: ignore[arg-type]


def _calm(**bounds: int) -> Model:
    """A model in which no process dies: the only faults are late requests."""
    return _logs(**bounds)._replace(within="NobodyDies")


_SEAT: Final = seats(2, 2, 1)
_SEAT_ENDS: Final = seats(2, 1, 1, liveness=True)
_ENDS_MADE: Final = partitions("small", made=0, faults=1, liveness=True)
_ENDS_ASKED: Final = partitions("small", faults=1, asked=1, liveness=True)
_RETURNING: Final = _logs(brokers=2, writes=1, changes=2, faults=2)
_LOGS_END: Final = records("small", brokers=2, elections=1, liveness=True)

BROKEN: Final = [
    Broken("Seat", "fence", "NothingAfterTheSuccessor", _SEAT, (), "KAFKA-6082"),
    Broken("Seat", "fence", "StampsNeverFall", _SEAT),
    Broken("Seat", "seat check", "WriterHoldsTheSeat", _SEAT),
    Broken("Seat", "one transaction", "EpochIsUsedOnce", _SEAT, ("note at once",)),
    Broken("Seat", "witness", "EpochIsUsedOnce", _SEAT, ("note at once",), "ours: the epoch that was used twice"),
    Broken("Seat", "note at once", "NothingAfterTheSuccessor", _SEAT),
    Broken("Seat", "write first", "EpochIsUsedOnce", _SEAT, ("note at once",)),
    Broken("Seat", "fresh version", "NothingAfterTheSuccessor", _SEAT),
    Broken("Seat", "ask again", "EpochIsUsedOnce", _SEAT),
    Broken("Seat", "own epoch", "EpochIsUsedOnce", _SEAT, (), "KAFKA-1096"),
    Broken("Seat", "release check", "OnlyItsOwnerVacates", _SEAT),
    Broken("Seat", "obey upwards", "BrokersObeyUpwards", _SEAT),
    Broken("Seat", "count by one", "EpochsCountByOne", _SEAT),
    Broken("Seat", "end with epoch", "SomebodyRules", _SEAT_ENDS),
    Broken("Partitions", "leader epoch", "LeaderEpochsCountDecisions", _small(faults=1)),
    Broken("Partitions", "leader epoch", "OneLeaderAnEpoch", _small(faults=1)),
    Broken("Partitions", "in sync", "LeaderIsInSync", _small(faults=1, changes=1)),
    Broken("Partitions", "adds nobody", "WhoIsInSyncHasAll", _small(faults=1, changes=1, asked=1)),
    Broken("Partitions", "last one", "IsrIsNeverEmpty", _small(faults=2)),
    Broken("Partitions", "live", "WhoIsElectedLives", _small(faults=1)),
    Broken("Partitions", "draining last", "WhoIsElectedLives", _small(faults=1, asked=1)),
    Broken("Partitions", "member life", "WhoIsInSyncHasAll", _small(faults=1, changes=1, asked=1), (), "KAFKA-14617"),
    Broken("Partitions", "maximal ISR", "WhoIsInSyncHasAll", _small(changes=1, asked=1)),
    Broken("Partitions", "target in sync", "MovesEndInSync", _small(asked=1)),
    Broken("Partitions", "isr follows", "IsrIsAssigned", _small(asked=1, changes=1)),
    Broken("Partitions", "newer only", "ViewsNeverFall", _small(faults=2)),
    Broken("Partitions", "this life", "OnlyThisLifeObeys", _small(faults=2)),
    Broken("Partitions", "obey upwards", "BrokersObeyUpwards", _small(faults=2)),
    Broken("Partitions", "commit first", "NobodyIsAhead", _small(faults=1)),
    Broken("Partitions", "all confirmed", "ErasedIsDeleted", _small(faults=1, asked=1)),
    Broken("Partitions", "remember deleted", "DeletedStaysDeleted", _small(made=0, faults=1, asked=1)),
    Broken("Partitions", "offline first", "MovesAreInTheTables", _small(asked=1)),
    Broken("Partitions", "tell again", "EverythingIsLed", _ENDS_MADE),
    Broken("Partitions", "try again", "DeletionsEnd", _ENDS_ASKED),
    Broken("Records", "whole ISR", "ReliedIsInSync", _logs(writes=1)),
    Broken("Records", "maximal ISR", "ReliedIsInSync", _logs(writes=1, changes=2)),
    Broken("Records", "in sync", "ReliedIsInSync", _logs(writes=1, elections=1, changes=1)),
    Broken("Records", "below the mark", "ReliedIsInSync", _logs(writes=1)),
    Broken("Records", "below the mark", "ReadersAgree", _logs(brokers=2, writes=2, elections=1)),
    Broken("Records", "begin low", "ReliedIsInSync", _logs(writes=1, elections=1)),
    Broken("Records", "member life", "ReliedIsInSync", _RETURNING, (), "KAFKA-14617"),
    Broken("Records", "all it began with", "ReliedIsInSync", _calm(writes=1, elections=1, changes=2, faults=1)),
    Broken("Records", "same epoch", "ReliedIsInSync", _calm(writes=1, elections=2, faults=1)),
    Broken("Records", "truncate", "LogsMatch", _logs(brokers=2, writes=3, elections=1)),
    Broken("Records", "truncate", "MarksAgree", _logs(brokers=2, writes=2, elections=1)),
    Broken("Records", "truncate", "LogsMeet", _LOGS_END),
    Broken(
        "Records", "by epoch", "ReliedIsInSync", _logs(brokers=2, writes=1, elections=1, faults=1), (), "KAFKA-1211"
    ),
    Broken("Records", "both epochs", "MarksAgree", _logs(brokers=2, writes=2, elections=2), (), "KAFKA-6361"),
    Broken("Records", "no further", "SaidIsLost", _logs(writes=2, elections=1)),
    Broken("Records", "say it", "RemovedIsSaid", _logs(writes=1, elections=1)),
    Broken("Records", "noticed first", "LogsMatch", _logs(writes=2, faults=2)),
]


def clauses(module: str) -> frozenset[str]:
    """Return the clauses that a module lists."""
    text = (HERE / f"{module}.tla").read_text(encoding="utf-8")
    found = re.search(r"AllClauses == \{(.*?)\}", text, re.DOTALL)
    if found is None:
        raise ValueError(f"{module}.tla names no clauses")
    return frozenset(re.findall(r'^\s*"([^"]+)"', found[1], re.MULTILINE))


def actions(module: str) -> frozenset[str]:
    """Return the actions of a module that its `Next` names, except for the action that a missing clause allows."""
    text = (HERE / f"{module}.tla").read_text(encoding="utf-8")
    defined = set(re.findall(r"^(\w+)(?:\([^)]*\))? ==", text, re.MULTILINE))
    following: set[str] = set()
    todo = ["Next"]
    while todo:
        body = re.search(rf"^{todo.pop()}(?:\([^)]*\))? ==(.*?)(?=^\S)", text, re.DOTALL | re.MULTILINE)
        for name in re.findall(r"\b([A-Z]\w+)\b", body[1] if body is not None else ""):
            if name in defined and name not in following:
                following.add(name)
                if name in ("Decide", "Delete"):
                    todo.append(name)
    return frozenset(following - {"Decide", "Delete", "Relabel", "VersionAfter"})


def config_of(model: Model, *, without: Iterable[str] = (), checked: Iterable[str] | None = None) -> str:
    """TLC's configuration; `checked` is all that the model can judge, unless it is given."""
    held = clauses(model.module) - set(without)
    lines = ["SPECIFICATION Spec", "CONSTANTS"]
    lines += [
        f"  {name} {value if value.startswith('<-') else f'= {value}'}" for name, value in model.constants.items()
    ]
    lines.append("  Clauses = {" + ", ".join(f'"{one}"' for one in sorted(held)) + "}")
    if model.alike:
        lines.append("SYMMETRY Alike")
    if model.within is not None:
        lines.append(f"CONSTRAINT {model.within}")
    wanted = set(judged(model) if checked is None else checked)
    invariants = [one for one in INVARIANTS[model.module] if one in wanted]
    properties = [one for one in (*STEPS[model.module], *LIVENESS[model.module]) if one in wanted]
    lines += [f"INVARIANT {one}" for one in invariants] + [f"PROPERTY {one}" for one in properties]
    return "\n".join(lines) + "\n"


def judged(model: Model) -> tuple[str, ...]:
    """Which invariants a model can judge."""
    if model.is_about_liveness:
        return LIVENESS[model.module]
    return (*INVARIANTS[model.module], *STEPS[model.module])
