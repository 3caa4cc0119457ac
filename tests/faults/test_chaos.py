"""Chaos is drawn from its seed, does not count rounds that prove nothing, and returns its result as the exit code."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import pytest

from controller.core import events
from controller.core.events import Event
from controller.wire import bodies
from tests.faults.chaos import __main__ as command
from tests.faults.chaos.clients import ForeignClients
from tests.faults.chaos.foreign import ForeignProducer, Program
from tests.faults.chaos.harms import HARMS
from tests.faults.chaos.player import request_for
from tests.faults.chaos.pulse import late_in
from tests.faults.chaos.round import HITS_MIN, WARM_OK_MIN, Outcome, play, why_void
from tests.faults.chaos.schedule import CLIENTS, FIRE_S, NOT_WITH_RECORDS, schedule_for
from tests.faults.chaos.steps import STEPS
from tests.faults.chaos.tool import HANDS, READERS, refusal_of
from tests.faults.chaos.traces import leaks_in, unaudited
from tests.faults.checker.history import Call, Commit, History, Write
from tests.faults.checker.records import Copy, Kept, Records, records_in, sent_anew
from tests.faults.checker.verdict import Finding, report
from tests.faults.hostile import DELETE_EPOCH, HOSTILE, SPOIL_EPOCH
from tests.faults.operations import OPERATIONS
from tests.records.support import a_batch
from tests.waiting import until


def test_the_same_seed_draws_the_same_schedule_and_another_does_not() -> None:
    assert schedule_for("7.1") == schedule_for("7.1")
    assert schedule_for("7.1").acts != schedule_for("7.2").acts


def test_every_harm_is_drawn_and_aimed_at_every_role_and_step() -> None:
    acts = [act for number in range(150) for act in schedule_for(f"x.{number}", is_hostile=True).acts]
    assert {act.harm for act in acts} == set(HARMS) >= set(STEPS)
    assert {act.role for act in acts} == {"controller", "leader", "other", "any"}
    shapes = {(one.brokers, one.servers) for one in (schedule_for(f"x.{number}") for number in range(150))}
    assert shapes == {(3, 1), (3, 3), (4, 1), (4, 3)}


def test_faults_fall_within_their_time_and_clients_have_enough_to_ask() -> None:
    schedule = schedule_for("7.1")
    assert all(0 <= act.at_s < FIRE_S for act in schedule.acts)
    assert [len(asks) > 100 for asks in schedule.asks] == [True] * CLIENTS


def test_with_records_no_disk_is_lost_and_all_else_is_as_without() -> None:
    with_records = [schedule_for(f"x.{number}", has_records=True) for number in range(60)]
    drawn = {act.harm for schedule in with_records for act in schedule.acts}
    assert drawn >= HARMS.keys() - HANDS.keys() - set(NOT_WITH_RECORDS) - {"exhaust files", "block journal"}
    assert not drawn & set(NOT_WITH_RECORDS)
    assert [one.brokers for one in with_records] == [schedule_for(one.seed).brokers for one in with_records]


def test_a_hostile_tool_draws_apart_all_that_is_shared_and_all_else_falls_as_without() -> None:
    for number in range(60):
        alone, beside = schedule_for(f"x.{number}"), schedule_for(f"x.{number}", is_hostile=True)
        assert not {act.harm for act in alone.acts} & HANDS.keys()
        assert [act.at_s for act in alone.acts] == [act.at_s for act in beside.acts]
        others = {act for act in beside.acts if act.harm not in HANDS}
        assert others < set(alone.acts)
        assert (alone.has_big_topic, beside._replace(acts=(), is_hostile=False, has_big_topic=False)) == (
            False, alone._replace(acts=()),
        )  # fmt: skip
    assert {schedule_for(f"x.{number}", is_hostile=True).has_big_topic for number in range(60)} == {True, False}
    assert HANDS.keys() == {*HOSTILE, SPOIL_EPOCH, DELETE_EPOCH, READERS}


def test_records_of_foreign_clients_are_read_one_by_one_off_the_disk() -> None:
    log = a_batch([b"w1 1", None, b"w1 3"], base_offset=7, leader_epoch=2) + a_batch(
        [b"w1 4" * 50], base_offset=10, leader_epoch=0
    )
    kept = [Kept(7, 1, 2, "w1 1"), Kept(8, 1, 2, ""), Kept(9, 1, 2, "w1 3"), Kept(10, 1, 0, "w1 4" * 50)]
    assert list(records_in(log)) == kept
    assert list(records_in(log[:-1])) == kept[:3]
    assert list(records_in(log[:-1] + b"!")) == kept[:3]


def test_a_record_that_its_producer_sends_in_two_lives_is_no_repetition_and_in_one_life_it_is() -> None:
    parts = [(b"w1 1", 5, 0), (b"w1 2", 5, 0), (b"w1 1", 5, 1), (b"w1 2", 5, 0), (b"w2 3", -1, -1), (b"w2 3", -1, -1)]
    log = b"".join(
        a_batch([value], base_offset=offset, leader_epoch=0, producer=(producer_id, epoch, offset))
        for offset, (value, producer_id, epoch) in enumerate(parts)
    )
    kept = list(records_in(log))
    assert [one.life for one in kept] == [part[1:] for part in parts]
    assert sent_anew(kept) == {2}


def test_a_disk_that_has_other_records_than_a_consumer_could_read_is_told() -> None:
    clients = ForeignClients("", "T")
    clients._ends, clients._read = {0: 2}, {0: [(0, "w1 1"), (1, "w1 2")]}
    kept = (Kept(0, 1, 0, "w1 1"), Kept(1, 1, 0, "w1 2"), Kept(2, 1, 0, "w1 3"))
    clients.evidence.copies = [Copy(1, ("T", 0), 2, kept), Copy(2, ("T", 0), 2, kept[:1])]
    assert list(clients.unread()) == ["ledger-0: the disk of broker 2 and a consumer have 1 and 2 records"]


def test_each_hazard_of_the_plan_has_a_harm() -> None:
    named = {name for harm in HARMS.values() for name in harm.hazards.split()}
    assert named == {f"F{number}" for number in range(1, 21)}


@pytest.mark.parametrize(
    ("event", "method", "path"),
    [
        (events.CreateTopicAsked("t", 1, 3), "POST", "/v1/topics"),
        (events.DeleteTopicAsked("t", abandon_offline=True), "DELETE", "/v1/topics/t?abandon_offline=true"),
        (events.ReassignAsked({("t", 0): None}), "POST", "/v1/reassignments"),
        (events.UndrainAsked(2), "DELETE", "/v1/brokers/2/drain"),
    ],
)
def test_operations_are_asked_for_by_the_api(event: Event, method: str, path: str) -> None:
    assert request_for(event)[:2] == (method, path)


ROW = [0, 7, 1, 0, [1, 2], 0, [1, 2], [], [], [], False, 0]
TOLD = b'{"full":%b,"topics":[{"topic":"a","topic_id":"A","partitions":[%b]},' \
       b'{"topic":"b","topic_id":"B","partitions":[]}]}'  # fmt: skip


def told(full: bool) -> bytes:
    return b"POST / HTTP/1.1\r\n\r\n" + TOLD % (json.dumps(full).encode(), json.dumps(ROW).encode())


def test_a_disobedient_broker_refuses_all_that_is_told_with_its_topic_and_obeys_full_lists() -> None:
    answer = refusal_of(told(False), "B")
    assert answer is not None
    head, _, body = answer.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert bodies.decode(body, bodies.Answer) == bodies.Answer(0, [bodies.Refusal("A", 0, -1)])
    assert refusal_of(told(False), "C") is None
    assert refusal_of(told(True), "B") is None


class AnyPlayer:
    """Three brokers, and topics of two partitions."""

    broker_ids = (1, 2, 3)

    def assignment(self, topic: str) -> Mapping[int, Sequence[int]]:
        return {0: (1, 2), 1: (2, 3)}

    def write(self, path: str, data: bytes) -> None:
        assert path.startswith("/admin/")


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_can_be_asked_for_by_the_api_or_by_a_node(name: str) -> None:
    for seed in range(20):
        asked = OPERATIONS[name](AnyPlayer(), Random(seed))
        assert asked is None or request_for(asked[2])[1].startswith("/v1/")


def test_a_round_whose_load_was_too_low_or_whose_faults_missed_does_not_count() -> None:
    assert why_void(WARM_OK_MIN, hits=Counter(kill=6), misses=Counter(freeze=4)) == []
    assert "before the first fault" in why_void(WARM_OK_MIN - 1, hits=Counter(kill=1), misses=Counter())[0]
    missed = why_void(WARM_OK_MIN, hits=Counter(kill=5), misses=Counter(freeze=5))
    assert HITS_MIN > 0.5
    assert missed == ["5 of 10 faults hit, {'freeze': 5} missed"]


def test_a_secret_is_found_wherever_it_stands_and_a_grant_without_its_line_too(tmp_path: Path) -> None:
    (tmp_path / "broker.log").write_text("nothing\n")
    write = Write("create", "/brokers/topics/t", b"the s3cret")
    commits = [Commit(7, 1, 0, (write,))]
    assert list(leaks_in(["another"], [tmp_path], commits)) == []
    assert list(leaks_in(["s3cret"], [tmp_path], commits)) == ["a secret was written to /brokers/topics/t at 0x7"]
    (tmp_path / "broker.log").write_text("it is s3cret\n")
    assert len(list(leaks_in(["s3cret"], [tmp_path], commits))) == 2
    calls = [
        Call("delete-topic", "t", 0, 1, outcome, events.DeleteTopicAsked("t")) for outcome in ("ok", "ok", "refused")
    ]
    line = {"method": "DELETE", "path": "/v1/topics/t", "status": 200}
    assert list(unaudited(calls, [line, line])) == []
    refused = {**line, "status": 409}
    assert list(unaudited(calls, [line, refused])) == ["DELETE /v1/topics/t was granted 2 times, and 1 lines say so"]


def test_lateness_is_read_off_the_metrics() -> None:
    page = b""
    for name, count in ((b"klamm_event_loop_lag_seconds", b"11.0"), (b"klamm_turn_wait_seconds", b"10.0")):
        for le, fewer in ((b"0.5", b"8.0"), (b"1.0", b"9.0")):
            page += b'%b_bucket{le="%b"} %b\n' % (name, le, fewer)
        assert late_in(page) is None
        page += b'%b_bucket{le="+Inf"} %b\n' % (name, count)
    assert late_in(page) == {"loop": 2, "inbox": 1}


@pytest.mark.long
@pytest.mark.java
@pytest.mark.slow
def test_a_round_without_a_fault_is_clean_and_counts(tmp_path: Path) -> None:
    schedule = schedule_for("1.1", fire_s=0.0)
    assert schedule.acts == ()
    played = asyncio.run(play(schedule, tmp_path))
    assert played.findings == [], "\n".join(report(played.history, played.findings))
    assert played.void == []


def outcome(seed: str, *, found: bool = False, void: bool = False) -> Outcome:
    findings = [Finding("s11_the_leader_is_in_the_isr", None, "it is not")] if found else []
    return Outcome(
        schedule_for(seed), findings, History([]), Counter(kill=3), Counter(), ["too little"] if void else [], 60.0, 900
    )


def test_the_exit_code_tells_clean_found_and_void() -> None:
    good = [outcome(f"1.{number}") for number in range(3)]
    assert command.exit_code_of(good) == command.CLEAN
    assert command.exit_code_of([*good, outcome("1.4", found=True)]) == command.FOUND
    assert command.exit_code_of([*good, outcome("1.4", void=True)]) == command.CLEAN
    void = [outcome("1.2", void=True), outcome("1.3", void=True)]
    assert command.exit_code_of([good[0], *void]) == command.VOID
    said = "\n".join(command.summary_of([*good, outcome("1.4", found=True, void=True)], "1"))
    assert "rounds        4, 1 do not count 1.4" in said
    assert "found         1.4" in said
    assert "kill                               F1          12       0" in said


#: a program as `chaos/foreign.py` starts it: its behaviour, then servers, topic, name and partitions
SCRIPT = """
import sys
behaviour, _, _, name, partitions = sys.argv[1:]
for number in range(1, 4):
    print("sent", number, flush=True)
    if behaviour == "deaf":
        continue
    print("acknowledged", number % int(partitions), number, number, flush=True)
if behaviour == "mortal":
    sys.exit("it has had enough")
sys.stdin.read()
if behaviour == "deaf":
    import time
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("behaviour", "lives", "bugs"),
    [
        ("good", 1, []),
        ("mortal", 2, []),
        ("deaf", 1, ["no rest: 3 records of a script were not answered 0.1 s after healing: "]),
    ],
)
async def test_a_producer_that_is_a_process_says_what_it_sent_and_what_was_acknowledged(
    behaviour: str, lives: int, bugs: list[str], tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    program = Program("x", "a script", (sys.executable, str(tmp_path / "script.py"), behaviour))
    evidence, is_over = Records(), threading.Event()
    one = ForeignProducer(program, "host:1", ("ledger", "T"), 2, evidence)
    running = asyncio.ensure_future(asyncio.to_thread(one.run, is_over, 0.1))
    await until(lambda: len(evidence.sent) >= 3 * lives, "each life has said what it sent")
    is_over.set()
    await running
    assert one.bugs == bugs
    sent = [f"x{life} {number}" for life in range(1, lives + 1) for number in (1, 2, 3)]
    assert [sent.name for sent in evidence.sent][: len(sent)] == sent
    acknowledged = [] if behaviour == "deaf" else sent
    assert [(said.name, said.key, said.offset) for said in evidence.relied][: len(sent)] == [
        (name, ("T", int(name[-1]) % 2), int(name[-1])) for name in acknowledged
    ]
