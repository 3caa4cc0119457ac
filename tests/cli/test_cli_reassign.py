"""`klamm reassign` and `klamm elect`: Kafka's files in and out, their output, and their exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from controller.cli.plans import plan_for
from controller.core.belief.cluster import Cluster
from controller.core.decide.placement import Place
from controller.wire import bodies
from tests.api.api_support import reserved, served_in_thread
from tests.builders import a_cluster, a_leadership
from tests.processes import started
from tests.support.deciding_support import BelievedView, DecidingHandle, a_cluster_to_command
from tests.waiting import DEADLINE_S


def a_plan(path: Path, *entries: tuple[str, int, list[int]]) -> str:
    """Writes Kafka's file."""
    partitions = [{"topic": topic, "partition": number, "replicas": ids} for topic, number, ids in entries]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def test_a_generated_plan_is_kafkas_file_and_can_be_executed(tmp_path: Path) -> None:
    cluster = a_cluster(live=(1, 2, 3), orders=[[1, 2], [2, 1]])
    with a_cluster_to_command(cluster) as (klamm, _):
        generated = klamm("reassign", "generate", "--topic", "orders", "--brokers", "2,3", "--seed", "1")
        assert generated.exit_code == 0
        document = json.loads(generated.stdout)
        assert (list(document), document["version"]) == (["version", "partitions"], 1)
        for entry in document["partitions"]:
            assert list(entry) == ["topic", "partition", "replicas", "log_dirs"]
            assert (sorted(entry["replicas"]), entry["log_dirs"]) == ([2, 3], ["any", "any"])
        (tmp_path / "plan.json").write_text(generated.stdout)
        assert klamm("reassign", "execute", str(tmp_path / "plan.json")).exit_code == 0
    assert {key: one.adding for key, one in cluster.topics["orders"].partitions.items()} == {0: (3,), 1: (3,)}


def test_topics_to_move_are_read_from_kafkas_file(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text('{"topics":[{"topic":"a"},{"topic":"b"}],"version":1}')
    with a_cluster_to_command(a_cluster(a=[[1]], b=[[2]], c=[[3]])) as (klamm, _):
        result = klamm("reassign", "generate", "--file", str(tmp_path / "topics.json"), "-o", "name")
        assert (result.exit_code, result.stdout) == (0, "a-0\nb-0\n")
        assert klamm("reassign", "generate", "--topic", "nope").exit_code == 1
        assert "not live: [9]" in klamm("reassign", "generate", "--topic", "a", "--brokers", "9").stderr


def test_a_plan_follows_kafkas_arithmetic() -> None:
    """Leaders round robin, the followers' shift grows once per lap, racks alternate."""
    now = [{"topic": "a", "partition": number, "replicas": [0, 1, 9], "removing": [9]} for number in range(6)]
    planned = [one.replicas for one in plan_for(now, [Place(broker_id) for broker_id in range(5)], seed=0).partitions]
    assert all(len(set(replicas)) == 2 for replicas in planned)
    assert [(b[0] - a[0]) % 5 for a, b in pairwise(planned)] == [1] * 5
    racked = plan_for(now, [Place(0, "a"), Place(1, "a"), Place(2, "b"), Place(3, "b")], seed=0)
    assert all({one // 2 for one in entry.replicas} == {0, 1} for entry in racked.partitions)


def test_execute_shows_each_outcome_and_exits_1_when_one_is_refused(tmp_path: Path) -> None:
    plan = a_plan(tmp_path / "plan.json", ("orders", 0, [3, 2]), ("orders", 1, [9]), ("nope", 0, [1]))
    with a_cluster_to_command(a_cluster(orders=[[1, 2], [2, 1]])) as (klamm, _):
        result = klamm("reassign", "execute", plan)
        assert (result.exit_code, result.stdout) == (
            1,
            "PARTITION   RESULT                       DETAIL\n"
            "nope-0      UNKNOWN_TOPIC_OR_PARTITION   unknown, being deleted, or its znode is malformed\n"
            "orders-0    done                         -\n"
            "orders-1    INVALID_REPLICA_ASSIGNMENT   not live: [9]\n",
        )
        listed = klamm("reassign", "list")
        assert listed.stdout == (
            "PARTITION   ISR   ADDING   REMOVING   TARGET   WAITS-FOR   GONE\n"
            "orders-0    1,2   3        1          3,2      3           -\n"
        )
        verified = klamm("reassign", "verify", plan)
        assert (verified.exit_code, verified.stdout) == (
            1,
            "PARTITION   STATE       NOW     PLANNED\n"
            "orders-0    running     3,2,1   3,2\n"
            "orders-1    different   2,1     9\n"
            "nope-0      unknown     -       1\n",
        )
        other = a_plan(tmp_path / "other.json", ("orders", 0, [2, 3]))
        assert json.loads(klamm("reassign", "verify", other, "-o", "json").stdout) == [
            {"topic": "orders", "partition": 0, "state": "overridden", "now": [3, 2, 1], "replicas": [2, 3]}
        ]


def test_cancelling_ends_a_running_reassignment_and_again_is_no_failure(tmp_path: Path) -> None:
    plan = a_plan(tmp_path / "plan.json", ("orders", 0, [3]), ("orders", 1, [3]))
    cluster = a_cluster(orders=[[1], [2]])
    with a_cluster_to_command(cluster) as (klamm, _):
        klamm("reassign", "execute", plan)
        one = klamm("reassign", "cancel", "--topic", "orders", "--partition", "1", "-o", "json")
        outcome = {"topic": "orders", "partition": 1, "code": "NONE", "detail": ""}
        assert (one.exit_code, json.loads(one.stdout)) == (0, {"partitions": [outcome]})
        rest = klamm("reassign", "cancel", "--all", "-o", "name")
        assert (rest.exit_code, rest.stdout) == (0, "orders-0\n")
        again = klamm("reassign", "cancel", "--file", plan)
        assert (again.exit_code, again.stdout.count("NO_REASSIGNMENT_IN_PROGRESS")) == (0, 2)
        assert klamm("reassign", "cancel", "--all").stderr == "nothing to do\n"
    assert [one.replicas for one in cluster.topics["orders"].partitions.values()] == [(1,), (2,)]


def test_the_way_back_is_kept(tmp_path: Path) -> None:
    back, plan = tmp_path / "back.json", a_plan(tmp_path / "plan.json", ("orders", 0, [2, 1]))
    cluster = a_cluster(orders=[[1, 2], [1, 2]])
    with a_cluster_to_command(cluster) as (klamm, _):
        assert klamm("reassign", "execute", plan, "--save-current", str(back)).exit_code == 0
        assert cluster.topics["orders"].partitions[0].replicas == (2, 1)
        assert klamm("reassign", "execute", str(back), "--wait").exit_code == 0
    assert cluster.topics["orders"].partitions[0].replicas == (1, 2)
    assert [entry["partition"] for entry in json.loads(back.read_text())["partitions"]] == [0]


def test_a_large_plan_goes_in_several_requests(tmp_path: Path) -> None:
    count = 4_500
    plan = a_plan(tmp_path / "plan.json", *(("orders", number, [1]) for number in range(count)))
    with a_cluster_to_command(a_cluster(orders=[[1]] * count)) as (klamm, handle):
        result = klamm("reassign", "execute", plan, "-o", "name")
    assert (result.exit_code, result.stdout.count("\n"), len(handle.asked)) == (0, count, 3)


def catch_up(url: str, cluster: Cluster) -> None:
    """The leader of orders-0 asks for all its replicas in the ISR."""
    known = cluster.topics["orders"].partitions[0]
    assert known.state is not None
    isr = tuple(bodies.IsrMember(one, cluster.brokers[one].epoch) for one in known.replicas)
    row = bodies.AlterRow(0, known.state.leader_epoch, known.version, 0, isr)
    body = bodies.AlterPartitionRequest([bodies.AlterTopic(cluster.topics["orders"].topic_id or "", [row])])
    leader = cluster.brokers[known.state.leader]
    headers = {"Content-Type": "application/json", bodies.SENDER: f"{leader.broker_id} {leader.epoch}"}
    request = urllib.request.Request(f"{url}{bodies.ALTER_PARTITION}", bodies.encode(body), headers)
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
        assert bodies.decode(response.read(), bodies.AlterPartitionAnswer).topics[0].partitions[0].error_code == 0


def running_command(plan: str, url: str) -> AbstractContextManager[subprocess.Popen[str]]:
    words = ["reassign", "execute", plan, "--wait", "--url", url]
    main = [sys.executable, "-c", "from controller.cli import main; main()"]
    return started([*main, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_waiting_shows_progress_and_can_be_interrupted_without_harm(tmp_path: Path, is_interrupted: bool) -> None:
    plan, cluster = a_plan(tmp_path / "plan.json", ("orders", 0, [3, 2])), a_cluster(orders=[[1, 2]])
    with (
        served_in_thread((BelievedView(cluster), DecidingHandle(cluster), reserved())) as (url,),
        running_command(plan, url) as process,
    ):
        assert process.stderr is not None
        assert process.stderr.readline() == "0 of 1 complete, 1 running\n"
        if is_interrupted:
            process.send_signal(signal.SIGINT)
        else:
            catch_up(url, cluster)
        _, rest = process.communicate(timeout=DEADLINE_S)
    if is_interrupted:
        assert (process.returncode, rest) == (
            1,
            f"klamm: the reassignment goes on; `klamm reassign verify {plan}` shows how far it is\n",
        )
        assert cluster.reassigning == {("orders", 0)}
    else:
        assert (process.returncode, rest) == (0, "1 of 1 complete, 0 running\n")


A_ROW = '{"topic":"a","partition":0,"replicas":[1]}'
NO_PLANS = ["", "{", "[]", "{}", '{"partitions":[]}', '{"partitions":[{"topic":"a","partition":0}]}', "[" * 100_000]


@pytest.mark.parametrize("content", [*NO_PLANS, f'{{"partitions":[{A_ROW},{A_ROW}]}}'])
def test_a_file_that_is_no_plan_is_exit_2_and_sends_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "plan.json").write_text(content)
    with a_cluster_to_command(a_cluster()) as (klamm, handle):
        for word in ("execute", "verify"):
            result = klamm("reassign", word, str(tmp_path / "plan.json"))
            assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert handle.asked == []


def test_elections_by_name_by_file_and_for_all(tmp_path: Path) -> None:
    names = {"partitions": [{"topic": "orders", "partition": number} for number in (0, 1, 2)]}
    (tmp_path / "names.json").write_text(json.dumps(names))
    states: Any = {"orders-0": a_leadership(2, [2, 1]), "orders-2": a_leadership(2, [2])}
    with a_cluster_to_command(a_cluster(orders=[[1, 2]] * 4, states=states)) as (klamm, _):
        result = klamm("elect", "--type", "preferred", "--file", str(tmp_path / "names.json"))
        assert (result.exit_code, result.stdout) == (
            1,
            "PARTITION   RESULT                           DETAIL\n"
            "orders-0    done                             -\n"
            "orders-1    ELECTION_NOT_NEEDED              its first replica leads it\n"
            "orders-2    PREFERRED_LEADER_NOT_AVAILABLE   broker 1 is not online and in sync, or drains\n",
        )
        one = klamm("elect", "--type", "unclean", "--topic", "orders", "--partition", "0", "-o", "json")
        assert one.exit_code == 0
        assert [list(entry) for entry in json.loads(one.stdout)["partitions"]] == [
            ["topic", "partition", "code", "detail"]
        ]


def test_an_election_of_all_that_changes_nothing_says_so() -> None:
    with a_cluster_to_command(a_cluster(orders=[[1, 2]])) as (klamm, _):
        result = klamm("elect", "--type", "preferred", "--all")
    assert (result.exit_code, result.stderr) == (0, "nothing to do\n")
