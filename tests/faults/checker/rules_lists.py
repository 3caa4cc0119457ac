"""Rules about the first requests to a broker incarnation: full lists, and that a replica is new on it.

Of the whole run, as in `rules_tellings.py`, and of requests whose rows were seen.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from controller.core.project.znodes import BROKER_IDS
from tests.faults.checker.history import History, Row, Rpc
from tests.faults.checker.replay import Key, topic_of
from tests.faults.checker.replay_facts import Known, Moved, RunRule, Written
from tests.faults.checker.rules_tellings import REMOVED
from tests.faults.checker.writers import Wrong
from tests.faults.hostile import HIDE

LEAD: Final = "leader-and-isr"
#: broker id, its incarnation, controller epoch
Who = tuple[int, int, int]


class _Life(NamedTuple):
    """One partition's states, and the zxid with which they end."""

    key: Key
    topic_id: str
    states: list[Written]
    ends: int | None


class _List(NamedTuple):
    """All parts of a full list, as they were obeyed one after the other."""

    who: Who
    kind: str
    rows: dict[tuple[str, int], Row]
    #: the last zxid that its sender knew
    until: int


def s28_full_lists_are_full(history: History, known: Known) -> Iterator[Wrong]:
    """A partition that was led, and hosted, from claim and registration on until the list was sent, is in it."""
    claimed = {epoch: zxid for epoch, _, zxid, _ in known.claims}
    lives = list(_lives(known))
    for one in _lists(history, known):
        broker_id, broker_epoch, epoch = one.who
        if epoch not in claimed:
            continue
        since = max(claimed[epoch], broker_epoch)
        for life in lives:
            if (life.topic_id, life.key[1]) in one.rows or not _has_lived(known, life, since, one.until):
                continue
            if life.key[0] in history.hidden_topics or not _made_sense(known, life.key[0], claimed[epoch], one.until):
                continue
            if one.kind != LEAD or _has_hosted(known, life, broker_id, since, one.until):
                yield life.key, f"broker {broker_id} was told everything by {one.kind} in epoch {epoch} without it"


def s28_full_lists_are_no_older_than_their_sender(history: History, known: Known) -> Iterator[Wrong]:
    """A state superseded before the claim, or by the controller before the broker registered, is not in them. The
    controller may hear of another writer's state, a tool's or a leader's, later than of the broker."""
    claimed = {epoch: zxid for epoch, _, zxid, _ in known.claims}
    lives = {(one.topic_id, one.key[1]): one for one in _lives(known)}
    for one in _lists(history, known):
        broker_id, broker_epoch, epoch = one.who
        claim = claimed.get(epoch, 0)
        since = {True: max(claim, broker_epoch), False: claim}
        for place, row in one.rows.items():
            life = lives.get(place)
            newer = [] if life is None else [w for w in life.states if w.state.version > row.version]
            over = next((w for w in newer if w.zxid <= since[w.by_controller]), None)
            if life is not None and row.leader != REMOVED and over is not None:
                text = f"broker {broker_id} was told everything by {one.kind} in epoch {epoch}"
                yield life.key, f"{text}, with version {row.version}, which was over at {over.zxid:#x}"


def s28_new_replicas_are_told_to_be_new(history: History, known: Known) -> Iterator[Wrong]:
    """By the controller that led the partition first, or assigned it: its first request about it to a live broker. The
    requests of one to another are seen in order: there is one at a time."""
    told: defaultdict[tuple[Who, str, int], list[tuple[int, bool, Row]]] = defaultdict(list)
    for rpc in history.heard:
        for row in rpc.rows or () if rpc.kind == LEAD else ():
            if row.leader != REMOVED:
                told[who_of(rpc), row.topic_id, row.partition].append((rpc.sent_ms or 0, not row.is_new, row))
    believed = believed_in(history, known)
    for key, topic_id, broker_id, first in _new(known):
        for who in believed(broker_id, first):
            since = [one for one in told[who, topic_id, key[1]] if one[2].version >= first.state.version]
            row = min(since)[2] if since else None
            if row is not None and not row.is_new:
                yield key, f"broker {broker_id} was told {row} first, and not that it is new there"


def believed_in(history: History, known: Known) -> Callable[[int, Moved | Written], Iterator[Who]]:
    """Yields the incarnation that a broker was believed to have at a decision, if all requests of the deciding
    controller to it are known: it had registered before the claim, where that could be read, or had been told something
    already."""
    begun: dict[Who, int] = {}
    for rpc in history.heard:
        begun[who_of(rpc)] = min(rpc.sent_ms or 0, begun.get(who_of(rpc), rpc.sent_ms or 0))
    claims = {epoch: (zxid, by_id) for epoch, by_id, zxid, _ in known.claims}
    hidden = [one.target.partition(" ")[0] for one in history.faults if one.kind == HIDE]
    hidden_ids = {one.broker_id for one in known.registrations if f"{BROKER_IDS}/{one.broker_id}" in hidden}

    def lives(broker_id: int, decided: Moved | Written) -> Iterator[Who]:
        epoch = decided.state.controller_epoch
        claimed_zxid, controller_id = claims.get(epoch, (0, broker_id))
        for here in known.registrations if history.has_seen(controller_id, broker_id) else ():
            who = broker_id, here.epoch, epoch
            is_over = here.until_ms is not None and here.until_ms < decided.at_ms
            is_read = here.epoch < claimed_zxid and broker_id not in hidden_ids
            is_known = is_read or begun.get(who, decided.at_ms) < decided.at_ms
            if here.broker_id == broker_id and not is_over and here.epoch <= decided.zxid and is_known:
                yield who

    return lives


def who_of(rpc: Rpc) -> Who:
    return rpc.broker_id, rpc.broker_epoch, rpc.controller_epoch


def _new(known: Known) -> Iterator[tuple[Key, str, int, Moved | Written]]:
    """Replicas with the commit that made them."""
    for one in known.written:
        if one.by_controller and one.before is None and one.state.leader_epoch == 0 and one.topic_id is not None:
            yield from ((one.key, one.topic_id, broker_id, one) for broker_id in one.replicas)
    for moved in known.added:
        if moved.broker_id not in moved.state.isr:
            yield moved.key, moved.topic_id, moved.broker_id, moved


def _lists(history: History, known: Known) -> Iterator[_List]:
    """The last whole one of each kind that an incarnation got of a controller."""
    parts: defaultdict[tuple[Who, str], list[Rpc]] = defaultdict(list)
    whole: dict[tuple[Who, str], list[Rpc]] = {}
    for rpc in history.heard:
        if not rpc.is_full or rpc.error_code:
            continue
        place = who_of(rpc), rpc.kind
        so_far = parts[place]
        if rpc.part == 1:
            so_far.clear()
        if rpc.part == len(so_far) + 1:
            so_far.append(rpc)
        if len(so_far) == rpc.parts == rpc.part:
            whole[place] = list(so_far)
    for (who, kind), rpcs in whole.items():
        untils = [until for rpc in rpcs if (until := known.zxid_known_to(rpc)) is not None]
        if len(untils) == len(rpcs):
            rows = {(row.topic_id, row.partition): row for rpc in rpcs for row in rpc.rows or ()}
            yield _List(who, kind, rows, max(untils))


def _lives(known: Known) -> Iterator[_Life]:
    by_place: defaultdict[tuple[Key, str], list[Written]] = defaultdict(list)
    for one in known.written:
        if one.topic_id is not None:
            by_place[one.key, one.topic_id].append(one)
    for (key, topic_id), states in by_place.items():
        gone = [zxid for zxid in known.gone.get(key, ()) if zxid > states[0].zxid]
        yield _Life(key, topic_id, states, min(gone, default=None))


def _has_lived(known: Known, life: _Life, since: int, until: int) -> bool:
    """All that time, in a topic without a request to delete it."""
    if life.states[0].zxid > since or (life.ends is not None and life.ends <= until):
        return False
    markers = known.standing(f"/admin/delete_topics/{life.key[0]}", since, until)
    return all(one.data is None for one in markers)


def _made_sense(known: Known, name: str, since: int, until: int) -> bool:
    """Since the claim, and with its id: that a topic was put right, a controller may hear later than of a broker, and
    nothing is told of a topic while its id is asked for."""
    found = [one.data and topic_of(one.data, 0) for one in known.standing(f"/brokers/topics/{name}", since, until)]
    return all(topic and topic.topic_id for topic in found)


def _has_hosted(known: Known, life: _Life, broker_id: int, since: int, until: int) -> bool:
    told = known.assigned.get((life.topic_id, life.key[1]), [])
    first = max(bisect_right(told, (since, (1 << 62,))) - 1, 0)
    return all(broker_id in replicas for zxid, replicas in told[first:] if zxid <= until)


RULES: Final[tuple[RunRule, ...]] = tuple(
    value for name, value in sorted(globals().items()) if re.match(r"s\d\d_", name)
)
