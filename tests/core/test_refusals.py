"""Messages to people about a write that ZooKeeper refuses, and the new decisions about it."""

from __future__ import annotations

import pytest

from controller.core.belief.cluster import Cluster
from controller.core.belief.duties import Drain
from controller.core.changes.cluster import (
    Change,
    Committed,
    RefusalEnded,
    SubjectParked,
    WriteRefused,
)
from controller.core.changes.duties import (
    BrokerNoted,
    DrainEnded,
    FailedDirsNoted,
    TermRecorded,
)
from controller.core.codes import Code
from controller.core.decide.refused_writes import answers_for
from controller.core.events import TimePassed
from controller.core.project import refusals
from controller.core.project.lines import lines_for
from controller.core.project.refusals import remedy_for, sentence_for, trouble_of
from tests.builders import a_broker, a_cluster, steps_of
from tests.core.test_lines import STAMP

STATE = "/brokers/topics/orders/partitions/0/state"


def a_refusal(code: int, *, verb: str = "write", path: str = STATE, change: Change | None = None,
              below: tuple[str, ...] = (), attempts: int = 1, is_asked: bool = False) -> WriteRefused:  # fmt: skip
    held = SubjectParked("topic orders", "stands for any change") if change is None else change
    return WriteRefused(STATE, held.subject, held, verb, path, code, 3_723_000, 4_000, attempts, below, is_asked)


@pytest.mark.parametrize(
    ("refused", "name", "remedy"),
    [
        (a_refusal(-102), "NoAuth", "permission to write it (setAcl)"),
        (a_refusal(-102, verb="read"), "NoAuth", "permission to read it (setAcl)"),
        (a_refusal(-102, verb="create"), "NoAuth", "permission to create below /brokers/topics/orders/partitions/0 "),
        (a_refusal(-102, verb="delete", path="/klamm"), "NoAuth", "permission to delete below / (setAcl)"),
        (a_refusal(-111, verb="delete", below=("a", "b", "c", "d")), "NotEmpty", f"{STATE}/c and 1 more"),
        (a_refusal(-111, verb="delete"), "NotEmpty", f"see ls {STATE}"),
        (a_refusal(-101), "NoNode", "whether /brokers/topics/orders/partitions/0 is there"),
        (a_refusal(-103), "BadVersion", "Another client keeps changing it"),
        (a_refusal(-114), "InvalidACL", "KLAMM_ZOOKEEPER_AUTH"),
        (a_refusal(-108), "NoChildrenForEphemerals", "remove /brokers/topics/orders/partitions/0"),
        (a_refusal(-125), "QuotaExceeded", "setquota"),
        (a_refusal(-127), "ThrottledOp", "Nothing has to be done"),
        (a_refusal(refusals.TOO_LARGE), "TooLarge", "jute.maxbuffer"),
        (a_refusal(-999), "code -999", "log of ZooKeeper's servers"),
    ],
)  # fmt: skip
def test_each_code_has_its_name_and_a_remedy(refused: WriteRefused, name: str, remedy: str) -> None:
    assert trouble_of(refused).endswith(f"{refused.path}: {name}")
    assert remedy in remedy_for(refused)
    assert sentence_for(refused).endswith("So since 01:02:03 UTC; it is tried again every 4 s")


def test_a_refused_request_names_who_tries_again() -> None:
    assert sentence_for(a_refusal(-102, is_asked=True)).endswith("the caller was told, and may ask again")


def test_it_has_a_line_when_it_begins_and_one_when_it_ends() -> None:
    cluster = a_cluster()
    changes: list[Change] = [
        a_refusal(-102), a_refusal(-102, attempts=2), RefusalEnded(STATE, "topic orders", f"{STATE}: written"),
    ]  # fmt: skip
    lines = list(lines_for(cluster, [Committed(change) for change in changes], STAMP))
    assert [(line.kind, line.source, line.target, line.reason) for line in lines] == [
        ("controller", None, "refused", f"topic orders: ZooKeeper refuses to write {STATE}: NoAuth"),
        ("controller", "refused", "taken", f"topic orders: {STATE}: written"),
    ]
    cluster.apply([Committed(changes[0]), Committed(changes[1])])
    assert cluster.refused == {STATE: changes[1]}
    cluster.apply([Committed(changes[2])])
    assert cluster.refused == {}


def test_a_request_decided_as_a_whole_is_refused_as_a_whole() -> None:
    [answer] = answers_for(a_cluster(), a_refusal(-102, change=BrokerNoted(a_broker(1))))
    assert (answer.code, answer.partition) == (Code.OPERATION_NOT_ATTEMPTED, -1)


def with_refused(change: Change, *, is_asked: bool = False) -> Cluster:
    cluster = a_cluster()
    cluster.apply([Committed(a_refusal(-102, change=change, is_asked=is_asked))])
    return cluster


NOTES: list[Change] = [DrainEnded(1, "over"), FailedDirsNoted(1, -1, has_failed=False), TermRecorded(1, None)]


@pytest.mark.parametrize("change", NOTES, ids=lambda one: type(one).__name__)
def test_a_note_that_was_refused_is_wanted_again_as_time_passes(change: Change) -> None:
    assert steps_of(with_refused(change), TimePassed()) == [[change]]
    assert steps_of(with_refused(change, is_asked=True), TimePassed()) == [], "the caller was told"


def test_a_note_that_is_not_true_any_more_is_not_wanted_again() -> None:
    cluster = with_refused(FailedDirsNoted(7, 70, has_failed=True))
    assert steps_of(cluster, TimePassed()) == [], "there is no such broker"
    cluster = with_refused(DrainEnded(7, "over"))
    cluster.duties.drains[7] = Drain(70, is_shutdown=False)
    assert DrainEnded(7, "over") not in [change for step in steps_of(cluster, TimePassed()) for change in step]
