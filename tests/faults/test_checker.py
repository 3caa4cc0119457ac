"""The checker bites: for every rule, a good history made bad in one place is found, and the good one is not."""

from __future__ import annotations

from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest

from controller.core.events import DrainAsked
from controller.core.operations import Set
from controller.core.project.znodes import state_path
from tests.faults.checker.history import Call, Commit, Fault, History, HistoryError, Lag, Starved, Write
from tests.faults.checker.replay import State, replay
from tests.faults.checker.replay_facts import Written
from tests.faults.checker.rules_admin_requests import s26_preferred_elections_name_the_first_replica
from tests.faults.checker.verdict import RUN_RULES, STEP_RULES, judge, report
from tests.faults.hostile import HIDE, LOCK, REMOVE, hidden_topics
from tests.faults.malformed_znodes import STATE
from tests.faults.simulate.rest import unrest
from tests.faults.story import Stage, staged
from tests.faults.violations import BAD, MORE, Violation, a_good_history, states_in, with_state, without
from tests.faults.violations_admin_requests import BAD_ADMIN_REQUESTS
from tests.faults.violations_broker_requests import BAD_BROKER_REQUESTS, MORE_BROKER_REQUESTS, with_leave_to_stop
from tests.faults.violations_client_calls import (
    AS_ASKED,
    BAD_CLIENT_CALLS,
    MORE_CLIENT_CALLS,
    with_a_value_gone_with_its_topic,
    with_an_unclean_choice,
)
from tests.faults.violations_end import BAD_END, MORE_END, with_end, with_the_first_term_going_on
from tests.faults.violations_read import BAD_READ, EFFECT, HARMLESS, MORE_READ, with_states_read_late
from tests.faults.violations_records import BAD_RECORDS, MORE_RECORDS
from tests.faults.violations_seat import BAD_SEAT, MORE_SEAT, with_an_operator
from tests.faults.violations_tellings import BAD_TELLINGS, MORE_TELLINGS

VIOLATIONS = (
    BAD,
    BAD_TELLINGS,
    BAD_SEAT,
    BAD_ADMIN_REQUESTS,
    BAD_BROKER_REQUESTS,
    BAD_CLIENT_CALLS,
    BAD_END,
    BAD_READ,
    BAD_RECORDS,
)
MANY_MORE = (MORE, MORE_TELLINGS, MORE_SEAT, MORE_BROKER_REQUESTS, MORE_CLIENT_CALLS, MORE_END, MORE_READ, MORE_RECORDS)
CASES = [*chain(*(one.items() for one in VIOLATIONS)), *chain(*MANY_MORE)]


def test_a_run_without_harm_is_not_found_fault_with() -> None:
    assert judge(a_good_history()) == []


@pytest.mark.parametrize(("rule", "violate"), CASES)
def test_every_rule_finds_its_violation(rule: str, violate: Violation) -> None:
    history = a_good_history()
    violate(history)
    assert rule in {one.rule for one in judge(history)}


def test_every_rule_was_seen_to_bite() -> None:
    rules = {one.__name__ for one in (*STEP_RULES, *RUN_RULES)}
    assert rules == {rule for rule, _ in CASES}


def test_an_operator_may_delete_the_seat() -> None:
    history = a_good_history()
    with_an_operator(history)
    assert "s04_only_its_owner_vacates_the_seat" not in {one.rule for one in judge(history)}


def test_an_unclean_choice_may_be_made_where_it_is_asked_for() -> None:
    history = a_good_history()
    with_an_unclean_choice(cause=AS_ASKED)(history)
    assert {one.rule for one in judge(history)}.isdisjoint(
        {"s14_unclean_choices_were_allowed", "s17_unclean_choices_are_logged_as_such"}
    )


def test_a_value_may_go_with_its_topic_though_its_removal_was_refused() -> None:
    history = a_good_history()
    with_a_value_gone_with_its_topic(history)
    assert len(history.calls) > len(a_good_history().calls)
    assert judge(history) == []


def test_a_process_that_was_held_up_may_be_late() -> None:
    history = a_good_history()
    end_ms = history.commits[-1].at_ms
    late = Lag(end_ms, 1, 1, what="inbox", since_ms=end_ms - 1_500)
    with_end(lags=[late, late._replace(broker_id=2)])(history)
    history.faults.append(Fault(end_ms - 1_400, "freeze", broker_id=1))
    assert [one.text.partition(":")[0] for one in judge(history)] == ["broker 2"]


@pytest.mark.parametrize(("waited_ms", "is_found"), [(1_900, True), (2_100, False)])
@pytest.mark.parametrize("waiting", [(1, 2, 3), (None,)])
def test_the_seat_may_be_lost_on_a_machine_that_keeps_its_holder_or_zookeeper_from_running(
    waiting: tuple[int | None, ...], waited_ms: int, *, is_found: bool
) -> None:
    """For half a session time-out; what others waited, or these did earlier, explains nothing."""
    history = a_good_history()
    lost_ms = next(fault.at_ms for fault in history.faults if fault.can_move_seat)
    history.faults.clear()
    waits = [(lost_ms - ago_ms, ms, who) for who in waiting
             for ago_ms, ms in ((60_000, 9_000), (2_900, 1_000), (1_900, waited_ms - 1_000))]  # fmt: skip
    history.starved = [Starved(at_ms, at_ms + 900, ms, who) for at_ms, ms, who in [*waits, (lost_ms, 9_000, 77)]]
    assert ("l15_the_seat_moves_only_for_a_reason" in {one.rule for one in judge(history)}) == is_found


@pytest.mark.parametrize(("waited_ms", "is_found"), [(200, True), (400, False)])
def test_the_end_of_a_term_may_wait_for_a_processor(waited_ms: int, *, is_found: bool) -> None:
    history = a_good_history()
    with_the_first_term_going_on(history)
    history.starved = [Starved(history.commits[-1].at_ms, history.commits[-1].at_ms + 500, waited_ms)]
    assert ("l11_the_end_of_a_term_waits_for_nothing" in {one.rule for one in judge(history)}) == is_found


@pytest.mark.parametrize(("kind", "is_found"), [(HIDE, False), (LOCK, True)])
def test_a_broker_may_stop_that_leads_what_its_controller_could_not_read(kind: str, is_found: bool) -> None:
    history = a_good_history()
    with_leave_to_stop(history)
    led = {one.key for one in judge(history) if one.key is not None}
    history.hidden_topics = hidden_topics([Fault(0, kind, state_path(*key)) for key in led])
    assert bool(judge(history)) == is_found


@pytest.mark.parametrize(("kind", "is_found"), [(HIDE, False), (STATE, True)])
def test_a_state_that_may_not_be_read_is_read_after_its_notification_went(kind: str, *, is_found: bool) -> None:
    history = a_good_history()
    with_states_read_late(history)
    begun_ms = history.commits[0].at_ms
    for path in (state_path("orders", 0), state_path("nowhere", 7)):  # the notification names both
        history.faults.append(Fault(begun_ms, kind, path, lasts_ms=600_000))
    assert (EFFECT in {one.rule for one in judge(history)}) == is_found


def test_a_line_names_its_topic_where_a_tool_dropped_the_id() -> None:
    history = a_good_history()
    history.lines = [{**line, "topic_id": None} for line in history.lines]
    assert "s34_lines_agree_with_writes" not in {one.rule for one in judge(history)}
    history.lines = [{**line, "topic": "another"} for line in history.lines]
    assert "s34_lines_agree_with_writes" in {one.rule for one in judge(history)}


@pytest.mark.parametrize(("is_succeeded", "topic_id"), [(False, "T"), (True, None)])
def test_only_the_term_that_made_a_topic_knows_the_id_that_a_tool_took_before_it_was_led(
    topic_id: str | None, *, is_succeeded: bool
) -> None:
    path, seat = "/brokers/topics/orders", Write("create", "/controller", b'{"brokerid":1}', is_ephemeral=True)
    with_id, without_id = (b'{"partitions":{"0":[1]}%s}' % rest for rest in (b',"topic_id":"T"', b""))
    writes = [seat, Write("create", "/brokers"), Write("create", "/brokers/topics"), Write("create", path, with_id),
              Write("set", path, without_id)]  # fmt: skip
    writes += [Write("delete", "/controller"), seat] if is_succeeded else []
    commits = [Commit(number, 1 if one is seat else 7, number, (one,)) for number, one in enumerate(writes, start=1)]
    *_, (_, world) = replay(History(commits))
    assert world.topics["orders"].topic_id == topic_id


def test_records_may_go_with_a_deletion_that_a_tool_called_off() -> None:
    """Brokers had deleted replicas, and the next term knew nothing of it."""
    history = a_good_history()
    violate = BAD_RECORDS["s19_clean_elections_lose_nothing"]
    violate(history)
    lost = {one.key[0] for one in judge(history) if one.key is not None}
    markers = [f"/admin/delete_topics/{name}" for name in sorted(lost)]
    by_a_tool(*(Write(kind, path) for path in markers for kind in ("create", "delete")))(history)
    assert not any(one.rule.startswith("s19") for one in judge(history))


@pytest.mark.parametrize("violate", HARMLESS)
def test_a_malformed_notification_announces_nothing(violate: Violation) -> None:
    history = a_good_history()
    violate(history)
    assert not any(one.rule.startswith("s31") for one in judge(history))


def test_a_finding_tells_the_story_of_its_partition() -> None:
    history = a_good_history()
    with_state(-1, leader=9)(history)
    said = "\n".join(report(history, judge(history)))
    assert "s11_the_leader_is_in_the_isr orders-" in said
    assert "epoch 2 claimed" in said
    assert "fault: kill" in said
    assert "answered 0 to leader-and-isr of epoch 2" in said


@pytest.mark.parametrize(("zxid", "is_found"), [(7, False), (9, True), (None, False)])
def test_a_line_is_about_its_own_commit_where_versions_begin_anew(zxid: int | None, is_found: bool) -> None:
    """A tool erased the state between the two commits."""
    led = State(leader=1, leader_epoch=1, isr=(1, 2), controller_epoch=1, recovery=0, version=1)
    other = led._replace(leader=2, isr=(2,))
    written = [
        Written(("orders", 0), "T", state, at, at, by_controller=True, before=state, replicas=(1, 2))
        for at, state in ((7, led), (9, other))
    ]
    line = {"kind": "partition", "topic_id": "T", "partition": 0, "version": 1, "cause": "preferred_election"}
    history = History([], lines=[line if zxid is None else {**line, "zxid": zxid}])
    known: Any = SimpleNamespace(written=written)
    assert bool(list(s26_preferred_elections_name_the_first_replica(history, known))) == is_found


def by_a_tool(*writes: Write) -> Violation:
    """Append commits of an unknown session at the end, one for each write."""

    def violate(history: History) -> None:
        for one in writes:
            last = history.commits[-1]
            history.commits.append(Commit(last.zxid + 1, 0x7000, last.at_ms + 1, (one,)))

    return violate


def test_what_was_told_before_a_tool_deleted_a_state_is_not_taken_for_what_was_told_after() -> None:
    """Versions begin anew there. Of other partitions the rule goes on to judge."""
    rule = "s28_new_replicas_are_told_to_be_new"
    history = a_good_history()
    BAD_TELLINGS[rule](history)
    first, *others = sorted({one.key for one in judge(history) if one.rule == rule and one.key is not None})
    by_a_tool(Write("delete", state_path(*first)))(history)
    left = {one.key for one in judge(history) if one.rule == rule}
    assert left >= {*others}
    assert first not in left


@pytest.mark.parametrize(("removed", "is_found"), [("/klamm", False), ("/klamm/draining", False), ("/admin", True)])
def test_a_term_goes_by_the_drain_that_it_noted_where_a_tool_took_the_note_away(removed: str, is_found: bool) -> None:
    history = a_good_history()
    parent, path = "/klamm/draining", "/klamm/draining/1"
    made = () if any(one.path == parent for commit in history.commits for one in commit.writes) else (parent,)
    note = Write("create", path, b'{"broker_epoch":1,"by":"hand"}')
    by_a_tool(*(Write("create", one) for one in made), note, Write("delete", path))(history)
    gone_ms = history.commits[-1].at_ms
    history.faults.append(Fault(gone_ms, REMOVE, removed))
    history.calls.append(Call("drain", "1", gone_ms + 20_000, gone_ms + 20_001, "ok", DrainAsked(1)))
    assert ("s30_granted_requests_were_carried_out" in {one.rule for one in judge(history)}) == is_found


def without_the_tree(path: str) -> Violation:
    """Let a tool delete a node with all below it, and make it again."""

    def violate(history: History) -> None:
        there: list[str] = []
        for commit in history.commits:
            for one in commit.writes:
                if one.kind == "create" and f"{one.path}/".startswith(f"{path}/"):
                    there.append(one.path)
                elif one.kind == "delete" and one.path in there:
                    there.remove(one.path)
        deleted = [Write("delete", one) for one in sorted(there, reverse=True)]
        by_a_tool(*deleted, Write("create", path))(history)

    return violate


STRANGE = {
    "an epoch of garbage": by_a_tool(Write("set", "/controller_epoch", b"seven")),
    "no epoch at all": by_a_tool(Write("set", "/controller_epoch", b"")),
    "an epoch of many digits": by_a_tool(Write("set", "/controller_epoch", b"9" * 5_000)),
    "an epoch that is gone": by_a_tool(Write("delete", "/controller_epoch")),
    "a broker id of many digits": by_a_tool(Write("create", f"/brokers/ids/{'9' * 5_000}", b"{}")),
    "a broker id over 31 bits": by_a_tool(Write("create", "/brokers/ids/4294967297", b"{}")),
    "a broker id in other digits": by_a_tool(Write("create", "/brokers/ids/٣", b"{}")),
    "a drain of nobody": by_a_tool(
        Write("create", "/klamm/draining"), Write("create", f"/klamm/draining/{'9' * 5_000}", b"{}")
    ),
    "a drain that is malformed": by_a_tool(
        Write("create", "/klamm/draining"), Write("create", "/klamm/draining/2", b"[]")
    ),
    "a state of many digits": by_a_tool(
        Write("create", f"/brokers/topics/orders/partitions/{'9' * 5_000}"),
        Write("create", f"/brokers/topics/orders/partitions/{'9' * 5_000}/state", b"{}"),
    ),
    "a configuration that is a list": by_a_tool(Write("create", "/config/brokers/<default>", b"[]")),
    "a configuration of numbers": by_a_tool(
        Write("create", "/config/brokers/<default>", b'{"config":{"unclean.leader.election.enable":1}}'),
    ),
    "brackets without end": by_a_tool(Write("set", "/brokers/topics/orders", b"[" * 100_000)),
}


@pytest.mark.parametrize("violate", STRANGE.values(), ids=STRANGE)
def test_a_tools_nonsense_is_judged_and_blamed_on_no_controller(violate: Violation) -> None:
    history = a_good_history()
    history.end = None
    violate(history)
    faults = [f"{how} /controller_epoch" for how in ("spoil", "delete")]
    history.faults += [Fault(history.commits[-1].at_ms, one) for one in faults]
    assert [one for one in judge(history) if one.rule.startswith("s01")] == []


@pytest.mark.parametrize(
    "path", ["/brokers/topics", "/brokers/ids", "/admin/delete_topics", "/isr_change_notification"]
)
def test_parents_that_are_deleted_with_all_below_them_are_judged(path: str) -> None:
    history = a_good_history()
    history.end = None
    without_the_tree(path)(history)
    judge(history)


def test_a_cluster_without_topics_or_sense_has_not_come_to_rest_and_says_why() -> None:
    async def play(stage: Stage) -> None:
        await stage.create("orders", {0: (1, 2, 3)})
        await stage.rest()
        zookeeper = stage.cluster.zookeeper
        state = "/brokers/topics/orders/partitions/0/state"
        sense = zookeeper.read(state) or b""
        zookeeper.commit(0, [Set(state, b"[]", -1)])
        assert "the state of orders-0 is malformed" in list(unrest(stage.cluster))
        zookeeper.commit(0, [Set(state, sense, -1)])
        parts = [state, "/brokers/topics/orders/partitions/0", "/brokers/topics/orders/partitions"]
        before = {path: zookeeper.tree.nodes[path] for path in (*parts, "/brokers/topics/orders", "/brokers/topics")}
        for path in before:
            del zookeeper.tree.nodes[path]
        assert "/brokers/topics is not there" in list(unrest(stage.cluster))
        zookeeper.tree.nodes.update(before)

    staged(play)


@pytest.mark.parametrize(
    "violate",
    [
        lambda history: history.commits.clear(),
        lambda history: history.commits.reverse(),
        lambda history: history.commits.append(history.commits[-1]),
        lambda history: without(states_in(history)[0])(history),
        lambda history: without(next(i for i in states_in(history) if history.commits[i].writes[-1].kind == "set"))(
            history
        ),
        without(0),
        lambda history: history.commits.__delitem__(slice(states_in(history)[-1], None)),
        lambda history: history.rpcs.clear(),
        lambda history: history.rpcs.__setitem__(
            slice(None), [one for one in history.rpcs if one.controller_epoch == 1]
        ),
    ],
    ids=[
        "nothing",
        "reversed",
        "doubled",
        "a creation missing",
        "a version missing",
        "the beginning missing",
        "the end missing",
        "no requests",
        "no requests of a term",
    ],
)
def test_a_truncated_or_unordered_history_is_refused(violate: Violation) -> None:
    history = a_good_history()
    violate(history)
    with pytest.raises(HistoryError):
        judge(history)
