"""`klamm explain --at`, `klamm what-if kill --at`, `klamm diff`: the commands, from every kind of record."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sparkjobs.commands.cli import top
from sparkjobs.history.as_of import cluster_in
from sparkjobs.history.cluster import NOBODY
from sparkjobs.records import RecordError
from tests.known.kraft_samples import KRAFT

DATA = Path(__file__).parents[1] / "data"
METADATA = "__cluster_metadata-0"
#: half a minute before the reassignment; while broker 1 is dead and `single-2` is without a leader
QUIET, BROKEN = "2026-11-19T13:44:45", "2026-11-19T13:46:10"


def called(*words: object) -> Result:
    return CliRunner().invoke(top, [str(word) for word in words])


def document(*words: object) -> Any:
    result = called(*words, "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_a_partition_is_explained_as_of_a_time() -> None:
    found = document("explain", "single-2", KRAFT / "4.3.1", "--at", BROKEN)
    assert (found["state"]["leader"], found["state"]["elr"], found["is_led"]) == (NOBODY, [1], False)
    assert [(one["replica"], one["broker"], one["could_lead"]) for one in found["replicas"]] == [(1, "fenced", "no")]
    assert found["past"][-1]["said"] == "nobody leads; in sync [1] to []; eligible [] to [1]"
    assert found["as_of"]["mode"] == "kraft"
    assert found["as_of"]["at_ms"] <= 1795095970000 < found["as_of"]["next_ms"]
    text = called("explain", "single-2", KRAFT / "4.3.1", "--at", BROKEN).output
    assert "single-2: nobody led; in sync last: nobody; eligible: 1" in text


def test_a_what_if_tells_its_rule_and_each_outcome() -> None:
    found = document("what-if", "kill", 1, 3, KRAFT / "4.3.1", "--at", "2026-11-19T13:45:40")
    assert found["rule"].startswith("KRaft: the leader if it lives and is in sync")
    offline = {one["partition"]: [each["state"]["elr"] for each in one["outcomes"]] for one in found["offline"]}
    assert offline["single-2"] == [[1]]
    assert sorted(offline["pay_0.x-0"]) == [[1], [3]]  # whichever died last
    (each,) = (one for one in found["offline"] if one["partition"] == "pay_0.x-0")
    assert [one["orders"] for one in each["outcomes"]] == [[[1, 3]], [[3, 1]]]
    assert {each["outcomes"][0]["state"]["leader"] for each in found["shrunk"]} == {2}
    assert found["safe_order"] == []
    assert found["blocked"] == {"1": ["single-2"], "3": ["single-0"]}
    text = called("what-if", "kill", 1, 3, KRAFT / "4.3.1", "--at", "2026-11-19T13:45:40").output
    assert "5 without a leader" in text
    assert "Stopping 1 would leave 1 without a leader: single-2." in text


def test_two_moments_differ_by_the_changes_between_them() -> None:
    found = document("diff", QUIET, "end", KRAFT / "4.3.1")["differences"]
    assert {"what": "replicas", "name": "pay_0.x-0", "before": "[1, 2]", "after": "[3, 1]"} in found
    assert {"what": "partition", "name": "t_new-0", "before": "there", "after": None} in found
    assert {"what": "feature setting", "name": "default metadata.version", "before": "29", "after": "30"} in found
    assert document("diff", QUIET, QUIET, KRAFT / "4.3.1")["differences"] == []
    assert "Nothing differs." in called("diff", "end", "end", KRAFT / "4.3.1").output


def test_a_snapshot_alone_is_enough(tmp_path: Path) -> None:
    (snapshot,) = (KRAFT / "4.3.1" / "controller-101" / METADATA).glob("*0442-*.checkpoint.gz")
    shutil.copy(snapshot, tmp_path)
    found = document("explain", "orders-0", tmp_path)
    assert (found["as_of"]["position"], found["state"]["leader"]) == (441, 3)
    shutil.copy(DATA / "zookeeper-snapshots" / "snapshot.bfd-3.8.4.gz", tmp_path / "snapshot.bfd.gz")
    result = called("explain", "orders-0", tmp_path)
    assert "there are 2 histories; say which: --mode zookeeper, --mode kraft" in result.output
    found = document("what-if", "kill", 2, tmp_path, "--mode", "zookeeper")
    assert found["concerned"] == 54


DESCRIBED = (
    "Topic: orders\tTopicId: EfgGD-WjSKewgVZdwiq-BQ\tPartitionCount: 2\tReplicationFactor: 3\t"
    "Configs: min.insync.replicas=2,retention.ms=5\n"
    "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2{elr}\n"
    "\tTopic: orders\tPartition: 1\tLeader: none\tReplicas: 2,3\tIsr: {isr}\tAdding Replicas: 4\t"
    "Removing Replicas: {more}\n"
)


def test_the_output_of_kafkas_tool_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "described.txt"
    path.write_text(DESCRIBED.format(elr="", isr="3", more=""))
    found = document("what-if", "kill", 1, 2, path)
    assert found["rule"].startswith("ZooKeeper mode")
    assert [(one["partition"], len(one["outcomes"])) for one in found["offline"]] == [("orders-0", 2)]
    assert found["offline_before"] == ["orders-1"]
    path.write_text(DESCRIBED.format(elr="\tElr: 3\tLastKnownElr: ", isr="", more="\tElr: 2,3\tLastKnownElr: 2"))
    cluster = cluster_in(path.read_text())
    assert (cluster.mode, cluster.partitions["orders", 0].elr, cluster.partitions["orders", 1].adding) == (
        "kraft", (3,), (4,)
    )  # fmt: skip
    assert cluster.configs["topic", "orders"]["min.insync.replicas"] == "2"


def test_the_tools_of_kafka_3_9_say_n_a_of_a_cluster_without_eligible_replicas(tmp_path: Path) -> None:
    path = tmp_path / "described.txt"
    warned = "SLF4J: Defaulting to no-operation (NOP) logger implementation\n"
    path.write_text(warned + DESCRIBED.format(elr="\tElr: N/A\tLastKnownElr: N/A", isr="3", more="\tElr: N/A"))
    found = document("what-if", "kill", 1, path)
    assert found["rule"].startswith("ZooKeeper mode")
    assert [one["outcomes"][0]["state"]["elr"] for one in found["moved"]] == [[]]


def test_of_a_partition_without_a_leader_those_in_sync_last_are_dead(tmp_path: Path) -> None:
    """Else a dead broker would be elected uncleanly."""
    path = tmp_path / "described.txt"
    path.write_text(
        "Topic: a\tPartitionCount: 1\tConfigs: unclean.leader.election.enable=true\n"
        "\tTopic: a\tPartition: 0\tLeader: 3\tReplicas: 3,2\tIsr: 3\n"
        "\tTopic: b\tPartition: 0\tLeader: none\tReplicas: 2\tIsr: 2\n"
    )
    found = document("what-if", "kill", 3, path)
    assert [one["partition"] for one in found["offline"]] == ["a-0"]
    assert found["not_alive"] == []


@pytest.mark.parametrize(
    "text", ["", "Topic: a\tPartition: 0\tLeader: x\tReplicas: 1\tIsr: 1", "Topic: a\tPartition: 0"]
)
def test_a_description_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(RecordError):
        cluster_in(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explain", "orders-0", "--at", "2020-01-01"], "the record begins after that time"),
        (["explain", "orders-77"], "there was no orders-77 then: no record names it"),
        (["explain", "t_new-0"], "there was no t_new-0 then: it was deleted at 2026-11-19T13:48:19.777Z"),
        (["explain", "orders"], "write it like orders-0"),
        (["what-if", "kill"], "name brokers by their numbers"),
        (["explain", "orders-0", "--at", "noon"], "'noon' is no time"),
    ],
)
def test_a_question_without_an_answer_gets_its_reason(words: list[str], said: str) -> None:
    result = called(*words, KRAFT / "4.3.1")
    assert result.exit_code != 0
    assert said in result.output


def test_without_a_record_it_says_which_files_would_be_one(tmp_path: Path) -> None:
    (tmp_path / "state-change.log").write_text("[2026-11-18 07:49:10,000] INFO nothing (state.change.logger)\n")
    result = called("explain", "orders-0", tmp_path)
    assert "no record of ZooKeeper or KRaft is there: name folders with" in result.output


def test_secrets_are_shown_in_no_difference() -> None:
    from sparkjobs.commands.as_of import shown
    from sparkjobs.history.answers import is_secret

    assert shown("ssl.keystore.password", "a", "b") == ["(hidden 0)", "(hidden 1)"]
    assert shown("retention.ms", "1", None) == ["1", None]
    hidden = ("listener.name.x.sasl.jaas.config", "ssl.keystore.key", "ssl.key.password", "delegation.token.secret.key")
    assert all(map(is_secret, hidden))
    assert not any(
        map(is_secret, ("ssl.keystore.type", "retention.ms", "min.insync.replicas", "ssl.keystore.location"))
    )
