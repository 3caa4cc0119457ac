"""The verdict on a history: every rule asked, findings with the story of the partition that each is about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.faults.checker import (
    rules_admin_requests,
    rules_broker_requests,
    rules_client_calls,
    rules_end,
    rules_isolation,
    rules_lists,
    rules_notifications,
    rules_read,
    rules_records,
    rules_seat,
    rules_stops,
    rules_tellings,
    rules_zookeeper,
)
from tests.faults.checker.history import History
from tests.faults.checker.replay import Key, replay
from tests.faults.checker.replay_facts import Known

STEP_RULES: Final = (*rules_seat.RULES, *rules_zookeeper.RULES)
RUN_RULES: Final = (
    *rules_tellings.RULES,
    *rules_lists.RULES,
    *rules_stops.RULES,
    *rules_admin_requests.RULES,
    *rules_broker_requests.RULES,
    *rules_read.RULES,
    *rules_notifications.RULES,
    *rules_isolation.RULES,
    *rules_records.RULES,
    *rules_client_calls.RULES,
    *rules_end.RULES,
)
#: their order begins anew where a tool deleted a state: versions, and leader epochs until brokers refuse
ORDERED: Final = (
    "s08_leader_epochs_rise_by_one_decision",
    "s28_no_older_state_follows_a_newer_one",
    "s28_full_lists_are_no_older_than_their_sender",
    "s28_new_replicas_are_told_to_be_new",
    "s34_lines_agree_with_writes",
)
#: of one rule so many findings are kept: the first ones say it
FINDINGS_PER_RULE = 5
#: of a partition's story the last lines are printed
STORY_LINES = 40


class Finding(NamedTuple):
    """A rule that was broken, and its evidence."""

    rule: str
    key: Key | None
    text: str
    zxid: int | None = None

    def __str__(self) -> str:
        where = "" if self.key is None else f" {self.key[0]}-{self.key[1]}"
        when = "" if self.zxid is None else f" at zxid {self.zxid:#x}"
        return f"{self.rule}{where}{when}: {self.text}"


def judge(history: History) -> list[Finding]:
    """Everything wrong with it; raises HistoryError for evidence that cannot be judged."""
    findings: list[Finding] = []
    known = None
    for step, world in replay(history):
        known = known or Known(world, history.unclean_default)
        known.note(step, world)
        for rule in STEP_RULES:
            for key, text in rule(history, step, world):
                findings.append(Finding(rule.__name__, key, text, step.commit.zxid))
    assert known is not None, "an empty history is refused"
    known.registrations = [*known.world.past, *known.world.registered.values()]
    for run_rule in RUN_RULES:
        findings += [Finding(run_rule.__name__, key, text) for key, text in run_rule(history, known)]
    return _few_of_each([one for one in findings if one.rule not in ORDERED or one.key not in known.robbed])


def _few_of_each(findings: list[Finding]) -> list[Finding]:
    kept: list[Finding] = []
    for one in findings:
        if sum(each.rule == one.rule for each in kept) < FINDINGS_PER_RULE:
            kept.append(one)
    return kept


def story_of(history: History, key: Key) -> list[str]:
    """The story of one partition, in order: its states, its assignment, the requests to its brokers, the faults."""
    topic, number = key
    told: list[tuple[int, str]] = []
    topic_id = None
    for step, world in replay(history):
        at_ms, who = step.commit.at_ms, world.sessions.get(step.commit.session)
        by = f"{step.commit.zxid:#x} by " + ("a tool" if who is None else f"broker {who}")
        told += [(at_ms, f"{by}: state {one.after}") for one in step.states if one.key == key]
        for one in step.topics:
            if one.name == topic:
                assigned = None if one.after is None else one.after.partitions.get(number)
                topic_id = topic_id if one.after is None else one.after.topic_id
                told.append((at_ms, f"{by}: assigned {assigned} ({topic_id})"))
        if step.is_claim:
            told.append((at_ms, f"{by}: epoch {step.epoch_after} claimed"))
    told += [(fault.at_ms, f"fault: {fault.kind} {fault.target}") for fault in history.faults]
    for rpc in history.rpcs:
        for row in (*(rpc.rows or ()), *rpc.stops):
            if (row.topic_id, row.partition) == (topic_id, number):
                text = f"broker {rpc.broker_id} answered {rpc.error_code} to {rpc.kind} of epoch {rpc.controller_epoch}"
                told.append((rpc.at_ms, f"{text}: {row}"))
    asked = (call for call in history.calls if call.outcome != "refused")  # that changed nothing
    told += [(call.begun_ms, f"asked: {call.what} {call.subject} -> {call.outcome}") for call in asked]
    start_ms = history.commits[0].at_ms
    return [f"{at_ms - start_ms:>8} ms  {text}" for at_ms, text in sorted(told, key=lambda one: one[0])]


def report(history: History, findings: list[Finding]) -> Iterator[str]:
    """For people: the broken rules, and the way there."""
    shown: set[Key] = set()
    for one in findings:
        yield str(one)
        if one.key is not None and one.key not in shown:
            shown.add(one.key)
            yield f"  the story of {one.key[0]}-{one.key[1]} (the last {STORY_LINES} lines)"
            yield from (f"  {line}" for line in story_of(history, one.key)[-STORY_LINES:])
