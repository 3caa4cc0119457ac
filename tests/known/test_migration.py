"""A migration from ZooKeeper to KRaft, held against the recorded one: whole, cut at many places, and with nonsense."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from sparkjobs.commands.cli import top
from sparkjobs.commands.inputs import inputs_of
from sparkjobs.engine.local.conclude import conclude
from sparkjobs.history.answers import answers_of
from sparkjobs.history.as_of import History, answers_for_records, histories_in, moment_of
from sparkjobs.history.cluster import Cluster, Step
from sparkjobs.history.log_join import joined
from sparkjobs.history.migration import PHASES, KraftSide, ZooKeeperSide, migration_rows
from sparkjobs.history.zookeeper import ZooKeeperReplay
from sparkjobs.records.discovery import find_records
from sparkjobs.records.zookeeper_files import Operation
from tests.known.kraft_samples import KRAFT

MOVED = KRAFT / "3.9.1-migration"
NODE = MOVED / "controller-3000"
METADATA = "__cluster_metadata-0"
#: ZooKeeper's transaction by which KRaft's controller took the seat
CLAIM = 0x11A


def told(*named: Path) -> dict[str, list[Any]]:
    return answers_for_records(find_records(list(map(str, named))), "kafka")


@cache
def whole() -> dict[str, list[Any]]:
    return told(MOVED)


def histories() -> tuple[History, History]:
    zookeeper, kraft = histories_in([str(MOVED)])
    return zookeeper, kraft


def timeline() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (MOVED / "timeline.jsonl").read_text().splitlines()]


def done_at(what: str, *, who: str | None = None, phase: str | None = None) -> int:
    """The first of it in the timeline."""
    return next(
        int(one["at_ms"])
        for one in timeline()
        if one["what"] == what and who in (None, one["who"]) and phase in (None, one.get("phase"))
    )


def names_in(tables: dict[str, list[Any]]) -> list[str]:
    return [one.phase for one in tables["record_migration_phases"]]


def test_each_phase_has_its_times_and_its_controllers() -> None:
    phases = whole()["record_migration_phases"]
    assert [(one.phase, one.controllers) for one in phases] == [
        ("zookeeper", (2, 1)),
        ("waiting for brokers", (1, 3, 1)),
        ("import", (3000,)),
        ("dual write", (3000,)),
        ("dual write, brokers restart into KRaft mode", (3000,)),
        ("dual write, all brokers in KRaft mode", (3000,)),
        ("kraft", (3000,)),
    ]
    assert {one.grade for one in phases} == {"exact"}
    assert [one.to_ms for one in phases[:-1]] == [one.from_ms for one in phases[1:]]
    assert phases[-1].to_ms is None
    since = {one.phase: one.from_ms for one in phases}
    assert 0 < since["waiting for brokers"] - done_at("start", who="controller-3000") < 2_000
    assert done_at("start", who="broker-3") < since["import"] < since["dual write"] < done_at("migrated")
    roll = [one["at_ms"] for one in timeline() if one["what"] == "start" and one.get("mode") == "kraft"]
    brokers = whole()["record_migration_brokers"]
    assert [one.broker for one in brokers] == [1, 2, 3]
    assert all(0 < one.restarted_ms - at_ms < 2_000 for one, at_ms in zip(brokers, roll, strict=False))
    assert 0 < since["kraft"] - done_at("start", who="controller-3000", phase=None) < 100_000
    assert done_at("sigterm", who="controller-3000") < since["kraft"] < done_at("finalised")


def test_the_controllers_own_lines_say_the_same_phases() -> None:
    logs = [str(path) for path in sorted(NODE.glob("*.log.gz"))]
    answers = conclude(inputs_of(logs, "kafka", (), None, None).files).answers
    states: list[Any] = list(answers["migration_states"])
    assert [one.state for one in states] == [
        *("INACTIVE", "WAIT_FOR_CONTROLLER_QUORUM", "WAIT_FOR_BROKERS", "BECOME_CONTROLLER", "ZK_MIGRATION"),
        *("SYNC_KRAFT_TO_ZK", "KRAFT_CONTROLLER_TO_BROKER_COMM", "DUAL_WRITE"),
    ]
    phases: list[Any] = joined(whole(), answers)["record_migration_phases"]
    logged = {one.phase: one.logged_ms - one.from_ms for one in phases if one.logged_ms is not None}
    assert logged.keys() == {"waiting for brokers", "import", "dual write"}
    assert all(-100 < late < 1_000 for late in logged.values())
    # where ZooKeeper's history is missing, the line dates the import
    alone: list[Any] = joined(told(NODE), answers)["record_migration_phases"]
    dated = next(one for one in alone if one.phase == "import")
    assert (dated.grade, dated.from_ms, dated.to_ms is not None) == ("logged", dated.logged_ms, True)


def test_the_end_differs_in_three_versions_of_znodes_and_in_nothing_else() -> None:
    """KRaft's controller wrote two changes of each at once, which its own tools do not tell."""
    (row,) = whole()["record_migrations"]
    assert (row.state, row.compared, row.partitions, row.topics, row.settings) == ("kraft", True, 22, 7, 1)
    assert row.offset == 377
    assert [(one.kind, one.name, one.zookeeper, one.kraft) for one in whole()["record_migration_differences"]] == [
        ("partition epoch", "made_in_zk-0", "13", "14"),
        ("partition epoch", "made_while_rolling-2", "7", "8"),
        ("partition epoch", "orders-0", "18", "19"),
    ]
    assert row.differences == 3


def test_neither_outages_nor_creations_are_invented() -> None:
    """Brokers that restart into KRaft mode leave ZooKeeper for ever, and topics are not made by their import."""
    assert [(one.mode, one.topic, one.partition, one.ended) for one in whole()["record_outages"]] == [
        ("zookeeper", "made_in_zk", 0, "elected"),
        ("zookeeper", "orders", 2, "elected"),
    ]
    made = {one["who"] for one in timeline() if one["what"] == "create-topic"} | {"__consumer_offsets"}
    operations = whole()["record_operations"]
    assert sorted(one.topic for one in operations) == sorted(made)
    assert {one.kind for one in operations} == {"creation"}
    assert all(one.to_ms is not None for one in whole()["record_partition_states"] if one.mode == "zookeeper")


def test_every_death_in_the_timeline_is_the_end_of_a_life() -> None:
    lives = whole()["record_broker_lives"]
    kills = [one for one in timeline() if one["what"] == "kill"]
    assert len(kills) == 3
    for one in kills:
        ends = [each.to_ms for each in lives if each.broker == int(one["who"][-1]) and each.to_ms is not None]
        assert any(0 < end - one["at_ms"] < 7_000 for end in ends), one


def test_the_report_says_it_in_text_json_page_and_tables(tmp_path: Path) -> None:
    done = CliRunner().invoke(top, ["report", "--engine", "local", str(MOVED), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0] == (
        "Known for certain: Over. 2 partitions without a leader at some time, none where the record ends. Migrated "
        "from ZooKeeper to KRaft. ZooKeeper's copy and KRaft's log differ in 3 values."
    )
    assert [one for one in lines if one.startswith("import ")] == [
        f"{'import':<43}  13:55:08.386  13:55:08.622  3000         exact"
    ]
    assert "Not over" not in done.output
    page = (tmp_path / "report.html").read_text()
    assert page.index("From ZooKeeper to KRaft") < page.index("<h3>Outages</h3>")
    assert "restarted into KRaft mode" in page
    document = json.loads((tmp_path / "report.json").read_text())
    assert [one["phase"] for one in document["tables"]["record_migration_phases"]] == names_in(whole())
    for name in ("record_migrations", "record_migration_phases", "record_migration_differences", "migration_states"):
        assert (tmp_path / "gold" / f"{name}.parquet").stat().st_size > 0


def test_a_moment_is_told_by_the_record_that_was_the_truth_then() -> None:
    before = moment_of([str(MOVED)], done_at("kill"))
    assert (before.cluster.mode, before.cluster.controller) == ("zookeeper", 2)
    after = moment_of([str(MOVED)], done_at("migrated"))
    assert (after.cluster.mode, after.cluster.controller) == ("kraft", 3000)
    assert moment_of([str(MOVED)], None).cluster.mode == "kraft"
    assert moment_of([str(MOVED)], None, mode="zookeeper").cluster.mode == "zookeeper"
    past = moment_of([str(MOVED)], done_at("migrated"), of=("orders", 0)).past
    assert (past[0][1].before, past[0][1].elects) == (None, False)


# One record alone.


def test_without_krafts_log_it_is_said_which_file_would_tell(tmp_path: Path) -> None:
    found = told(MOVED / "zookeeper")
    (row,) = found["record_migrations"]
    assert (row.state, row.compared) == ("dual write", False)
    assert "__cluster_metadata-0 of any node would tell" in row.said
    phases = found["record_migration_phases"]
    assert [(one.phase, one.grade) for one in phases] == [
        ("zookeeper", "exact"), ("waiting for brokers", "inferred"), ("import", "exact"), ("dual write", "inferred")
    ]  # fmt: skip
    assert "__cluster_metadata-0" in phases[-1].said
    assert [one for one in found["record_outages"] if one.to_ms is None] == []
    done = CliRunner().invoke(top, ["report", "--engine", "local", str(MOVED / "zookeeper"), "--out", str(tmp_path)])
    assert "Not over" not in done.output
    assert "Whether both agree is not known: __cluster_metadata-0 of any node would tell." in done.output


def test_without_zookeepers_history_it_is_said_which_file_would_tell() -> None:
    found = told(NODE)
    (row,) = found["record_migrations"]
    assert (row.state, row.compared) == ("kraft", False)
    assert "ZooKeeper's log.* and snapshot.* of then would tell" in row.said
    unknown = [one for one in found["record_migration_phases"] if one.grade == "unknown"]
    assert [(one.phase, one.from_ms, one.controllers) for one in unknown] == [
        ("zookeeper", None, ()), ("import", None, ())
    ]  # fmt: skip
    assert all("ZooKeeper" in one.said for one in unknown)
    assert [one for one in found["record_elections"] if one.how == "created" and one.topic == "orders"] == []


def test_a_snapshot_behind_the_copy_leaves_the_comparison_unknown(tmp_path: Path) -> None:
    """As after the retention of a week: the log begins behind what ZooKeeper has."""
    (snapshot,) = (NODE / METADATA).glob("*.checkpoint.gz")
    (tmp_path / METADATA).mkdir()
    shutil.copy(snapshot, tmp_path / METADATA)
    (row,) = told(MOVED / "zookeeper", tmp_path)["record_migrations"]
    assert row.compared is False
    assert "KRaft's log ends at offset 240, before it" in row.said


def test_a_cluster_that_was_never_in_zookeeper_has_no_migration() -> None:
    for folder in (KRAFT / "4.3.1" / "controller-101", KRAFT.parent / "kafka-3.9.1" / "zookeeper"):
        found = told(folder)
        assert not any(rows for name, rows in found.items() if name.startswith("record_migration"))


def test_two_clusters_are_not_taken_for_one() -> None:
    """Their ids differ: ZooKeeper's is in a znode, KRaft's beside its log."""
    found = told(MOVED / "zookeeper", KRAFT / "4.3.1" / "controller-101")
    assert all(one.compared is False for one in found["record_migrations"])
    assert all(one.to_ms is None for one in found["record_tenures"] if one.controller == 3000)


# Cut anywhere.


@cache
def steps_of(mode: str) -> list[tuple[Step, Cluster]]:
    """Each step, with the cluster as it stood after it."""
    history = histories()[mode == "kraft"]
    replay = history.replay()
    return [(step, frozen(replay.cluster)) for step in replay.steps()]


def frozen(cluster: Cluster) -> Cluster:
    return msgspec.structs.replace(
        cluster,
        partitions=dict(cluster.partitions),
        topic_ids=dict(cluster.topic_ids),
        configs={target: dict(settings) for target, settings in cluster.configs.items()},
        brokers=dict(cluster.brokers),
        beyond=set(cluster.beyond),
    )


def rows_of_cut(zookeeper: int, kraft: int) -> dict[str, list[Any]]:
    """With the first so many steps of each."""
    old = ZooKeeperSide()
    for step, cluster in steps_of("zookeeper")[:zookeeper]:
        old(step, cluster)
    new = KraftSide(None, old)
    for step, cluster in steps_of("kraft")[:kraft]:
        new(step, cluster)
    return migration_rows("kafka", old, new, whole()["record_tenures"])


def test_cut_anywhere_nothing_is_told_that_the_records_do_not_hold() -> None:
    """A cut in the middle of a decision's copying finds ZooKeeper ahead of the offset that it names: KRaft's log has
    the decision behind that offset. Where that log is cut, too, the difference says so."""
    draw = random.Random(23)
    ends = len(steps_of("zookeeper")), len(steps_of("kraft"))
    cuts = [(number, ends[1]) for number in range(1, ends[0], 11)]
    cuts += [(ends[0], number) for number in range(1, ends[1], 11)]
    cuts += [(draw.randrange(ends[0]), draw.randrange(ends[1])) for _ in range(40)]
    claimed = next(number for number, one in enumerate(steps_of("zookeeper"), 1) if one[0].position == CLAIM)
    cuts.append((claimed, next(number for number, one in enumerate(steps_of("kraft")) if one[0].position >= 82)))
    states = set()
    for zookeeper, kraft in cuts:
        found = rows_of_cut(zookeeper, kraft)
        if not found:
            continue
        (row,) = found["record_migrations"]
        names = names_in(found)
        states.add(row.state)
        assert names == [one for one in PHASES if one in names], "in their order"
        assert row.state == names[-1]
        assert row.differences == len(found["record_migration_differences"])
        known = [one for one in found["record_migration_phases"] if one.from_ms is not None]
        assert all(one.said for one in found["record_migration_phases"])
        last_zxid = steps_of("zookeeper")[zookeeper - 1][0].position if zookeeper else 0
        last_offset = steps_of("kraft")[kraft - 1][0].position if kraft else 0
        assert all((one.zxid or 0) <= last_zxid and (one.offset or 0) <= last_offset for one in known)
        if row.compared:
            assert row.offset <= last_offset
            for one in found["record_migration_differences"]:
                is_cut = kraft < ends[1] and "behind that offset" in one.why
                assert (one.kind == "partition epoch" and one.zookeeper < one.kraft) or is_cut, (zookeeper, kraft, one)
    assert states == {*PHASES[1:7]}


# What did not happen in the recording.


class Written:
    """The recorded transactions up to the claim of the seat, and others after them."""

    servers: Sequence[Any] = ()
    stretches: Sequence[Any] = ()

    def __init__(self, *later: Sequence[Operation], upto: int = 400) -> None:
        self._later = later
        self._upto = upto

    def steps(self) -> Iterator[Sequence[Operation]]:
        record: Any = histories()[0].record
        for one in record.steps():
            if one[0].zxid <= self._upto:
                yield one
        yield from self._later


def written(zxid: int, path: str, data: object, kind: Any = "set") -> Operation:
    content = data if isinstance(data, bytes) else json.dumps(data).encode()
    at_ms = 1795096600000 + zxid
    return Operation(zxid=zxid, session=7, at_ms=at_ms, kind=kind, path=path, data=content, version=1)


def of_zookeeper(*later: Sequence[Operation], upto: int = 400) -> tuple[ZooKeeperSide, dict[str, list[Any]]]:
    side = ZooKeeperSide()
    found = answers_of(ZooKeeperReplay(Written(*later, upto=upto)), "kafka", None, side)  # type: ignore[arg-type]
    return side, found


SEAT = {"version": 2, "brokerid": 2, "timestamp": "1", "kraftControllerEpoch": -1}


def test_a_migration_that_is_rolled_back_ends_with_zookeepers_controllers() -> None:
    """An operator removes `/controller`, and a broker takes it: what was copied meanwhile was true, and is inferred."""
    state = {"controller_epoch": 6, "leader": 2, "version": 1, "leader_epoch": 77, "isr": [2]}
    side, found = of_zookeeper(
        [written(0x3E0, "/controller", b"", "delete")],
        [written(0x3E1, "/controller", SEAT, "create"), written(0x3E1, "/controller_epoch", b"6")],
        [written(0x3E2, "/brokers/topics/orders/partitions/0/state", state)],
    )
    assert side.returned is not None
    assert side.returned.position == 0x3E0
    rows = migration_rows("kafka", side, None, found["record_tenures"])
    (row,) = rows["record_migrations"]
    assert (row.state, row.compared) == ("rolled back", False)  # type: ignore[attr-defined]
    seats = [(one.epoch, one.controller, one.why_ended) for one in found["record_tenures"]]
    assert seats[-3:] == [(4, 1, "KRaft took over"), (5, 3000, "deleted"), (6, 2, None)]
    states = [one for one in found["record_partition_states"] if (one.topic, one.partition) == ("orders", 0)]
    assert (states[-1].leader, states[-1].leader_epoch, states[-1].grade) == (2, 77, "exact")
    assert states[-2].grade == "inferred"
    assert states[-2].from_lo_ms < states[-2].from_ms


def test_each_thing_that_differs_is_named_and_no_secret_is_shown() -> None:
    old = ZooKeeperSide()
    for step, cluster in steps_of("zookeeper"):
        old(step, cluster)
    assert old.cluster is not None
    other = frozen(old.cluster)
    del other.partitions["orders", 1]
    lost = other.partitions["orders", 2]
    other.partitions["orders", 2] = msgspec.structs.replace(lost, leader=3, isr=(3,))
    other.topic_ids["orders"] = "another"
    other.configs["topic", "orders"] = {"retention.ms": "1"}
    other.configs["broker", ""] = {"ssl.keystore.password": "hunter2"}
    other.next_producer_id = 5
    other.beyond.add("/kafka-acl/Topic/orders")
    old.cluster = other
    new = KraftSide(None, old)
    for step, cluster in steps_of("kraft"):
        new(step, cluster)
    rows: dict[str, list[Any]] = migration_rows("kafka", old, new, ())
    assert "hunter2" not in str(rows)
    named = [(one.kind, one.name) for one in rows["record_migration_differences"] if one.kind != "partition epoch"]
    assert named == [
        ("topic id", "orders"),
        ("partition", "orders-1"),
        ("leader", "orders-2"),
        ("in sync", "orders-2"),
        ("broker setting", "default ssl.keystore.password"),
        ("topic setting", "orders retention.ms"),
        ("next producer id", "of all brokers"),
    ]
    assert (
        "not compared: access control, quotas, credentials and tokens (1 of them)" in rows["record_migrations"][0].said
    )


HOSTILE: list[object] = [
    *(b"", b"\xff\xfe", b"[1]", b"{", b"null", b"9" * 5_000, b"[" * 100_000),
    *({}, {"brokerid": "2"}, {"brokerid": True, "kraftControllerEpoch": True}, {"kraft_metadata_offset": "x"}),
    {"brokerid": 10**400, "kraftControllerEpoch": 10**400, "kraft_metadata_offset": 10**400},
    {"brokerid": -5, "kraftControllerEpoch": 1.5, "kraft_metadata_offset": -9, "id": 7, "block_end": "1e9"},
    {"brokerid": None, "kraftControllerEpoch": [1], "kraft_metadata_offset": None, "block_end": [3], "id": ["x"]},
]


@pytest.mark.parametrize("path", ["/controller", "/migration", "/cluster/id", "/latest_producer_id_block"])
@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_nonsense_in_a_znode_of_the_migration_stops_nothing(path: str, data: object) -> None:
    content = data if isinstance(data, bytes) else json.dumps(data).encode()
    side, found = of_zookeeper([written(0x3E0, path, content)], [written(0x3E1, path, b"", "delete")])
    new = KraftSide(None, side)
    for step, cluster in steps_of("kraft"):
        new(step, cluster)
    rows = migration_rows("kafka", side, new, found["record_tenures"])
    assert len(rows["record_migrations"]) == 1
    assert msgspec.json.encode([rows, found])
    assert [one.phase for one in rows["record_migration_phases"]][:3] == list(PHASES[:3])  # type: ignore[attr-defined]
