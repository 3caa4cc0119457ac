"""A good history, and for each rule of the checker an edit that violates it in one place."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from tests.faults.checker.history import Commit, History, Write
from tests.faults.checker.verdict import report
from tests.faults.story import Stage, staged

WORK_S = 10.0
Violation = Callable[[History], Any]

ANNOUNCED = b'{"version":1,"partitions":[{"topic":"orders","partition":0},{"topic":"nowhere","partition":7}]}'


async def a_life(stage: Stage) -> None:
    """A topic, a leader that dies and returns, a reassignment, a deletion, a move of the seat, announcements."""
    await stage.create("orders", {0: (1, 2, 3), 1: (2, 3, 1)})
    await stage.create("moving", {0: (1, 2)})
    await stage.create("doomed", {0: (3, 1)})
    await stage.rest()
    victim = stage.controller.broker_id
    stage.kill(victim)
    await stage.until(stage.gone(victim), "its registration goes")
    await stage.until(lambda: stage.cluster.active_ids, "another controls")
    stage.start(victim)
    await stage.rest()
    await stage.reassign("moving", {0: (2, 3)})
    await stage.rest()
    await stage.delete("doomed")
    await stage.rest()
    stage.write("/isr_change_notification/isr_change_0000000000", ANNOUNCED)
    stage.write("/log_dir_event_notification/log_dir_event_0000000000", b'{"version":1,"broker":2,"event":1}')
    await stage.rest()
    await stage.pause(WORK_S)  # for clients
    await stage.rest()


@cache
def good_bytes() -> History:
    outcome = staged(a_life, seed="good-2", records=True)
    assert outcome.findings == [], "\n".join(report(outcome.history, outcome.findings))
    return outcome.history


def a_good_history() -> History:
    """a copy to be spoiled."""
    good = good_bytes()
    names = ("commits", "rpcs", "heard", "broker_requests", "readings", "lines", "calls", "faults", "bugs")
    lists = {name: list(getattr(good, name)) for name in names}
    assert good.records is not None
    records = {name: list(getattr(good.records, name)) for name in good.records.__struct_fields__}
    return msgspec.structs.replace(good, records=msgspec.structs.replace(good.records, **records), **lists)


def states_in(history: History, topic: str = "orders") -> list[int]:
    """Where states of a topic were written."""
    return [
        index
        for index, commit in enumerate(history.commits)
        if any(f"/{topic}/" in one.path and one.path.endswith("/state") and one.data for one in commit.writes)
    ]


def with_state(place: int, topic: str = "orders", **said: Any) -> Violation:
    """The n-th write of this topic's states says something else."""

    def violate(history: History) -> None:
        index = states_in(history, topic)[place]

        def changed(one: Write) -> Write:
            is_meant = f"/{topic}/" in one.path and one.path.endswith("/state") and one.data
            return one._replace(data=json.dumps({**json.loads(one.data), **said}).encode()) if is_meant else one

        commit = history.commits[index]
        history.commits[index] = commit._replace(writes=tuple(map(changed, commit.writes)))

    return violate


def with_election(**said: Any) -> Violation:
    """The first election says something else."""

    def violate(history: History) -> None:
        places = states_in(history)
        is_first = [b'"leader_epoch":1' in b"".join(w.data for w in history.commits[one].writes) for one in places]
        with_state(is_first.index(True), **said)(history)

    return violate


def added(*writes: Write, session: int | None = None) -> Violation:
    """One more commit at the end, by the last controller unless another session is given."""

    def violate(history: History) -> None:
        last = history.commits[-1]
        claims = [
            one for one in history.commits if any(w.path == "/controller" and w.kind == "create" for w in one.writes)
        ]
        by = claims[-1].session if session is None else claims[session].session
        fence = (Write("check", "/controller_epoch", expected=2), Write("check", "/controller", expected=0))
        history.commits.append(Commit(last.zxid + 1, by, last.at_ms + 1, (*fence, *writes)))

    return violate


def with_topic(name: str, **said: Any) -> Violation:
    """Its znode is written once more, like this."""

    def violate(history: History) -> None:
        known = [w for c in history.commits for w in c.writes if w.path == f"/brokers/topics/{name}" and w.data][-1]
        data = json.dumps({**json.loads(known.data), **said}).encode()
        added(Write("set", known.path, data))(history)

    return violate


def with_rpc(is_meant: Callable[[Any], bool], **said: Any) -> Violation:
    def violate(history: History) -> None:
        index = max(index for index, one in enumerate(history.rpcs) if is_meant(one))
        history.rpcs[index] = history.rpcs[index]._replace(**said)

    return violate


def is_about_rows(one: Any) -> bool:
    return bool(one.kind == "leader-and-isr" and one.rows)


def with_row(**said: Any) -> Violation:
    def violate(history: History) -> None:
        index = max(index for index, one in enumerate(history.rpcs) if is_about_rows(one))
        rows = tuple(row._replace(**said) for row in history.rpcs[index].rows or ())
        history.rpcs[index] = history.rpcs[index]._replace(rows=rows)

    return violate


def without_checks(history: History) -> None:
    index = states_in(history)[-1]
    commit = history.commits[index]
    history.commits[index] = commit._replace(writes=tuple(one for one in commit.writes if one.kind != "check"))


def with_any_version(history: History) -> None:
    index = states_in(history)[-1]
    commit = history.commits[index]
    writes = tuple(one._replace(expected=-1) if one.kind == "set" else one for one in commit.writes)
    history.commits[index] = commit._replace(writes=writes)


def with_epochs_skipped(history: History) -> None:
    for index, commit in enumerate(history.commits):
        writes = tuple(
            one._replace(data=b"7") if one.path == "/controller_epoch" and one.data == b"2" else one
            for one in commit.writes
        )
        history.commits[index] = commit._replace(writes=writes)


def with_the_first_controllers_write(history: History) -> None:
    state = {"controller_epoch": 1, "leader": 1, "leader_epoch": 9, "isr": [1], "version": 1}
    added(Write("set", "/brokers/topics/orders/partitions/0/state", json.dumps(state).encode()), session=0)(history)


def with_a_dead_leader(history: History) -> None:
    """The last registration of broker 3 ends, an hour passes, and it is elected."""
    added(Write("delete", "/brokers/ids/3"))(history)
    history.commits[-1] = history.commits[-1]._replace(session=0)
    before = [w for c in history.commits for w in c.writes if w.path.endswith("orders/partitions/0/state") and w.data][
        -1
    ]
    state = json.loads(before.data)
    state |= {"leader": 3, "leader_epoch": state["leader_epoch"] + 1, "isr": [3], "controller_epoch": 2}
    added(Write("set", before.path, json.dumps(state).encode()))(history)
    history.commits[-1] = history.commits[-1]._replace(at_ms=history.commits[-2].at_ms + 3_600_000)


def with_a_dead_member(history: History) -> None:
    """The same, and it joins an ISR."""
    with_a_dead_leader(history)
    before = [w for c in history.commits for w in c.writes if w.path.endswith("moving/partitions/0/state") and w.data]
    shrunk, grown = json.loads(before[-1].data), json.loads(before[-1].data)
    shrunk |= {"isr": [2], "leader": 2}
    grown |= {"isr": [2, 3], "leader": 2}
    del history.commits[-1]
    for state in (shrunk, grown):
        added(Write("set", before[-1].path, json.dumps(state | {"controller_epoch": 2}).encode()))(history)
        history.commits[-1] = history.commits[-1]._replace(at_ms=history.commits[-2].at_ms + 3_600_000)


def with_a_topic_before_its_config(history: History) -> None:
    for index, commit in enumerate(history.commits):
        if any(one.kind == "delete" and one.path == "/brokers/topics/doomed" for one in commit.writes):
            kept = tuple(one for one in commit.writes if one.path != "/config/topics/doomed")
            history.commits[index] = commit._replace(writes=kept)


def with_two_lines_that_differ(history: History) -> None:
    line = next(one for one in history.lines if one["kind"] == "partition" and one.get("isr"))
    history.lines.append({**line, "leader": 77})


def without_a_line(history: History) -> None:
    first = next(one for one in history.lines if one["kind"] == "partition" and one.get("topic") == "orders")
    place = (first["topic_id"], first["partition"], first["version"])
    history.lines = [
        one for one in history.lines if (one.get("topic_id"), one.get("partition"), one.get("version")) != place
    ]


def with_a_topic_told_again(history: History) -> None:
    deleted = next(row for one in history.rpcs for row in one.rows or () if row.isr in ((3, 1), (1,), (3,)))
    last = history.rpcs[-1]
    row = deleted._replace(leader=1)
    history.rpcs.append(last._replace(kind="leader-and-isr", controller_epoch=9, sent_zxid=1 << 60, rows=(row,)))


def with_an_id_used_twice(history: History) -> None:
    orders = next(w for c in history.commits for w in c.writes if w.path == "/brokers/topics/orders")
    moving = next(i for i, c in enumerate(history.commits) if any(w.path == "/brokers/topics/moving" for w in c.writes))
    said = json.loads(orders.data)["topic_id"]
    commit = history.commits[moving]
    path = "/brokers/topics/moving"
    same = [one for one in commit.writes if one.path != path]
    made = next(one for one in commit.writes if one.path == path)
    made = made._replace(data=json.dumps({**json.loads(made.data), "topic_id": said}).encode())
    history.commits[moving] = commit._replace(writes=(*same, made))


def with_a_marker_dropped(history: History) -> None:
    begun = Write("create", "/admin/delete_topics/orders"), Write("delete", "/brokers/topics/orders/partitions/0/state")
    added(*begun)(history)
    added(Write("delete", "/admin/delete_topics/orders"))(history)


def with_no_order_kept(history: History) -> None:
    rows = [index for index, one in enumerate(history.rpcs) if is_about_rows(one) and not one.is_full]
    one = history.rpcs[rows[-1]]
    newer = tuple(row._replace(version=row.version + 5) for row in one.rows or ())
    history.rpcs.insert(rows[-1], one._replace(rows=newer))


BAD: dict[str, Violation] = {
    "s02_s09_states_carry_their_writers_epoch": with_state(-1, controller_epoch=1),
    "s08_leader_epochs_rise_by_one_decision": with_state(-1, leader_epoch=9),
    "s10_writes_name_the_version_they_expect": with_any_version,
    "s11_the_leader_is_in_the_isr": with_state(-1, leader=9),
    "s12_the_isr_is_never_empty": with_state(-1, isr=[]),
    "s13_the_isr_is_within_the_assignment": with_state(-1, isr=[1, 2, 3, 4]),
    "s14_clean_elections_add_no_member": with_election(leader=3, isr=[3, 4]),
    "s15_an_elected_leader_lives": with_a_dead_leader,
    "s16_isrs_grow_by_the_living_only": with_a_dead_member,
    "s17_unclean_choices_are_marked": with_election(leader=4, isr=[4]),
    "s20_assignments_have_a_shape": with_topic("orders", partitions={"0": [1, 1]}),
    "s21_s22_a_reassignment_ends_in_sync_or_goes_back": with_topic(
        "orders", partitions={"0": [8, 9], "1": [2, 3, 1]}, adding_replicas={}, removing_replicas={}
    ),
    "s23_a_deletions_marker_goes_last": with_a_topic_before_its_config,
    "s25_a_topics_id_never_changes": with_topic("orders", topic_id="another"),
    "s02_one_claimant_per_epoch": with_rpc(is_about_rows, controller_id=77),
    "s05_nothing_leaves_after_the_deadline": with_rpc(is_about_rows, sent_late_s=0.1),
    "s05_nothing_is_heard_of_a_controller_that_lost_its_session_long_ago": with_rpc(
        lambda one: one.controller_epoch == 1, at_ms=1 << 50
    ),
    "s06_no_broker_obeys_an_older_controller": with_rpc(is_about_rows, controller_epoch=1),
    "s07_no_incarnation_obeys_a_request_to_another": with_rpc(is_about_rows, broker_epoch=1),
    "s24_a_deleted_topic_is_not_led_again": with_a_topic_told_again,
    "s25_topic_ids_are_not_used_again": with_an_id_used_twice,
    "s28_the_first_things_told_are_everything": with_rpc(lambda one: one.is_full, is_full=False),
    "s28_no_older_state_follows_a_newer_one": with_no_order_kept,
    "s29_told_states_stood_in_zookeeper": with_row(leader=9),
    "s34_lines_agree_with_writes": with_two_lines_that_differ,
}
MORE: list[tuple[str, Violation]] = [
    ("s23_a_deletions_marker_goes_last", with_a_marker_dropped),
    ("s34_lines_agree_with_writes", without_a_line),
    (
        "s21_s22_a_reassignment_ends_in_sync_or_goes_back",
        with_topic("orders", partitions={"0": [1, 2, 3, 4], "1": [2, 3, 1]}, adding_replicas={}, removing_replicas={}),
    ),
    ("s02_one_claimant_per_epoch", with_rpc(is_about_rows, controller_id=1, controller_epoch=1)),
]


def without(index: int) -> Violation:
    def violate(history: History) -> None:
        del history.commits[index]

    return violate
