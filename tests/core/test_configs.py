"""Configuration: the value in force, the effects of a change, and the values that a request may write."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import Change, Committed, NotificationRead
from controller.core.changes.duties import (
    ConfigFound,
    ConfigWritten,
    DeletionQueued,
    DrainGranted,
)
from controller.core.codes import Code
from controller.core.decide.topics import MAX_CONFIG_CHARACTERS
from controller.core.events import AlterPartitionAsked, ConfigAsked, ConfigsSeen, CreateTopicAsked, TopicsSeen
from controller.core.model import NO_LEADER, RECOVERED, RECOVERING
from controller.core.project.znodes import CONFIG_CHANGES
from tests.builders import (
    LOADED,
    a_cluster,
    a_leadership,
    a_proposal,
    brokers_seen,
    settle,
    state_of,
    steps_of,
    zookeeper_of,
)
from tests.support.znodes import generic

UNCLEAN = "unclean.leader.election.enable"
OFFLINE = a_leadership(NO_LEADER, [1], 4)


def believing(cluster: Cluster, *changes: Change) -> Cluster:
    cluster.apply(Committed(change, 1, 101) for change in changes)
    return cluster


def offline() -> Cluster:
    """orders-0 and users-0 lost their last in-sync replica, broker 1; broker 2 has the other replica."""
    states = {"orders-0": OFFLINE, "users-0": OFFLINE}
    return a_cluster(live=(2, 3), orders=[[1, 2], [2, 3]], users=[[1, 2]], states=states)


def topics_seen(**values: Mapping[str, str]) -> ConfigsSeen:
    return ConfigsSeen(values, {})


def cluster_seen(**values: str) -> ConfigsSeen:
    return ConfigsSeen({}, {"<default>": {name.replace("_", "."): value for name, value in values.items()}})


# ---------------------------------------------------------------------- the value in force


@pytest.mark.parametrize(
    ("topic", "cluster_default", "own", "in_force"),
    [
        (None, None, False, False),
        (None, None, True, True),
        (None, "true", False, True),
        (None, "false", True, False),
        ("true", "false", False, True),
        ("false", "true", True, False),
        (" TRUE ", None, False, True),
        ("yes", None, True, False),
    ],
)
def test_the_topics_value_beats_the_clusters_and_that_the_property(
    topic: str | None, cluster_default: str | None, own: bool, in_force: bool
) -> None:
    cluster = a_cluster(orders=[[1, 2]], unclean=own)
    topics = {} if topic is None else {"orders": {UNCLEAN: topic}}
    brokers = {} if cluster_default is None else {"<default>": {UNCLEAN: cluster_default}}
    settle(cluster, ConfigsSeen(topics, brokers))
    assert cluster.is_unclean_allowed("orders") is in_force


def test_a_single_brokers_override_is_believed_and_means_nothing_to_an_election() -> None:
    cluster = offline()
    settled = settle(cluster, ConfigsSeen({}, {"2": {UNCLEAN: "true"}}))
    assert settled.of_states() == []
    assert cluster.duties.broker_configs == {"2": {UNCLEAN: "true"}}
    assert not cluster.is_unclean_allowed("orders")


def test_other_overrides_of_a_topic_do_not_hide_the_clusters_value() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    settle(cluster, ConfigsSeen({"orders": {"retention.ms": "1"}}, {"<default>": {UNCLEAN: "true"}}))
    assert cluster.is_unclean_allowed("orders")


def test_a_configuration_that_was_read_already_changes_nothing() -> None:
    cluster = offline()
    seen = ConfigsSeen({"orders": {"retention.ms": "1"}, "users": {}}, {"<default>": {}, "1": {"a": "b"}})
    settle(cluster, seen)
    assert steps_of(cluster, seen) == []


def test_no_overrides_any_more_leaves_no_trace() -> None:
    cluster = believing(a_cluster(orders=[[1]]), ConfigFound("topics", "orders", {UNCLEAN: "true"}))
    settle(cluster, topics_seen(orders={}))
    assert cluster.duties.topic_configs == {}


def test_a_topic_that_goes_takes_its_overrides_with_it() -> None:
    cluster = believing(a_cluster(orders=[[1]]), ConfigFound("topics", "orders", {UNCLEAN: "true"}))
    settle(cluster, TopicsSeen([], LOADED + 20, frozenset()))
    assert cluster.duties.topic_configs == {}


def test_a_topic_is_created_with_its_overrides_in_force() -> None:
    cluster = a_cluster()
    settle(cluster, CreateTopicAsked("orders", assignment={0: (1, 2)}, configs={UNCLEAN: "true"}))
    assert cluster.is_unclean_allowed("orders")


# ---------------------------------------------------------------------- switched on at run time


def test_a_topic_that_may_now_be_led_uncleanly_is_and_no_other() -> None:
    cluster = offline()
    settled = settle(cluster, topics_seen(orders={UNCLEAN: "true"}))
    assert settled.states == {"orders-0": a_leadership(2, [2], 5, recovery=RECOVERING)}
    assert [one.reason for one in settled.of_states()] == ["unclean election was allowed; unclean election"]
    assert [type(change) for change in settled.steps[0]] == [ConfigFound], "believed before it is used"


def test_the_recovery_state_is_in_the_znode_until_the_leader_reports_it_recovered() -> None:
    cluster = offline()
    zookeeper = zookeeper_of(cluster)
    path = "/brokers/topics/orders/partitions/0/state"
    settle(cluster, topics_seen(orders={UNCLEAN: "true"}), zookeeper)
    assert generic(zookeeper.nodes[path].data)["leader_recovery_state"] == 1
    recovered = a_proposal(cluster, "orders", 0, 2, recovery=RECOVERED)
    settle(cluster, AlterPartitionAsked(2, 12, [recovered]), zookeeper)
    assert "leader_recovery_state" not in generic(zookeeper.nodes[path].data)
    assert state_of(cluster, "orders") == a_leadership(2, [2], 5)


def test_switched_on_for_the_cluster_all_topics_are_led_but_those_that_say_no() -> None:
    cluster = believing(offline(), ConfigFound("topics", "users", {UNCLEAN: "false"}))
    settled = settle(cluster, cluster_seen(unclean_leader_election_enable="true"))
    assert set(settled.states) == {"orders-0"}


def test_switched_on_for_the_cluster_and_off_for_a_topic_in_one_reading_the_topic_decides() -> None:
    seen = ConfigsSeen({"users": {UNCLEAN: "false"}}, {"<default>": {UNCLEAN: "true"}})
    assert set(settle(offline(), seen).states) == {"orders-0"}


def test_an_override_taken_away_can_switch_it_on() -> None:
    cluster = believing(
        offline(),
        ConfigFound("topics", "orders", {UNCLEAN: "false"}),
        ConfigFound("brokers", "<default>", {UNCLEAN: "true"}),
    )
    assert set(settle(cluster, topics_seen(orders={})).states) == {"orders-0"}


def test_switched_on_without_a_live_replica_it_counts_when_a_replica_returns() -> None:
    states = {"orders-0": OFFLINE}
    cluster = a_cluster(live=(3,), orders=[[1, 2]], states=states)
    assert settle(cluster, topics_seen(orders={UNCLEAN: "true"})).states == {}
    settled = settle(cluster, brokers_seen(2, 3))
    assert settled.states == {"orders-0": a_leadership(2, [2], 5, recovery=RECOVERING)}


def test_switched_on_a_partition_with_a_leader_is_left_alone() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(2, [2])})
    assert settle(cluster, topics_seen(orders={UNCLEAN: "true"})).states == {}


def test_switched_off_nothing_changes_until_the_next_election() -> None:
    cluster = a_cluster(orders=[[1, 2]], unclean=True, states={"orders-0": a_leadership(1, [1])})
    assert settle(cluster, topics_seen(orders={UNCLEAN: "false"})).states == {}
    assert settle(cluster, brokers_seen(2, 3)).states["orders-0"].leader == NO_LEADER


def test_a_topic_on_its_way_out_is_not_led_again() -> None:
    cluster = believing(offline(), DeletionQueued("orders", False))
    assert settle(cluster, topics_seen(orders={UNCLEAN: "true"})).states == {}


def test_a_draining_broker_leads_uncleanly_only_without_another_candidate() -> None:
    cluster = a_cluster(live=(2, 3), orders=[[1, 2, 3], [1, 2]], states={"orders-0": OFFLINE, "orders-1": OFFLINE})
    believing(cluster, DrainGranted(2, 12, is_shutdown=False))
    settled = settle(cluster, topics_seen(orders={UNCLEAN: "true"}))
    assert {name: state.leader for name, state in settled.states.items()} == {"orders-0": 3, "orders-1": 2}


def test_old_notifications_are_removed() -> None:
    path = f"{CONFIG_CHANGES}/config_change_0000000003"
    cluster = a_cluster()
    zookeeper = zookeeper_of(cluster)
    zookeeper.put(path, b"{}")
    settled = settle(cluster, ConfigsSeen({}, {}, {path: 0}), zookeeper)
    assert settled.changes == [NotificationRead(path)]
    assert path not in zookeeper.nodes


# ---------------------------------------------------------------------- asked for


def test_a_change_is_written_whole_and_announced_in_one_transaction() -> None:
    cluster = believing(offline(), ConfigFound("topics", "orders", {"flush.ms": "1", "segment.ms": "2"}))
    zookeeper = zookeeper_of(cluster)
    asked = {"flush.ms": None, "retention.ms": "3", UNCLEAN: "true"}
    settled = settle(cluster, ConfigAsked("topics", "orders", asked), zookeeper)
    wanted = {"segment.ms": "2", "retention.ms": "3", UNCLEAN: "true"}
    assert settled.steps[0] == [ConfigWritten("topics", "orders", wanted)]
    assert generic(zookeeper.nodes["/config/topics/orders"].data) == {"version": 1, "config": wanted}
    [name] = zookeeper.children(CONFIG_CHANGES)
    announced = generic(zookeeper.nodes[f"{CONFIG_CHANGES}/{name}"].data)
    assert announced == {"version": 2, "entity_path": "topics/orders"}
    assert cluster.duties.topic_configs == {"orders": wanted}
    assert settled.states["orders-0"].recovery == RECOVERING, "and its effect"


def test_its_own_notification_read_back_changes_nothing() -> None:
    cluster = offline()
    settle(cluster, ConfigAsked("brokers", "<default>", {UNCLEAN: "true"}))
    assert steps_of(cluster, ConfigsSeen({}, {"<default>": {UNCLEAN: "true"}})) == []


def test_a_change_that_stands_already_is_not_written() -> None:
    cluster = believing(a_cluster(orders=[[1]]), ConfigFound("topics", "orders", {"flush.ms": "1"}))
    settled = settle(cluster, ConfigAsked("topics", "orders", {"flush.ms": "1", "segment.ms": None}))
    assert ([one.code for one in settled.refusals], settled.writes) == ([Code.NONE], [[]])


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (ConfigAsked("topics", "nothing", {"a": "1"}), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (ConfigAsked("topics", "ended", {"a": "1"}), Code.UNKNOWN_TOPIC_OR_PARTITION),
        (ConfigAsked("brokers", "one", {"a": "1"}), Code.INVALID_REQUEST),
        (ConfigAsked("brokers", "-1", {"a": "1"}), Code.INVALID_REQUEST),
        (ConfigAsked("brokers", "../topics/orders", {"a": "1"}), Code.INVALID_REQUEST),
        (ConfigAsked("topics", "orders", {UNCLEAN: "perhaps"}), Code.INVALID_CONFIG),
        (ConfigAsked("topics", "orders", {"a": "x" * (MAX_CONFIG_CHARACTERS + 1)}), Code.INVALID_CONFIG),
    ],
)
def test_an_invalid_configuration_is_refused_and_nothing_is_written(event: ConfigAsked, code: Code) -> None:
    cluster = believing(a_cluster(orders=[[1]], ended=[[1]]), DeletionQueued("ended", False))
    settled = settle(cluster, event)
    assert ([one.code for one in settled.refusals], settled.writes) == ([code], [[]])


def test_overrides_do_not_grow_beyond_the_limit_request_by_request() -> None:
    cluster = a_cluster(orders=[[1]])
    half = ",".join(["10:1"] * (MAX_CONFIG_CHARACTERS // 2 // 5))
    leaders, followers = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
    assert settle(cluster, ConfigAsked("topics", "orders", {leaders: half})).refusals == []
    [refused] = settle(cluster, ConfigAsked("topics", "orders", {followers: half})).refusals
    assert refused.code is Code.INVALID_CONFIG
    assert "at most" in refused.detail


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"bogus": "1"}, "Unknown topic config name: bogus"),
        ({"retention.ms": "abc"}, "Not a number of type LONG"),
        ({"cleanup.policy": "shred"}, "String must be one of: compact, delete"),
    ],
)
def test_a_topic_has_no_setting_that_kafkas_brokers_would_not_take(values: dict[str, str], words: str) -> None:
    for event in (ConfigAsked("topics", "orders", values), CreateTopicAsked("new", 1, 1, None, values)):
        settled = settle(a_cluster(orders=[[1]]), event)
        [refused] = settled.refusals
        assert (refused.code, settled.writes) == (Code.INVALID_CONFIG, [[]])
        assert words in refused.detail


def test_a_setting_that_no_broker_would_take_can_be_removed() -> None:
    cluster = believing(a_cluster(orders=[[1]]), ConfigFound("topics", "orders", {"bogus": "1"}))
    assert settle(cluster, ConfigAsked("topics", "orders", {"bogus": None})).refusals == []
