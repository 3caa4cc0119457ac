"""Rules about requests to brokers, and about the lines of the state-change log.

Each looks at the whole run, and yields violations as `(partition or None, text)`. Where rows and the moment of
sending are not known, a rule says nothing about them. Of full lists and of stops: `rules_lists.py`, `rules_stops.py`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final

from tests.faults.checker.history import SLACK_MS, History, Rpc
from tests.faults.checker.replay import topic_of
from tests.faults.checker.replay_facts import Known, RunRule, Written
from tests.faults.checker.writers import Wrong

REMOVED: Final = -2
_NEVER: Final = 1 << 62
RPC_TIMEOUT_MS: Final = 30_000
#: faults after which moments cannot be compared, or requests are older than any time-out
TAMPERED: Final = ("jump clock", "slow link", "double", "silence")
#: and after which a request is seen long after it was sent
HELD_BACK: Final = ("mute", "slow link", "cut link")


def _taken(history: History) -> dict[int, list[Rpc]]:
    by_broker: defaultdict[int, list[Rpc]] = defaultdict(list)
    for one in history.rpcs:
        if one.error_code == 0:
            by_broker[one.broker_id].append(one)
    return by_broker


def s02_one_claimant_per_epoch(history: History, known: Known) -> Iterator[Wrong]:
    who = {epoch: broker_id for epoch, broker_id, _, _ in known.claims}
    for epoch, count in Counter(epoch for epoch, *_ in known.claims).items():
        if count > 1:
            yield None, f"epoch {epoch} was claimed {count} times"
    for one in history.rpcs:
        if who.get(one.controller_epoch, one.controller_id) != one.controller_id:
            yield None, f"broker {one.controller_id} told in epoch {one.controller_epoch}, which is not its own"


def s05_nothing_leaves_after_the_deadline(history: History, known: Known) -> Iterator[Wrong]:
    for one in history.rpcs:
        if one.sent_late_s is not None and one.sent_late_s > 0:
            late = f"{one.sent_late_s:.3f} s after its deadline"
            yield None, f"broker {one.controller_id} sent {one.kind} to {one.broker_id} {late}"


def s05_nothing_is_heard_of_a_controller_that_lost_its_session_long_ago(
    history: History, known: Known
) -> Iterator[Wrong]:
    """A request sent in time arrives within the time-out of a request, unless clocks or links were tampered with."""
    if not history.has_true_clocks or any(one.kind in TAMPERED for one in history.faults):
        return
    ended_ms = {epoch: lost_ms for (epoch, *_), (_, lost_ms) in zip(known.claims, known.vacated, strict=False)}
    for one in history.rpcs:
        late_ms = one.at_ms - ended_ms.get(one.controller_epoch, one.at_ms)
        if one.error_code == 0 and late_ms > RPC_TIMEOUT_MS:
            yield None, f"broker {one.broker_id} obeyed epoch {one.controller_epoch} {late_ms} ms after its end"


def s06_no_broker_obeys_an_older_controller(history: History, known: Known) -> Iterator[Wrong]:
    for broker_id, taken in _taken(history).items():
        highest = -1
        for one in taken:
            if one.controller_epoch < highest:
                yield None, f"broker {broker_id} obeyed epoch {one.controller_epoch} after {highest}"
            highest = max(highest, one.controller_epoch)


def s07_no_incarnation_obeys_a_request_to_another(history: History, known: Known) -> Iterator[Wrong]:
    epochs = {(one.broker_id, one.epoch) for one in known.registrations}
    for broker_id, taken in _taken(history).items():
        newest = -1
        for one in taken:
            if (broker_id, one.broker_epoch) not in epochs:
                yield None, f"broker {broker_id} obeyed as {one.broker_epoch}, which it never was"
            if one.broker_epoch < newest:
                yield None, f"broker {broker_id} obeyed as {one.broker_epoch} after {newest}"
            newest = max(newest, one.broker_epoch)


def s24_a_deleted_topic_is_not_led_again(history: History, known: Known) -> Iterator[Wrong]:
    """A later controller never knew of it. The deleting controller had the word of all brokers that held it before: it
    sends them nothing of it since, though to others a request may still have been on its way."""
    # whether a request was sent about when it was seen
    are_true = history.sees == "all" or not any(one.kind in HELD_BACK for one in history.faults)
    for one in history.rpcs:
        for row in one.rows or ():
            gone = known.deleted.get(row.topic_id)
            if gone is None or row.leader == REMOVED or one.kind != "leader-and-isr":
                continue
            is_late = one.sent_zxid >= gone.zxid if one.sent_zxid is not None else _is_after(one, gone.at_ms)
            is_own = (one.controller_id, one.controller_epoch) == (gone.by_id, gone.epoch)
            had_it = one.broker_id in gone.replicas.get(row.partition, ())
            if one.controller_epoch > gone.epoch or (is_own and had_it and is_late and are_true):
                text = f"broker {one.broker_id} was told to lead or follow {row.topic_id}"
                yield None, f"{text}, deleted at {gone.zxid:#x}"


def _is_after(rpc: Rpc, at_ms: int) -> bool:
    return rpc.sent_ms is not None and rpc.sent_ms > at_ms + SLACK_MS


def s25_topic_ids_are_not_used_again(history: History, known: Known) -> Iterator[Wrong]:
    names: defaultdict[str, set[str]] = defaultdict(set)
    for one in known.written:
        if one.topic_id is not None:
            names[one.topic_id].add(one.key[0])
    for topic_id, named in names.items():
        if len(named) > 1:
            yield None, f"topic id {topic_id} belongs to {sorted(named)}"


def s28_the_first_things_told_are_everything(history: History, known: Known) -> Iterator[Wrong]:
    """To each incarnation, by each controller: UpdateMetadata in full, then LeaderAndIsr in full. A question tells
    nothing, and may come first."""
    if history.lost_lines:  # the first may be among them
        return
    for broker_id, taken in _taken(history).items():
        told: defaultdict[tuple[int, int], list[Rpc]] = defaultdict(list)
        for one in taken:
            if one.kind == "describe-topics":
                continue
            told[one.broker_epoch, one.controller_epoch].append(one)
        for (broker_epoch, epoch), requests in told.items():
            first = requests[0]
            if first.kind != "update-metadata" or not first.is_full:
                yield None, f"controller {epoch} told {broker_id} ({broker_epoch}) {first.kind} before all metadata"
            led = next((one for one in requests if one.kind == "leader-and-isr"), None)
            if led is not None and not led.is_full:
                yield None, f"controller {epoch} told {broker_id} ({broker_epoch}) some replicas before all of them"


def s28_no_older_state_follows_a_newer_one(history: History, known: Known) -> Iterator[Wrong]:
    """Metadata of the very same event may come twice and in any order: of each row the newest is kept, nothing said."""
    names = {one.topic_id: one.key[0] for one in known.written}
    for broker_id, taken in _taken(history).items():
        newest: dict[tuple[int, str, str, int], int] = {}
        last_event: str | None = None
        for one in taken:
            is_repeated = one.event_id is not None and one.event_id == last_event and one.kind == "update-metadata"
            last_event = one.event_id
            for row in one.rows or ():
                place = (one.broker_epoch, one.kind, row.topic_id, row.partition)
                if row.leader == REMOVED:
                    newest.pop(place, None)
                    continue
                is_older = row.version < newest.get(place, -1) and not is_repeated
                if is_older and (row.topic_id, row.partition) not in one.refused:
                    key = (names.get(row.topic_id, "?"), row.partition)
                    yield key, f"broker {broker_id} took version {row.version} after {newest[place]} by {one.kind}"
                newest[place] = max(row.version, newest.get(place, -1))


def s29_told_states_stood_in_zookeeper(history: History, known: Known) -> Iterator[Wrong]:
    stood: dict[tuple[Any, ...], int] = {}
    for one in known.written:
        state = one.state
        place = (one.topic_id, one.key[1], state.leader, state.leader_epoch, state.isr, state.version)
        stood.setdefault((*place, state.controller_epoch), one.zxid)
    names = {one.topic_id: one.key[0] for one in known.written}
    for rpc in history.rpcs:
        until = known.zxid_known_to(rpc)
        for row in rpc.rows or ():
            if row.leader == REMOVED:
                continue
            place = (row.topic_id, row.partition, row.leader, row.leader_epoch, row.isr, row.version)
            zxid = stood.get((*place, row.controller_epoch))
            if zxid is None or (until is not None and zxid > until):
                key = (names.get(row.topic_id, "?"), row.partition)
                yield key, f"broker {rpc.broker_id} was told {row}, which did not stand in ZooKeeper then"


def s34_lines_agree_with_writes(history: History, known: Known) -> Iterator[Wrong]:
    """One line for each state that a controller wrote, once the next term has loaded; never two that differ. A line has
    no topic id while a controller searches for one that a tool dropped."""
    lines: defaultdict[tuple[str, int, int], set[tuple[Any, ...]]] = defaultdict(set)
    for line in history.lines:
        if line["kind"] == "partition" and line.get("version") is not None and line.get("isr") is not None:
            place = (line.get("topic_id") or line["topic"], line["partition"], line["version"])
            said = (line["leader"], line["leader_epoch"], tuple(line["isr"]), line["controller_epoch"])
            lines[place].add(said)
    last_epoch = max((epoch for epoch, *_ in known.claims), default=0)
    seen_later = {line["controller_epoch"] for line in history.lines if line["kind"] != "rpc"}
    for one in known.written:
        state, place = one.state, (one.topic_id or "", one.key[1], one.state.version)
        wanted = (state.leader, state.leader_epoch, state.isr, state.controller_epoch)
        without_id = lines.get((one.key[0], *place[1:]), set()) & {wanted}
        said = lines.get(place, without_id)
        if not one.by_controller or not one.topic_id:
            continue
        if said and said != {wanted}:
            yield one.key, f"version {state.version} is {wanted} in ZooKeeper, and {sorted(said)} in the logs"
        elif not said and not history.lost_lines and _must_be_recorded(one, known, last_epoch, seen_later):
            yield one.key, f"version {state.version} ({wanted}) of epoch {state.controller_epoch} is in no log"


def _must_be_recorded(one: Written, known: Known, last_epoch: int, seen: set[int]) -> bool:
    """Not a state that its writer had no time to record, if it was gone before a successor could find it, or was
    malformed to that one."""
    epoch = one.state.controller_epoch
    later = [claim for claim in known.claims if claim[0] > epoch]
    if not later:
        return False
    ends_at = next((each for each in known.written if each.key == one.key and each.zxid > one.zxid), None)
    next_loaded = next((claim for claim in later if claim[0] in seen), None)
    if next_loaded is None or known.is_gone_since(one):
        return False
    until = min((zxid for number, _, zxid, _ in later if number > next_loaded[0]), default=_NEVER)
    topics = known.standing(f"/brokers/topics/{one.key[0]}", next_loaded[2], until)
    if any(value.data is not None and topic_of(value.data, 0) is None for value in topics):
        return False
    return ends_at is None or ends_at.state.controller_epoch != epoch or ends_at.zxid > next_loaded[2]


RULES: Final[tuple[RunRule, ...]] = tuple(
    value for name, value in sorted(globals().items()) if re.match(r"s\d\d_", name)
)
