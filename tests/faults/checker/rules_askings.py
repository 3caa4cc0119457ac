"""Rules about what brokers ask of a controller and are answered: ISRs, and that they may stop. Of the whole run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tests.faults.checker.history import SLACK_MS, Asking, History, Wish
from tests.faults.checker.known import Known, RunRule, Written
from tests.faults.checker.replay import topic_of
from tests.faults.checker.rules_zookeeper import slack_of
from tests.faults.checker.writers import Wrong


def s16_who_joins_an_isr_is_who_its_leader_saw(history: History, known: Known) -> Iterator[Wrong]:
    """A member is granted by the broker epoch that its leader heard from, and that is its registration."""
    granted = {(one.topic_id, one.key[1], one.state.version): one for one in known.written if one.by_controller}
    for asking in history.askings:
        for wish in asking.wishes:
            stands = granted.get((wish.topic_id, wish.partition, -1 if wish.version is None else wish.version))
            if stands is None or stands.before is None or stands.state.isr != tuple(one for one, _ in wish.isr):
                continue
            for broker_id, epoch in _joining(wish, stands):
                if not _was_registered(known, broker_id, epoch, stands.at_ms - slack_of(history), asking.at_ms):
                    yield stands.key, f"broker {broker_id} joined the ISR as {epoch}, as which it was not registered"


def _joining(wish: Wish, stands: Written) -> Iterator[tuple[int, int]]:
    assert stands.before is not None
    yield from (one for one in wish.isr if one[0] not in stands.before.isr)


def _was_registered(known: Known, broker_id: int, epoch: int, from_ms: int, until_ms: int) -> bool:
    return any(
        (one.broker_id, one.epoch) == (broker_id, epoch)
        and one.from_ms <= until_ms
        and (one.until_ms is None or one.until_ms >= from_ms)
        for one in known.registrations
    )


def s27_who_may_stop_leads_nothing_that_others_could(history: History, known: Known) -> Iterator[Wrong]:
    """Nothing that has another replica, that is, except what is being deleted, and what made no sense: what a
    controller cannot read it cannot hand over."""
    done = [
        one for one in history.askings if one.kind == "controlled-shutdown" and not (one.error_code or one.remaining)
    ]
    for asking in done:
        for led in _led_by(asking, known):
            marker = known.stood(f"/admin/delete_topics/{led.key[0]}", asking.at_ms - SLACK_MS, asking.at_ms)
            topic = known.stood(f"/brokers/topics/{led.key[0]}", asking.at_ms - SLACK_MS, asking.at_ms)
            if any(one.data is not None and topic_of(one.data, 0) is None for one in topic):
                continue
            if len(led.replicas) > 1 and not any(one.data is not None for one in marker):
                yield led.key, f"broker {asking.sender_id} was told that it may stop, and led it"


def _led_by(asking: Asking, known: Known) -> Iterator[Written]:
    """What its sender led for a moment already when it was answered."""
    newest = {one.key: one for one in known.written if one.at_ms <= asking.at_ms}
    for one in newest.values():
        is_gone = known.gone_states.get(one.key, -1) > one.zxid
        if one.state.leader == asking.sender_id and one.at_ms < asking.at_ms - SLACK_MS and not is_gone:
            yield one


RULES: Final[tuple[RunRule, ...]] = tuple(
    value for name, value in sorted(globals().items()) if re.match(r"s\d\d_", name)
)
