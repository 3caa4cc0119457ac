"""Rules about notifications: a controller removes one only after it has read the announced node. Of the whole run.

Only a simulation knows the readings (`History.readings`); the proxies of chaos also know the questions to brokers.
`rules_end.py` says that no notification is left in the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tests.faults.checker.history import History, json_of
from tests.faults.checker.readings import Kind, Readings
from tests.faults.checker.replay import Key, Registration, topic_of
from tests.faults.checker.replay_facts import Known, RunRule, Tenure, Value
from tests.faults.checker.rules_lists import LEAD
from tests.faults.checker.slow_faults import is_forbidden
from tests.faults.checker.writers import Wrong

ISR_CHANGES: Final = "/isr_change_notification/"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification/"
CONFIG_CHANGES: Final = "/config/changes/"
TOPICS: Final = "/brokers/topics"
#: so long brokers may take to read that a configuration has changed (Kafka's own constant)
CONFIG_CHANGES_KEPT_MS: Final = 15 * 60_000


class Removal(NamedTuple):
    """A notification that a controller removed: as it was made, the tenure of the controller, and when the removal was
    asked for."""

    path: str
    made: Value
    zxid: int
    at_ms: int
    tenure: Tenure
    asked_ms: float

    def read(self, readings: Readings, kind: Kind, path: str) -> list[int]:
        """As of which commits its remover had read a znode in this tenure, after the announcement."""
        heard = readings.since(self.tenure.session, kind, path, max(self.made.zxid, self.tenure.zxid))
        return [one.zxid for one in heard if one.at_ms <= self.asked_ms]


def s31_notifications_go_after_the_announced_node_was_read(history: History, known: Known) -> Iterator[Wrong]:
    """By the removing controller, in an answer that it had before it asked for their removal. A missing node has not to
    be read, nor one that may not be read, which is tried again; a malformed notification announces nothing."""
    if history.readings is None:
        return
    removals = [*_removals(history, known, ISR_CHANGES), *_removals(history, known, CONFIG_CHANGES)]
    readings = Readings(history.readings if removals else ())
    for one in removals:
        for path in _announced_by(one):
            is_seen = one.read(readings, "data", path) or _is_seen_missing(readings, known, one, path)
            if not is_seen and not is_forbidden(history, (path,), one.at_ms):
                text = f"{one.path} was removed at {one.zxid:#x} in epoch {one.tenure.epoch}"
                yield None, f"{text}, and {path}, which it announced at {one.made.zxid:#x}, was not read before"


def s31_configuration_changes_are_kept_for_all_readers(history: History, known: Known) -> Iterator[Wrong]:
    """By ZooKeeper's own stamps, which no clock of ours is compared with."""
    for one in _removals(history, known, CONFIG_CHANGES):
        if one.at_ms - one.made.at_ms < CONFIG_CHANGES_KEPT_MS:
            yield None, f"{one.path} was removed after {one.at_ms - one.made.at_ms} ms"


def s31_a_broker_that_announced_a_log_directory_is_asked(history: History, known: Known) -> Iterator[Wrong]:
    """About each replica that it had and keeps, after the announcement, by the controller that removed it or by a
    successor: its answers say which are bad. A broker that registers anew is told everything, and so is asked
    anyway."""
    if history.end is None or history.end.converged_after_ms is None:
        return
    for one in _removals(history, known, LOG_DIR_EVENTS):
        broker_id = _field(json_of(one.made.data or b""), "broker")
        lives = (life for life in known.registrations if (life.broker_id, life.until_ms) == (broker_id, None))
        here = next((life for life in lives if life.epoch < one.zxid), None)
        if here is None or not history.has_seen(one.tenure.broker_id, here.broker_id):
            continue
        asked = _asked_of(history, known, here, one)
        for key, replica in _kept_by(known, here.broker_id, one.zxid):
            if replica not in asked:
                text = f"{one.path} was removed at {one.zxid:#x}"
                yield key, f"{text}, and broker {here.broker_id} was not asked about its replica"


def _removals(history: History, known: Known, below: str) -> Iterator[Removal]:
    for path in [path for path in known.values if path.startswith(below)]:
        for made, gone in known.changes(path):
            tenure = known.tenure_at(gone.zxid)
            if gone.data is None and made.data is not None and gone.by_controller and tenure is not None:
                sent_ms = next(one.sent_ms for one in history.commits if one.zxid == gone.zxid)
                asked_ms = gone.at_ms if sent_ms is None else sent_ms
                yield Removal(path, made, gone.zxid, gone.at_ms, tenure, asked_ms)


def _announced_by(one: Removal) -> list[str]:
    """The znodes that are to be read, as far as they are a controller's business."""
    said = json_of(one.made.data or b"")
    if one.path.startswith(CONFIG_CHANGES):
        entity = str(_field(said, "entity_path"))
        return [f"/config/{entity}"] if re.fullmatch(r"(topics|brokers)/[^/]+", entity) else []
    named = _field(said, "partitions")
    keys = [(_field(each, "topic"), _field(each, "partition")) for each in named] if isinstance(named, list) else []
    makes_sense = all(isinstance(topic, str) and isinstance(number, int) for topic, number in keys)
    return [f"{TOPICS}/{topic}/partitions/{number}/state" for topic, number in keys] if makes_sense else []


def _is_seen_missing(readings: Readings, known: Known, one: Removal, path: str) -> bool:
    """Returns whether the removing controller had seen that this is missing. Of a state: that its topic has no such
    partition, or is malformed, in which case all of its states are read as it is put right."""
    if not path.startswith(TOPICS):
        listed = one.read(readings, "list", path.rpartition("/")[0])
        return any(value.data is None for zxid in listed for value in known.standing(path, zxid, zxid))
    topic_path, _, number = path.removesuffix("/state").partition("/partitions/")
    seen = [*one.read(readings, "list", TOPICS), *one.read(readings, "data", topic_path)]
    topics = [topic_of(value.data or b"", 0) for zxid in seen for value in known.standing(topic_path, zxid, zxid)]
    return any(topic is None or int(number) not in topic.partitions for topic in topics)


def _asked_of(history: History, known: Known, here: Registration, one: Removal) -> set[tuple[str, int]]:
    """Replicas that a broker was asked to serve after it had announced something, and answered."""
    return {
        (row.topic_id, row.partition)
        for rpc in history.heard
        if (rpc.kind, rpc.broker_id, rpc.broker_epoch, rpc.error_code) == (LEAD, here.broker_id, here.epoch, 0)
        and rpc.controller_epoch >= one.tenure.epoch
        and (known.zxid_known_to(rpc) or 0) >= one.made.zxid
        for row in rpc.rows or ()
    }


def _kept_by(known: Known, broker_id: int, zxid: int) -> Iterator[tuple[Key, tuple[str, int]]]:
    """Yields the replicas assigned to a broker in the end, and then: by name, and by topic id."""
    for name, topic in sorted(known.world.topics.items()):
        for number, place in topic.partitions.items():
            replica = topic.topic_id or "", number
            then = [replicas for since, replicas in known.assigned.get(replica, ()) if since <= zxid]
            is_kept = broker_id in place.replicas and bool(then) and broker_id in then[-1]
            if is_kept and (name, number) in known.world.states:
                yield (name, number), replica


def _field(said: Any, name: str) -> Any:
    return said.get(name) if isinstance(said, dict) else None


RULES: Final[tuple[RunRule, ...]] = tuple(
    value for name, value in sorted(globals().items()) if re.match(r"s\d\d_", name)
)
