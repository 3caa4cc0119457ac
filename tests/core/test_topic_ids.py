"""The id of a topic whose znode has none: which brokers are asked, how long, and how their answers are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from controller.core.changes.cluster import Refused, TopicWritten
from controller.core.changes.duties import TopicIdDisputed, TopicIdTaken
from controller.core.codes import Code
from controller.core.decide.reassignment import due_after
from controller.core.events import (
    DeleteTopicAsked,
    Event,
    GrowTopicAsked,
    KnownId,
    ReassignAsked,
    ReassignNodeSeen,
    RefusalsAnswered,
    TimePassed,
    ToldRefused,
    TopicsDescribed,
)
from controller.core.formats import decode_topic, encode_topic
from controller.core.model import Assignment, assignment_of
from controller.core.project.requests import Telling
from controller.core.project.znodes import broker_path, topic_path
from controller.core.states import ReplicaStatus
from tests.builders import Settled, a_broker, a_cluster, asked_of, knowing, noted, settle, topic_id_of, zookeeper_of

ASKING_MS = 6_000
X, Y, Z = topic_id_of("x"), topic_id_of("y"), topic_id_of("z")


class Field:
    """A cluster whose topics lost their ids while no controller was active, and the term that finds them so."""

    def __init__(self, *live: int, **topics: Sequence[Sequence[int]]) -> None:
        before = a_cluster(live=live, topics=topics)
        self.zookeeper = zookeeper_of(before)
        for broker_id in live:
            self.zookeeper.register(a_broker(broker_id))
        self.now_ms = 0
        self.epoch = 7
        for name in topics:
            self.rewrite(name)
        self.settled = self.term()

    def rewrite(self, name: str, topic_id: str = "", **more: Sequence[int]) -> None:
        """As an older tool does: version 1, which has no id; or an operator, with one."""
        _, assignment = decode_topic(self.zookeeper.nodes[topic_path(name)].data)
        added = {int(number.removeprefix("p")): Assignment(tuple(one)) for number, one in more.items()}
        self.zookeeper.put(topic_path(name), encode_topic(topic_id, {**assignment, **added}))

    def term(self) -> Settled:
        self.epoch += 1
        self.cluster, event = self.zookeeper.new_term(self.epoch)
        self.cluster.asking_ms = ASKING_MS
        return self.happens(event)

    def happens(self, event: Event) -> Settled:
        settled = settle(self.cluster, event, self.zookeeper, now_ms=self.now_ms, seed=self.zookeeper.zxid)
        assert settled.conflicts == []
        noted(self.cluster)
        return settled

    def seen(self) -> Settled:
        return self.happens(self.zookeeper.topics_seen())

    def answer(self, broker_id: int, **ids: str | tuple[str, ...]) -> Settled:
        return self.happens(knowing(self.cluster.brokers[broker_id], **ids))

    def wait(self, ms: int) -> Settled:
        self.now_ms += ms
        return self.happens(TimePassed())

    def come(self, *broker_ids: int) -> Settled:
        for broker_id in broker_ids:
            self.zookeeper.register(a_broker(broker_id))
        return self.happens(self.zookeeper.brokers_seen())

    def go(self, *broker_ids: int) -> Settled:
        for broker_id in broker_ids:
            self.zookeeper.remove(broker_path(broker_id))
        return self.happens(self.zookeeper.brokers_seen())

    def id_of(self, name: str = "orders") -> str | None:
        """In the znode; belief must agree."""
        topic_id = decode_topic(self.zookeeper.nodes[topic_path(name)].data)[0]
        assert self.cluster.topics[name].topic_id == topic_id
        return topic_id

    @property
    def disputes(self) -> dict[str, Any]:
        return {name: dict(claims) for name, claims in self.cluster.duties.ids.disputes.items()}


def names_told(settled: Settled) -> set[tuple[str, str]]:
    """Topics, with their ids, of which anybody is told anything."""

    def of(telling: Telling) -> set[tuple[str, str]]:
        rows = [telling.everything or {}, telling.metadata, *telling.leaderships.values(), *telling.stops.values()]
        return {key for one in rows for key in one}

    return {key for telling in settled.tellings for key in of(telling)}


# ---------------------------------------------------------------------- the brokers that are asked, and the result


def test_a_new_term_asks_the_topics_hosts_before_it_tells_them_anything() -> None:
    field = Field(1, 2, 3, 4, orders=[[1, 2], [2, 3]])
    telling = field.settled.tellings[-1]
    assert telling.questions == {1: {"orders": 2}, 2: {"orders": 2}, 3: {"orders": 2}}
    assert {one.broker_id for one in telling.joined} == {1, 2, 3, 4}, "in the same step: asked first"
    assert names_told(field.settled) == set()
    assert field.settled.of(TopicWritten) == []


def test_an_id_that_brokers_know_is_written_as_soon_as_all_of_them_have_answered() -> None:
    field = Field(1, 2, 3, orders=[[1, 2], [2, 3]])
    assert field.answer(1, orders=X).of(TopicWritten) == []
    assert field.answer(3, orders="").of(TopicWritten) == []
    settled = field.answer(2, orders=X)
    assert [one.topic_id for one in settled.of(TopicWritten)] == [X]
    assert names_told(settled) == {("orders", X)}
    assert field.id_of() == X
    assert field.seen().changes == []


def test_what_is_left_on_a_disk_is_not_of_a_topic_that_was_never_led() -> None:
    """A topic was deleted while broker 3 was away, and an older tool makes one of the same name."""
    field = Field(1, 2, other=[[1, 2]])
    field.answer(1, other=X)
    field.answer(2, other=X)
    field.zookeeper.put(topic_path("orders"), encode_topic("", {0: Assignment((3,)), 1: Assignment((1, 2, 3))}))
    field.seen()
    field.answer(1, orders="")
    left = TopicsDescribed(2, field.cluster.brokers[2].epoch, {"orders": (KnownId(Y, is_told=False, is_held=True),)})
    drawn = [one.topic_id for one in field.happens(left).of(TopicWritten)]
    assert drawn == [field.id_of()]
    assert drawn != [Y]
    joined = field.come(3)
    assert asked_of(joined) == {}
    assert ("orders", drawn[0]) in names_told(joined)
    assert field.disputes == {}


def test_an_id_that_no_broker_knows_is_drawn() -> None:
    field = Field(1, 2, orders=[[1, 2]])
    field.answer(1, orders="")
    settled = field.answer(2, orders="")
    [written] = settled.of(TopicWritten)
    assert len(written.topic_id) == 22
    assert names_told(settled) == {("orders", written.topic_id)}


def test_who_is_silent_delays_its_own_topic_and_for_one_session_timeout() -> None:
    field = Field(1, 2, 3, orders=[[1, 2]], payments=[[1, 3]], users=[[1]])
    settled = field.answer(1, orders=X, payments=Y, users=Z)
    assert names_told(settled) == {("users", Z)}
    assert names_told(field.answer(3, payments=Y)) == {("payments", Y)}
    assert field.wait(ASKING_MS - 1).changes == []
    assert names_told(field.wait(1)) == {("orders", X)}


def test_a_topic_whose_brokers_are_all_silent_gets_a_new_id_when_the_time_is_over() -> None:
    field = Field(1, 2, orders=[[1, 2]])
    assert field.wait(ASKING_MS - 1).changes == []
    [written] = field.wait(1).of(TopicWritten)
    assert field.id_of() == written.topic_id


def test_who_goes_meanwhile_is_not_waited_for() -> None:
    field = Field(1, 2, orders=[[1, 2]])
    field.answer(1, orders=X)
    assert [one.topic_id for one in field.go(2).of(TopicWritten)] == [X]


def test_an_answer_of_a_broker_that_went_since_counts() -> None:
    field = Field(1, 2, orders=[[1, 2]])
    field.answer(1, orders=X)
    field.go(1)
    assert [one.topic_id for one in field.answer(2, orders="").of(TopicWritten)] == [X]


def test_who_comes_meanwhile_is_asked_before_it_is_told_anything() -> None:
    field = Field(1, orders=[[1, 2]])
    settled = field.come(2)
    [telling] = [one for one in settled.tellings if one.joined]
    assert telling.questions == {2: {"orders": 1}}
    assert field.answer(1, orders="").of(TopicWritten) == []
    assert [one.topic_id for one in field.answer(2, orders=X).of(TopicWritten)] == [X]


def test_a_bounced_broker_is_asked_again_and_its_earlier_answer_does_not_count() -> None:
    field = Field(1, 2, orders=[[1, 2]])
    before = field.cluster.brokers[1]
    assert asked_of(field.come(1)) == {1: ["orders"]}
    field.happens(knowing(before, orders=""))
    assert field.answer(2, orders="").of(TopicWritten) == []
    assert [one.topic_id for one in field.answer(1, orders=X).of(TopicWritten)] == [X]


def test_where_no_broker_with_replicas_lives_others_that_were_told_of_it_are_asked() -> None:
    field = Field(2, 3, orders=[[1]])
    assert asked_of(field.settled) == {2: ["orders"], 3: ["orders"]}
    field.answer(2, orders=X)
    assert [one.topic_id for one in field.answer(3, orders="").of(TopicWritten)] == [X]


def test_an_id_is_not_drawn_for_a_topic_that_no_broker_could_be_told_of() -> None:
    """Brokers come up after their controller: the first one with replicas is asked."""
    field = Field(2, orders=[[1, 3]])
    field.answer(2, orders="")
    assert field.wait(10 * ASKING_MS).changes == []
    assert asked_of(field.come(1)) == {1: ["orders"]}
    assert [one.topic_id for one in field.answer(1, orders=X).of(TopicWritten)] == [X]


def aside_on(field: Field, broker_id: int, **leader_epochs: int) -> Settled:
    """A broker's answer: it has set replicas of `orders` aside, written as p0=3, under this id."""
    numbers = {int(number.removeprefix("p")): leader_epoch for number, leader_epoch in leader_epochs.items()}
    aside = KnownId(X, is_told=False, is_held=False, leader_epochs=numbers)
    return field.happens(TopicsDescribed(broker_id, field.cluster.brokers[broker_id].epoch, {"orders": [aside]}))


def test_a_replica_set_aside_by_an_isr_member_tells_an_id_that_no_broker_knows_any_more() -> None:
    """A term before told all brokers everything, and did not live to write the id that they had known."""
    field = Field(1, 2, orders=[[1, 2]])
    assert aside_on(field, 2, p0=0).of(TopicWritten) == []
    assert [one.topic_id for one in aside_on(field, 1, p0=0).of(TopicWritten)] == [X]


@pytest.mark.parametrize("leader_epochs", [{"p0": 3}, {"p1": 0}, {}])
def test_what_was_set_aside_at_a_leader_epoch_that_a_topic_never_had_is_of_another(
    leader_epochs: dict[str, int],
) -> None:
    field = Field(1, orders=[[1]])
    [written] = aside_on(field, 1, **leader_epochs).of(TopicWritten)
    assert written.topic_id != X


def test_what_was_set_aside_does_not_count_where_a_broker_knows_an_id() -> None:
    field = Field(1, 2, orders=[[1, 2]])
    aside_on(field, 1, p0=0)
    assert [one.topic_id for one in field.answer(2, orders=Y).of(TopicWritten)] == [Y]


def test_topics_that_have_their_ids_cost_nothing() -> None:
    before = a_cluster(orders=[[1, 2]])
    zookeeper = zookeeper_of(before)
    zookeeper.register(a_broker(1))
    cluster, event = zookeeper.new_term(8)
    settled = settle(cluster, event, zookeeper)
    assert asked_of(settled) == {}
    assert cluster.duties.ids.open == {}
    assert not cluster.duties.are_pending


# ---------------------------------------------------------------------- other events meanwhile


def test_at_run_time_the_brokers_of_a_topic_are_asked_once() -> None:
    field = Field(1, 2, 3, orders=[[1]])
    field.answer(1, orders=X)
    field.zookeeper.put(topic_path("new"), encode_topic("", {0: Assignment((2, 3))}))
    assert asked_of(field.seen()) == {2: ["new"], 3: ["new"]}
    assert asked_of(field.seen()) == {}
    field.rewrite("new", p1=(1, 2))
    assert asked_of(field.seen()) == {1: ["new"]}
    for broker_id in (1, 2, 3):
        settled = field.answer(broker_id, new="")
    assert set(settled.states) == {"new-0", "new-1"}
    assert assignment_of(field.cluster.topics["new"]).keys() == {0, 1}


def test_the_partitions_of_a_new_topic_are_led_and_told_as_new_once_its_id_is_written() -> None:
    field = Field(1, 2, orders=[[1]])
    field.zookeeper.put(topic_path("new"), encode_topic("", {0: Assignment((1, 2))}))
    assert field.seen().states == {}
    assert field.come(3).states == {}
    field.answer(1, new="")
    settled = field.answer(2, new="")
    topic_id = field.id_of("new")
    assert settled.tellings[-1].new_replicas == {(topic_id, 0, 1), (topic_id, 0, 2)}


def test_leaders_are_elected_meanwhile_and_told_afterwards() -> None:
    field = Field(1, 2, 3, orders=[[1, 2, 3]])
    settled = field.go(1)
    assert settled.states["orders-0"].leader == 2
    assert names_told(settled) == set()
    field.answer(2, orders=X)
    settled = field.answer(3, orders=X)
    rows = settled.tellings[-1].leaderships[3]["orders", X]
    assert rows[0].state is not None
    assert rows[0].state.leader == 2


def test_what_changes_the_znode_is_refused_until_the_id_is_known() -> None:
    field = Field(1, 2, orders=[[1]])
    for asked in (GrowTopicAsked("orders", 2), ReassignAsked({("orders", 0): (2,)})):
        [refused] = field.happens(asked).of(Refused)
        assert refused.code is Code.UNKNOWN_TOPIC_ID
        assert "try again" in refused.detail
    field.answer(1, orders=X)
    assert field.happens(GrowTopicAsked("orders", 2)).of(Refused) == []


def test_a_reassignment_asked_for_by_the_node_waits_for_the_id() -> None:
    field = Field(1, 2, orders=[[1]])
    settled = field.happens(ReassignNodeSeen({("orders", 0): (2,)}, 0))
    assert due_after(field.cluster, settled.committed) is None
    settled = field.answer(1, orders=X)
    due = due_after(field.cluster, settled.committed)
    assert due is not None
    assert due.partitions == {("orders", 0)}


def test_a_deletion_waits_for_the_answers_and_no_longer() -> None:
    field = Field(1, 2, orders=[[1, 2]])
    field.happens(DeleteTopicAsked("orders"))
    assert field.cluster.duties.deletions["orders"].waits_for == "its topic id is not written yet"
    field.answer(1, orders=X)
    field.answer(2, orders=Y)
    field.wait(1_000)
    assert field.disputes == {}, "which of them, makes no difference any more"
    assert set(field.cluster.duties.deletions["orders"].replicas.values()) == {ReplicaStatus.DELETION_STARTED}


def test_a_topic_deleted_or_made_anew_is_searched_for_no_more() -> None:
    field = Field(1, orders=[[1]], payments=[[1]])
    before = field.cluster.brokers[1]
    field.zookeeper.remove(topic_path("orders"))
    field.zookeeper.remove(topic_path("payments"))
    field.zookeeper.put(topic_path("payments"), encode_topic(Z, {0: Assignment((1,))}))
    field.seen()
    assert field.cluster.duties.ids.open == {}
    assert field.happens(knowing(before, orders=X, payments=X)).changes == []
    assert field.id_of("payments") == Z


def test_a_znode_that_was_rewritten_meanwhile_is_read_and_its_brokers_asked_again() -> None:
    field = Field(1, orders=[[1]])
    field.rewrite("orders", p1=(1,))
    settled = settle(field.cluster, knowing(field.cluster.brokers[1], orders=X), field.zookeeper)
    assert [type(one) for one in settled.conflicts] == [TopicWritten]
    assert asked_of(field.seen()) == {1: ["orders"]}
    field.answer(1, orders=X)
    assert field.id_of() == X
    assert field.cluster.topics["orders"].partitions.keys() == {0, 1}


# ---------------------------------------------------------------------- ids that disagree


def disputed() -> Field:
    field = Field(1, 2, 3, orders=[[1, 2, 3]], users=[[1]])
    field.answer(1, orders=X, users=Z)
    field.answer(2, orders=Y)
    settled = field.answer(3, orders=X)
    assert settled.of(TopicWritten) == []
    assert settled.of(TopicIdDisputed)
    return field


def test_two_ids_are_a_dispute_and_nothing_is_told_of_that_topic() -> None:
    field = disputed()
    assert field.disputes == {"orders": {X: (1, 3), Y: (2,)}}
    assert field.id_of("users") == Z
    for settled in (field.go(2), field.come(2), field.wait(10 * ASKING_MS)):
        assert {name for name, _ in names_told(settled)} <= {"users"}
        assert settled.of(TopicWritten) == []
    field.rewrite("orders")
    assert {name for name, _ in names_told(field.seen())} == set()
    assert field.disputes.keys() == {"orders"}


def test_who_writes_an_id_into_the_znode_decides() -> None:
    field = disputed()
    field.rewrite("orders", Y)
    settled = field.seen()
    assert settled.of(TopicWritten) == []
    assert names_told(settled) == {("orders", Y)}
    assert (field.id_of(), field.disputes) == (Y, {})
    assert field.cluster.names_by_id[Y] == "orders"


def test_who_deletes_the_topic_decides_too() -> None:
    field = disputed()
    field.happens(DeleteTopicAsked("orders"))
    field.wait(1_000)
    field.wait(1_000)
    assert field.cluster.duties.is_leaving("orders")
    assert field.cluster.topics["orders"].topic_id == X, "the one that most brokers know"


def test_a_late_answer_with_another_id_is_a_dispute_and_earlier_requests_are_taken_back() -> None:
    field = Field(1, 2, orders=[[1, 2]])
    field.answer(1, orders="")
    field.wait(ASKING_MS)
    drawn = field.id_of()
    assert drawn is not None
    settled = field.answer(2, orders=X)
    assert field.disputes == {"orders": {drawn: (), X: (2,)}}
    assert names_told(settled) == set()
    assert names_told(field.go(1)) == set()
    field.rewrite("orders", X)
    settled = field.seen()
    assert [dict(one.removed) for one in settled.tellings if one.removed] == [{("orders", drawn): (0,)}]
    assert names_told(settled) == {("orders", X)}
    assert (field.id_of(), drawn in field.cluster.names_by_id) == (X, False)


@pytest.mark.parametrize("known", ["", "the same"])
def test_a_late_answer_that_knows_nothing_else_ends_the_doubt(known: str) -> None:
    field = Field(1, 2, orders=[[1, 2]])
    field.answer(1, orders=X)
    field.wait(ASKING_MS)
    settled = field.answer(2, orders=X if known else "")
    assert [type(one) for one in settled.changes] == [TopicIdTaken]
    assert (field.id_of(), field.disputes, field.cluster.duties.ids.in_doubt) == (X, {}, {})


def test_a_broker_that_was_away_is_asked_before_it_is_told_of_an_id_that_it_did_not_confirm() -> None:
    field = Field(1, orders=[[1, 2]])
    field.answer(1, orders="")
    settled = field.come(2)
    [telling] = [one for one in settled.tellings if one.joined]
    assert telling.questions == {2: {"orders": 1}}
    field.answer(2, orders=X)
    assert set(field.disputes) == {"orders"}


def test_an_id_written_while_it_is_searched_for_is_believed_and_told() -> None:
    field = Field(1, 2, orders=[[1, 2]])
    field.rewrite("orders", Z)
    settled = field.seen()
    assert settled.of(TopicWritten) == []
    assert names_told(settled) == {("orders", Z)}
    assert field.answer(1, orders=X).changes == []
    assert field.id_of() == Z


def refused(field: Field, broker_id: int, code: Code) -> None:
    told = {(field.id_of() or "", 0): ToldRefused("LeaderAndIsr", code, 0)}
    field.happens(RefusalsAnswered(broker_id, field.cluster.brokers[broker_id].epoch, told))


def test_an_id_written_by_hand_where_brokers_refuse_ours_is_believed_and_told() -> None:
    field = Field(1, 2, orders=[[1, 2]])
    field.answer(1, orders="")
    field.answer(2, orders="")
    drawn = field.id_of() or ""
    refused(field, 1, Code.INCONSISTENT_TOPIC_ID)
    field.rewrite("orders", X)
    settled = field.seen()
    assert settled.of(TopicWritten) == []
    assert [dict(one.removed) for one in settled.tellings if one.removed] == [{("orders", drawn): (0,)}]
    assert names_told(settled) == {("orders", X)}
    assert (field.id_of(), field.cluster.duties.refusals) == (X, {})


@pytest.mark.parametrize("code", [Code.STALE_CONTROLLER_EPOCH, Code.INCONSISTENT_TOPIC_ID])
def test_an_id_that_a_tool_drops_or_changes_without_need_is_written_back(code: Code) -> None:
    field = Field(1, 2, orders=[[1, 2]])
    field.answer(1, orders=X)
    field.answer(2, orders=X)
    refused(field, 1, code)
    field.rewrite("orders", Y if code is Code.STALE_CONTROLLER_EPOCH else "")
    assert [one.topic_id for one in field.seen().of(TopicWritten)] == [X]
    assert field.id_of() == X
