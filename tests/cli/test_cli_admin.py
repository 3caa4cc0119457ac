"""`klamm` and the controller's own knowledge: deletions, growth, configuration, drains, insights."""

from __future__ import annotations

import json
from typing import Any

import yaml

from controller.api.ports import Reply
from controller.core.codes import Code
from controller.core.events import ConfigAsked, DeleteTopicAsked
from controller.term.term import TermRecord
from tests.api.api_support import (
    FakeHandle,
    View,
    a_broker,
    address_of,
    reserved,
    served_in_thread,
)
from tests.builders import a_cluster, a_leadership
from tests.support.deciding_support import (
    BelievedView,
    DecidingHandle,
    a_cluster_to_command,
    run,
)


def test_a_topic_is_deleted_in_the_background_or_waited_for() -> None:
    cluster = a_cluster(orders=[[1, 9]], other=[[1, 2]])
    handle = DecidingHandle(cluster)
    handle.has_deleting_brokers = True
    with a_cluster_to_command(cluster, handle) as (klamm, _):
        result = klamm("topics", "delete", "orders")
        reason = cluster.duties.deletions["orders"].waits_for
        assert (result.exit_code, result.stdout) == (
            0,
            f"topic       orders\nstatus      deleting\nreplicas    1 of 2 deleted\nwaits for   {reason}\n",
        )
        assert klamm("topics", "deletions", "-o", "name").stdout == "orders\n"
        listed = json.loads(klamm("topics", "deletions", "-o", "json").stdout)
        keys = "topic status abandon_offline replicas replicas_deleted failures waits_for retry_at_ms was_there"
        assert list(listed[0]) == keys.split()
        waiting = klamm("topics", "delete", "orders", "--wait", "--timeout", "300ms")
        assert (waiting.exit_code, "deleting" in waiting.stdout) == (1, True)
        done = klamm("topics", "delete", "orders", "--abandon-offline", "--wait")
        gone = "topic    orders\nstatus   deleted: there is no such topic now\n"
        assert (done.exit_code, done.stdout) == (0, gone)
        again = klamm("topics", "delete", "orders")
        assert (again.exit_code, again.stdout) == (1, "")
        assert again.stderr.startswith("klamm: there is no topic orders (UNKNOWN_TOPIC_OR_PARTITION)")
        again = klamm("topics", "delete", "orders", "--if-exists", "-o", "json")
        assert (again.exit_code, json.loads(again.stdout)["status"]) == (0, "deleted")
    assert DeleteTopicAsked("orders", abandon_offline=True) in handle.asked


def test_a_topic_grows_and_says_so_once() -> None:
    with a_cluster_to_command(a_cluster(orders=[[1, 2]])) as (klamm, _):
        grown = klamm("topics", "grow", "orders", "--partitions", "2", "--assignment", "3:1")
        assert grown.exit_code == 0
        assert grown.stdout.startswith("orders has grown to 2 partitions\n\ntopic        orders\n")
        assert "orders-1    online        3       0   3,1   3,1\n" in grown.stdout
        again = klamm("topics", "grow", "orders", "--partitions", "2", "--assignment", "3:1")
        assert again.stdout.startswith("orders has them already: nothing was changed\n\n")
        refused = klamm("topics", "grow", "orders", "--partitions", "1")
        assert (refused.exit_code, "INVALID_PARTITIONS" in refused.stderr) == (1, True)


def test_configuration_is_shown_with_its_sources_and_changed() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    with a_cluster_to_command(cluster) as (klamm, handle):
        result = klamm("topics", "config", "orders", "--set", "retention.ms=5", "--unset", "flush.ms")
        assert (result.exit_code, result.stdout) == (
            0,
            "NAME                             VALUE   SOURCE\n"
            "retention.ms                     5       DYNAMIC_TOPIC_CONFIG\n"
            "unclean.leader.election.enable   false   DEFAULT_CONFIG\n",
        )
        assert handle.asked == [ConfigAsked("topics", "orders", {"retention.ms": "5", "flush.ms": None})]
        document = json.loads(klamm("topics", "config", "orders", "-o", "json").stdout)
        assert (list(document), list(document["values"][0])) == (
            ["kind", "entity", "values"],
            ["name", "value", "source"],
        )
        assert klamm("brokers", "config", "2", "--set", "a=1=2").exit_code == 0
        assert klamm("brokers", "config", "--set", "b=2", "-o", "name").stdout.splitlines()[:2] == [
            "auto.leader.rebalance.enable",
            "b",
        ]
        assert klamm("brokers", "config", "9").exit_code == 1
    assert cluster.duties.broker_configs == {"2": {"a": "1=2"}, "<default>": {"b": "2"}}


def test_a_drain_exits_1_while_something_remains_that_could_be_led_elsewhere() -> None:
    with a_cluster_to_command(a_cluster(orders=[[1, 2]], alone=[[1], [2]], stuck=[[2, 9]])) as (klamm, _):
        drained = klamm("drain", "1")
        assert (drained.exit_code, drained.stdout) == (
            0,
            "broker 1 is drained, until `klamm undrain 1`; it leads 1 partition, 1 of them without another replica\n",
        )
        stuck = klamm("drain", "2")
        assert (stuck.exit_code, "nobody else can lead orders-0, stuck-0 now" in stuck.stdout) == (1, True)
        keys = ["broker_id", "draining", "is_shutdown", "leaders", "remaining_count", "remaining"]
        shown = json.loads(klamm("drain", "2", "--show", "-o", "json").stdout)
        assert (list(shown), shown["remaining_count"]) == (keys, 2)
        assert klamm("undrain", "1").stdout == "broker 1 is not drained; it leads 1 partition\n"
        assert klamm("drain", "9").stderr == (
            "klamm: broker 9 is not live (BROKER_ID_NOT_REGISTERED); `klamm brokers list` shows who is there\n"
        )


def test_explain_says_of_each_replica_whether_it_can_lead_and_why() -> None:
    cluster = a_cluster(orders=[[1, 2, 9]], states={"orders-0": a_leadership(2, [2])})
    with a_cluster_to_command(cluster) as (klamm, _):
        result = klamm("explain", "orders-0")
        assert result.exit_code == 0
        rows = [line.split(maxsplit=4) for line in result.stdout.partition("replicas:\n")[2].splitlines()]
        assert rows == [
            ["BROKER-ID", "LEADER", "IN-SYNC", "ELIGIBLE", "WHY"],
            ["1", "no", "no", "no", "not in sync"],
            ["2", "yes", "yes", "yes", "online and in sync"],
            ["9", "no", "no", "no", "its broker is gone; not in sync"],
        ]
        assert yaml.safe_load(klamm("explain", "orders-0", "-o", "yaml").stdout)["leader"] == 2
        assert klamm("explain", "orders-0", "-o", "name").stdout == "orders-0\n"
        assert klamm("explain", "no-orders-0").exit_code == 1


def test_what_if_lists_the_moves_and_the_offline_partitions() -> None:
    cluster = a_cluster(orders=[[1, 2], [3]])
    with a_cluster_to_command(cluster) as (klamm, handle):
        result = klamm("what-if", "kill", "1", "3")
        assert result.exit_code == 0
        assert "offline        1 partition: nobody in sync is left to lead\n" in result.stdout
        assert "\noffline: orders-1\n" in result.stdout
        assert "orders-0             1             2   2\n" in result.stdout
        assert result.stdout.endswith("partition   OfflinePartition   OfflinePartition       1\n")
        document: Any = json.loads(klamm("what-if", "kill", "3", "-o", "json").stdout)
        assert (document["kill"], document["moves"]) == ([3], [])
        assert klamm("what-if", "kill", "9").exit_code == 1
    assert handle.asked == []


def test_a_large_prediction_is_counted_and_its_first_partitions_are_named() -> None:
    cluster = a_cluster(orders=[[1, 2]] * 50, lost=[[1]] * 30)
    with a_cluster_to_command(cluster) as (klamm, _):
        short, wide = klamm("what-if", "kill", "1").stdout, klamm("what-if", "kill", "1", "-o", "wide").stdout
    assert "offline        30 partitions" in short
    assert "leader moves   50 partitions" in short
    assert "and 10 more; -o wide names all" in short
    assert "and 30 more; -o wide names all" in short
    assert (short.count("orders-49"), wide.count("orders-49"), "more; " in wide) == (0, 2, False)


def test_history_shows_the_terms_and_why_they_ended() -> None:
    cluster = a_cluster()
    handle = DecidingHandle(cluster)
    day_ms = 86_400_000
    handle.terms = [
        TermRecord(6, 2, day_ms, day_ms + 1_500, "session gone", {"claimed": 3.46, "loaded": 5.0}),
        TermRecord(7, 1, 2 * day_ms, None, None, {}),
    ]
    with a_cluster_to_command(cluster, handle) as (klamm, _):
        result = klamm("history")
        assert [line.split(maxsplit=4) for line in result.stdout.splitlines()] == [
            ["EPOCH", "CONTROLLER", "FROM", "TO", "WHY-IT-ENDED   TOOK-MS"],
            ["6", "2", "1970-01-02T00:00:00.000Z", "1970-01-02T00:00:01.500Z", "session gone       5.0"],
            ["7", "1", "1970-01-03T00:00:00.000Z", "now", "-                    -"],
        ]
        wide = klamm("history", "-o", "wide").stdout.splitlines()[1]
        assert wide.split()[-7:] == ["5.0", "3.5", "1.5", "-", "-", "-", "-"]  # each phase by itself
        for term in json.loads(klamm("history", "-o", "json").stdout):
            assert list(term) == ["controller_epoch", "broker_id", "from_ms", "to_ms", "why", "phases"]


def test_waiting_for_reassignments_to_end() -> None:
    cluster = a_cluster(orders=[[1], [1]])
    with a_cluster_to_command(cluster) as (klamm, handle):
        words = ("wait", "--for", "no-reassignments", "--timeout", "0")
        assert klamm(*words).stdout.startswith("no-reassignments after ")
        cluster.reassigning.add(("orders", 1))
        running = klamm(*words)
        assert (running.exit_code, running.stderr) == (
            1,
            "klamm: reassignments still run, such as orders-1; `klamm reassign list` shows all\n",
        )
        handle.stand_by(None)
        assert klamm(*words).stderr.startswith("klamm: nobody can say what runs: there is no active controller now")


def test_a_read_is_followed_to_the_controller() -> None:
    bound, cluster = reserved(), a_cluster(orders=[[1, 2]])
    brokers = [a_broker(1, port=int(address_of(bound).partition(":")[2])), a_broker(2)]
    standby = FakeHandle()
    standby.stand_by((1, 77))
    processes = (
        (View(brokers=brokers, own_id=2), standby, reserved()),
        (BelievedView(cluster), DecidingHandle(cluster), bound),
    )
    with served_in_thread(*processes) as urls:
        for words in (
            ("explain", "orders-0"),
            ("history",),
            ("reassign", "list"),
            ("drain", "1"),
            ("topics", "deletions"),
        ):
            assert run(*words, "--url", urls[0], "-o", "json").exit_code == 0, words


def test_a_refusal_of_a_read_is_one_line() -> None:
    handle = FakeHandle(lambda _: Reply(Code.NONE))
    handle.stand_by(None)
    with a_cluster_to_command(a_cluster(), handle) as (klamm, _):
        result = klamm("history")
    assert (result.exit_code, result.stdout, result.stderr) == (
        1,
        "",
        "klamm: there is no active controller now; nothing was changed, try again (NOT_CONTROLLER); "
        "`klamm wait --for controller` waits for one\n",
    )
