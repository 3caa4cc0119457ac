"""Histories out of records, against the clusters' own tools, logs, znodes and clients."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sparkjobs.history.as_of import History, answers_for_records, histories_in
from sparkjobs.history.cluster import Cluster, Partition
from sparkjobs.records import RecordError
from sparkjobs.records.discovery import find_records
from sparkjobs.records.kraft_files import batches_in
from sparkjobs.records.kraft_history import kraft_history
from tests.known.kraft_samples import KRAFT
from tests.recordings import Recording

DATA = Path(__file__).parents[1] / "data"
KRAFTS = ("4.3.1", "3.9.1-migration")
ZOOKEEPERS = ("kafka-3.9.1", "kafka-3.9.1-info")
METADATA = "__cluster_metadata-0"


def history_of(*named: Path, mode: str = "kraft") -> History:
    (found,) = (one for one in histories_in(map(str, named)) if one.mode == mode)
    return found


def end_of(history: History) -> Cluster:
    replay = history.replay()
    for _ in replay.steps():
        pass
    return replay.cluster


@cache
def answers_of(folder: Path) -> dict[str, list[Any]]:
    return answers_for_records(find_records([str(folder)]), "kafka")  # type: ignore[return-value]


def timeline_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "timeline.jsonl").read_text().splitlines()]


# The end, as Kafka's metadata shell prints it.


def shown_by_the_shell(folder: Path) -> Iterator[tuple[str, int, Partition]]:
    text = gzip.decompress((folder / "metadata-shell.txt.gz").read_bytes()).decode()
    topics = text[text.index("\ntopics:") :]
    topic, number = "", -1
    for line in topics[topics.index("  byId:") : topics.index("  byName:")].splitlines():
        if found := re.fullmatch(r"    (\S+):", line):
            topic = found[1]
        elif found := re.fullmatch(r"      (\d+):", line):
            number = int(found[1])
        elif found := re.fullmatch(r" +PartitionRegistration\((.*)\)", line):
            said = dict(re.findall(r"(\w+)=(\[[^\]]*\]|[^,\[\]]+)", found[1]))

            def of(key: str, said: dict[str, str] = said) -> tuple[int, ...]:
                return tuple(json.loads(said.get(key, "[]")))

            yield (
                topic,
                number,
                Partition(
                    leader=int(said["leader"]),
                    leader_epoch=int(said["leaderEpoch"]),
                    isr=of("isr"),
                    replicas=of("replicas"),
                    epoch=int(said["partitionEpoch"]),
                    adding=of("addingReplicas"),
                    removing=of("removingReplicas"),
                    elr=of("elr"),
                    last_known_elr=of("lastKnownElr"),
                    is_recovering=said["leaderRecoveryState"] == "RECOVERING",
                ),
            )


@pytest.mark.parametrize("name", KRAFTS)
def test_the_end_agrees_with_kafkas_metadata_shell(name: str) -> None:
    cluster = end_of(history_of(KRAFT / name))
    shown = {(topic, number): partition for topic, number, partition in shown_by_the_shell(KRAFT / name)}
    assert {(cluster.topic_ids[topic], number): one for (topic, number), one in cluster.partitions.items()} == shown
    text = gzip.decompress((KRAFT / name / "metadata-shell.txt.gz").read_bytes()).decode()
    registered = re.findall(
        r"BrokerRegistration\(id=(\d+), epoch=(\d+), incarnationId=([\w-]+),.*fenced=(\w+), inC", text
    )
    assert registered == [
        (str(broker), str(one.epoch), one.incarnation, str(one.is_fenced).lower())
        for broker, one in sorted(cluster.brokers.items())
    ]


def test_the_end_agrees_with_the_clusters_own_answers() -> None:
    cluster = end_of(history_of(KRAFT / "4.3.1"))
    said = json.loads(gzip.decompress((KRAFT / "4.3.1" / "end.json.gz").read_bytes()))["topics"]
    assert {
        (topic, one["p"]): (one["leader"], sorted(one["isr"]), one["replicas"], one["elr"], one["last_known_elr"])
        for topic, topics in said.items()
        for one in topics["partitions"]
    } == {
        name: (one.leader, sorted(one.isr), list(one.replicas), list(one.elr), list(one.last_known_elr))
        for name, one in cluster.partitions.items()
    }


# Every moment: snapshots that nodes wrote, lines that brokers wrote, znodes as ZooKeeper had them.


@pytest.mark.parametrize("name", KRAFTS)
def test_each_snapshot_agrees_with_the_log_at_its_moment(name: str, tmp_path: Path) -> None:
    snapshots = [one for one in find_records([str(KRAFT / name)]) if one.kind == "kraft snapshot" and one.first > 0]
    assert snapshots
    history = history_of(KRAFT / name)
    for number, source in enumerate(snapshots):
        alone = tmp_path / str(number)
        alone.mkdir()
        shutil.copy(source.path, alone)
        expected = end_of(history_of(alone))
        replay = history.replay()
        for _ in replay.steps():
            if replay.cluster.position >= source.first - 1:
                break
        assert (replay.cluster.position, expected.position) == (source.first - 1, source.first - 1)
        assert replay.cluster.partitions == expected.partitions
        assert replay.cluster.topic_ids == expected.topic_ids
        assert {name: one.epoch for name, one in replay.cluster.brokers.items()} == {
            name: one.epoch for name, one in expected.brokers.items()
        }


LED = re.compile(
    r"\[Broker id=(\d+)\] Leader (\S+)-(\d+) with topic id Some\((\S+)\) starts at leader epoch (\d+) from offset \d+ "
    r"with partition epoch (\d+), high watermark -?\d+, ISR \[([\d,]*)\]"
)


@pytest.mark.parametrize(("name", "least"), [("4.3.1", 160), ("3.9.1-migration", 20)])
def test_each_line_of_a_broker_that_leads_names_a_state_of_the_record(name: str, least: int) -> None:
    # until the import of a migration brokers obey ZooKeeper's states
    rows = sorted(answers_of(KRAFT / name)["record_partition_states"], key=lambda one: one.mode, reverse=True)
    states = {(one.topic_id, one.partition, one.partition_epoch): one for one in rows}
    count = 0
    for path in (KRAFT / name).glob("broker-*/state-change.log.gz"):
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            if found := LED.search(line):
                broker, _, number, topic_id, leader_epoch, partition_epoch, isr = found.groups()
                state = states[topic_id, int(number), int(partition_epoch)]
                assert (state.leader, state.leader_epoch) == (int(broker), int(leader_epoch)), line
                assert sorted(state.isr) == sorted(map(int, isr.split(","))), line
                count += 1
    assert count >= least


@pytest.mark.parametrize("name", ZOOKEEPERS)
def test_the_states_are_the_znodes_at_any_moment(name: str) -> None:
    recording = Recording(DATA / name)
    zxids = [group[0].zxid for group in recording.transactions][::37]
    replay = history_of(DATA / name / "zookeeper", mode="zookeeper").replay()
    steps = replay.steps()
    for zxid, tree in recording.trees(zxids):
        while replay.cluster.position < zxid:
            next(steps)
        znodes = {path: json.loads(one.data) for path, one in tree.items() if path.endswith("/state")}
        found = {
            f"/brokers/topics/{topic}/partitions/{number}/state": (
                one.leader, one.leader_epoch, list(one.isr), one.epoch
            )
            for (topic, number), one in replay.cluster.partitions.items()
        }  # fmt: skip
        assert found == {
            path: (said["leader"], said["leader_epoch"], said["isr"], tree[path].version)
            for path, said in znodes.items()
        }, zxid
        for (topic, number), one in replay.cluster.partitions.items():
            said = json.loads(tree[f"/brokers/topics/{topic}"].data)
            assert list(one.replicas) == said["partitions"][str(number)]
            assert list(one.adding) == said["adding_replicas"].get(str(number), [])
        assert {f"/brokers/ids/{broker}" for broker in replay.cluster.brokers} == {
            path for path in tree if path.startswith("/brokers/ids/")
        }
        controller = tree.get("/controller")
        holder = None if controller is None else json.loads(controller.data)["brokerid"]
        assert replay.cluster.controller == holder


# Events.


def test_the_tenures_are_those_that_won_an_epoch() -> None:
    found = answers_of(KRAFT / "4.3.1")["record_tenures"]
    assert [(one.epoch, one.controller) for one in found] == [(1, 102), (3, 101), (4, 102), (5, 103)]
    assert found[-1].to_ms is None
    for one, after in pairwise(found):
        assert one.to_lo_ms <= one.to_ms == after.from_ms


@pytest.mark.parametrize("name", ZOOKEEPERS)
def test_a_tenure_is_as_long_as_its_znode_stood(name: str) -> None:
    recording = Recording(DATA / name)
    found = answers_of(DATA / name)["record_tenures"]
    claims = [
        (one.at_ms, json.loads(one.data or "")["brokerid"])
        for group in recording.transactions
        for one in group
        if (one.op, one.path) == ("create", "/controller")
    ]
    assert [(one.from_ms, one.controller) for one in found] == claims
    assert [one.epoch for one in found] == list(range(1, len(claims) + 1))
    assert {one.why_ended for one in found[:-1]} <= {"session expired", "closed", "deleted"}
    assert all(one.to_ms is not None for one in found[:-1])


def test_every_unclean_election_is_named_and_no_other() -> None:
    """Kafka's own controllers wrote 38 lines `using an unclean election`, 35 of them for the last known leader."""
    found = answers_of(KRAFT / "4.3.1")["record_elections"]
    assert Counter(one.how for one in found if one.unclean) == {"last known leader": 35, "unclean": 3}
    assert [(one.topic, one.partition) for one in found if one.how == "unclean"] == [
        ("pay_0.x", 0), ("pay_0.x", 2), ("pay_0.x", 3)
    ]  # fmt: skip
    loss = json.loads(gzip.decompress((KRAFT / "4.3.1" / "loss.json.gz").read_bytes()))
    lost = {name for name, one in loss.items() if one["acknowledged_and_gone"]}
    assert lost == {f"{one.topic}-{one.partition}" for one in found if one.how == "unclean"}


def test_the_faults_that_were_done_are_the_ends_of_lives() -> None:
    """Each kill of a broker ends a life at most a session's time-out and a check later; a clean stop asks before."""
    lives = answers_of(KRAFT / "4.3.1")["record_broker_lives"]
    ends = [(one.broker, one.to_ms, one.leaving_ms) for one in lives if one.to_ms is not None]
    count = 0
    for one in timeline_of(KRAFT / "4.3.1"):
        if not str(one.get("who")).startswith("broker-") or one["what"] not in ("kill", "sigterm"):
            continue
        broker = int(one["who"].removeprefix("broker-"))
        # without a quorum no node notices until there is one again
        end = min(
            (each for each in ends if each[0] == broker and each[1] >= one["at_ms"] - 30), key=lambda each: each[1]
        )
        assert end[1] - one["at_ms"] < 20_000
        count += 1
    assert count >= 8
    assert sum(one.leaving_ms is not None for one in lives) == 4


def test_requested_changes_are_there_with_their_outcomes() -> None:
    found = answers_of(KRAFT / "4.3.1")
    operations = [(one.kind, one.topic, one.partition, one.outcome) for one in found["record_operations"]]
    assert ("creation", "t_new", None, "done") in operations
    assert ("growth", "t_new", None, "done") in operations
    assert ("deletion", "t_new", None, "done") in operations
    assert ("reassignment", "single", 2, "cancelled") in operations
    assert sum(kind == "reassignment" and outcome == "done" for kind, _, _, outcome in operations) == 5
    levels = [one.after for one in found["record_config_changes"] if one.key == "metadata.version"]
    assert levels == ["29", "30"]
    voters = [one.after for one in found["record_config_changes"] if one.key == "voters"]
    assert voters == ["101, 102, 103", "102, 103", "101, 102, 103"]


def test_each_outage_has_its_gap_at_the_producer() -> None:
    """A broker that is fenced though it lives goes on for a moment: its gap may begin after the record's."""
    gaps = json.loads(gzip.decompress((KRAFT / "4.3.1" / "gaps.json.gz").read_bytes()))["partitions"]
    count = 0
    for one in answers_of(KRAFT / "4.3.1")["record_outages"]:
        name = f"{one.topic}-{one.partition}"
        if one.to_ms is None or one.to_ms - one.from_ms <= 500 or name not in gaps:
            continue
        assert any(
            gap["from_ms"] <= one.from_ms + 200 and gap["to_ms"] >= one.to_ms - 200
            for gap in gaps[name]["gaps_over_500_ms"]
        ), one
        count += 1
    assert count >= 20


def test_a_deletion_takes_leaders_away_and_is_no_outage() -> None:
    """Before a topic goes, Kafka's controller in ZooKeeper mode writes that its partitions have no leader."""
    for name in ZOOKEEPERS:
        found = answers_of(DATA / name)
        assert any(one.kind == "deletion" for one in found["record_operations"])
        assert {one.ended for one in found["record_outages"]} == {"elected"}


# Gaps, and partitions that never were.


def test_a_tail_that_was_never_committed_is_counted_and_not_told() -> None:
    found = answers_of(KRAFT / "4.3.1")
    said = [(one.kind, one.said) for one in found["record_sources"]]
    assert sum(said.count((kind, words)) for kind, words in {("void", "23 records that were never committed")}) == 2
    # its fencing of broker 3 stands nowhere; the later one does
    fenced = [one.to_ms for one in found["record_broker_lives"] if one.broker == 3]
    assert fenced == [1795095810613, 1795095930316, 1795095955824, 1795095990379, 1795096041619, None]


def test_alone_such_a_tail_is_in_doubt() -> None:
    history = history_of(KRAFT / "4.3.1" / "controller-102" / "uncommitted-tail")
    assert history.committed == 365  # the record with which epoch 4 began is proved, nothing behind it
    found = answers_of(KRAFT / "4.3.1" / "controller-102" / "uncommitted-tail")
    grades = {(one.grade, one.position < 365) for one in found["record_partition_states"]}
    assert grades == {("exact", True), ("inferred", False)}


def test_a_node_that_joined_late_begins_with_its_snapshot_and_says_so() -> None:
    whole, late = end_of(history_of(KRAFT / "4.3.1")), end_of(history_of(KRAFT / "4.3.1" / "broker-4"))
    replay = history_of(KRAFT / "4.3.1").replay()
    for _ in replay.steps():
        if replay.cluster.position >= late.position:
            break
    assert replay.cluster.partitions == late.partitions
    assert whole.position > late.position
    sources = answers_of(KRAFT / "4.3.1" / "broker-4")["record_sources"]
    assert [one.said.partition(":")[0] for one in sources if one.kind == "gap"] == [
        "offsets below 1120 are no longer in any log"
    ]


def copied(folder: Path, files: Sequence[Path]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for path in files:
        shutil.copy(path, folder)
    return folder


def test_a_log_whose_beginning_nothing_holds_is_refused_by_name(tmp_path: Path) -> None:
    (segment,) = (KRAFT / "4.3.1" / "broker-4" / METADATA).glob("*.log.gz")
    with pytest.raises(RecordError, match="begins at offset 1120 and no snapshot leads there"):
        history_of(copied(tmp_path / METADATA, [segment]))
    (row,) = answers_for_records(find_records([str(tmp_path)]), "kafka")["record_sources"]
    assert row.kind == "trouble"  # type: ignore[attr-defined]


def test_an_older_segment_of_another_node_stands_before_a_log_that_was_cleaned(tmp_path: Path) -> None:
    """Broker 4 has the records after 1120; those before are in the segments of controller 101."""
    late, whole = KRAFT / "4.3.1" / "broker-4" / METADATA, KRAFT / "4.3.1" / "controller-101" / METADATA
    log = gzip.decompress((whole / f"{0:020}.log.gz").read_bytes())
    cut = next(one.position for one in batches_in(io.BytesIO(log)) if one.base_offset > 1120)
    old = tmp_path / "old"
    old.mkdir()
    (old / f"{0:020}.log").write_bytes(log[:cut])
    copied(tmp_path / "late", sorted(late.glob("*.log.gz")))
    history = history_of(tmp_path)
    assert history.record.gaps == []
    replay = history_of(KRAFT / "4.3.1").replay()
    for _ in replay.steps():
        if replay.cluster.position >= 1369:
            break
    assert end_of(history).partitions == replay.cluster.partitions


def test_logs_of_two_clusters_are_not_mixed() -> None:
    with pytest.raises(RecordError, match="metadata logs of 2 clusters"):
        kraft_history(find_records([str(KRAFT)]))


def zookeeper_logs() -> list[Path]:
    return sorted(
        (DATA / "kafka-3.9.1" / "zookeeper").glob("log.*.gz"), key=lambda path: int(path.name.split(".")[1], 16)
    )


def test_a_gap_between_transactions_is_bridged_by_a_snapshot_and_said(tmp_path: Path) -> None:
    logs = zookeeper_logs()
    gap = copied(tmp_path / "version-2", [logs[0], logs[-1]])
    with pytest.raises(RecordError, match="transactions from 0x279 to 0x984 are in no log, and no snapshot"):
        history_of(gap, mode="zookeeper")
    snapshot = DATA / "zookeeper-snapshots" / "snapshot.bfd-3.9.5.gz"
    shutil.copy(snapshot, gap / "snapshot.bfd.gz")
    history = history_of(gap, mode="zookeeper")
    whole = end_of(history_of(DATA / "kafka-3.9.1" / "zookeeper", mode="zookeeper"))
    found = end_of(history)
    assert (found.partitions, found.configs) == (whole.partitions, whole.configs)
    assert found.brokers.keys() == whole.brokers.keys()
    assert "from 0x279" in history.record.gaps[0]


def test_each_of_several_servers_fills_another_ones_gaps(tmp_path: Path) -> None:
    logs = zookeeper_logs()
    copied(tmp_path / "one", [logs[0], logs[2]])
    copied(tmp_path / "two", [logs[1], logs[2]])
    copied(tmp_path / "three", logs[2:])
    whole = end_of(history_of(DATA / "kafka-3.9.1" / "zookeeper", mode="zookeeper"))
    history = history_of(tmp_path, mode="zookeeper")
    assert history.record.gaps == []
    assert end_of(history).partitions == whole.partitions
