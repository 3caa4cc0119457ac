"""Every table between the jobs and after them, column by column, as readers of the tables may rely on them."""

from __future__ import annotations

import pytest

from sparkjobs.tables.gold import GOLD
from sparkjobs.tables.silver import (
    TABLES,
    Row,
    columns_of,
    spark_schema,
)

#: name and type in order; `?` where nothing may stand
COLUMNS = {
    "bronze_files": (
        "file_id string, cluster string, paths array<string>, size_bytes bigint, kind string, layout string?, "
        "wrapper string?, tz string, zones array<string>, broker int?, first_ts bigint?, last_ts bigint?, "
        "lines bigint, blocks array<bigint>, is_whole boolean, is_gzip boolean, is_text boolean, status string, "
        "trouble string?, catalog_version int"
    ),
    "silver_events": (
        "cluster string, dt string, event_id string, ts_raw string, ts_utc bigint, ts_adj bigint, skew_ms int?, "
        "skew_err_ms int?, broker int?, role string, level string, controller int?, controller_epoch int?, event "
        "string, topic string?, partition int?, from_state string?, to_state string?, leader int?, leader_epoch "
        "int?, isr array<int>?, replicas array<int>?, added array<int>?, removed array<int>?, version bigint?, "
        "peer_broker int?, correlation_id bigint?, api string?, error string?, elapsed_ms double?, n_partitions "
        "int?, recovery string?, unclean boolean?, cause string?, reason string?, zxid bigint?, topic_id string?, "
        "broker_epoch bigint?, cause_id string?, machine string?, partitions array<string>?, part int?, "
        "offset bigint?, records bigint?, records_lost bigint?, records_epoch int?, trace string?, "
        "file_id string, line_no bigint, shape_id string, line string, "
        "catalog_version int"
    ),
    "silver_quarantine": (
        "cluster string, file_id string, line_no bigint, reason string, line string, catalog_version int"
    ),
    "silver_counts": (
        "cluster string, path string, file_id string, lines bigint, events bigint, continuations bigint, "
        "duplicates bigint, quarantined bigint, catalog_version int"
    ),
    "silver_skew": (
        "cluster string, broker int, hour bigint, offset_ms int, err_ms int?, method string, samples int, "
        "catalog_version int"
    ),
    "partition_outages": (
        "cluster string, topic string, partition int, start_ms bigint, end_ms bigint?, start_lo_ms bigint, "
        "start_hi_ms bigint, evidence string, end_evidence string?, ended_by string?, cause string, first_broker "
        "int?, leader_last_seen_ms bigint?, leader int?, leader_epoch int?, controller_epoch int?, "
        "election_attempts int, unclean boolean, open boolean, unseen string?, file_id string, line_no bigint"
    ),
    "leader_changes": (
        "cluster string, topic string, partition int, at_ms bigint, controller_epoch int?, controller int?, "
        "leader_before int?, leader int, leader_epoch int?, version bigint?, isr array<int>?, why string, unclean "
        "boolean, acked array<int>, acked_ms array<bigint>, file_id string, line_no bigint"
    ),
    "leader_churn": (
        "cluster string, topic string, hour_ms bigint, partitions int, changes int, most_partition int, "
        "most_changes int"
    ),
    "failovers": (
        "cluster string, broker int, was_controller boolean, how string, last_seen_ms bigint?, detected_ms "
        "bigint, detected_evidence string, went_about_ms bigint?, controller int?, controller_epoch int?, "
        "ready_ms bigint?, "
        "first_elected_ms bigint?, last_elected_ms bigint?, last_acked_ms bigint?, moved int, left_offline int, "
        "expected array<int>, acked array<int>, slowest int?, slowest_ms bigint?, returned_ms bigint?, file_id "
        "string, line_no bigint"
    ),
    "controller_tenures": (
        "cluster string, controller_epoch int, broker int, from_ms bigint, from_lo_ms bigint, evidence string, "
        "ready_ms bigint?, done_ms bigint?, to_ms bigint?, to_lo_ms bigint?, to_hi_ms bigint?, why_ended string?, "
        "gap_before_ms bigint?, file_id string, line_no bigint"
    ),
    "controller_phases": (
        "cluster string, controller_epoch int, broker int, from_ms bigint, phase string, to_ms bigint?, took_ms "
        "double?, file_id string, line_no bigint"
    ),
    "broker_lives": (
        "cluster string, broker int, from_ms bigint, last_seen_ms bigint, started boolean, ended string, gone_ms "
        "bigint?"
    ),
    "zookeeper_outages": (
        "cluster string, from_ms bigint, to_ms bigint?, brokers array<int>, expired array<int>, file_id string, "
        "line_no bigint"
    ),
    "cluster_silences": ("cluster string, from_ms bigint, to_ms bigint, last_heard int, first_back int"),
    "isr_timeline": (
        "cluster string, topic string, partition int, version bigint?, from_ms bigint, from_lo_ms bigint, to_ms "
        "bigint?, leader int?, leader_epoch int?, isr array<int>, controller_epoch int?, topic_id string?, "
        "said_by string, file_id string, line_no bigint"
    ),
    "unclean_elections": (
        "cluster string, topic string, partition int, at_ms bigint, controller_epoch int?, leader int, "
        "leader_epoch int?, isr_before array<int>?, proof string, file_id string, line_no bigint"
    ),
    "truncations": (
        "cluster string, topic string, partition int, at_ms bigint, broker int, leader int, leader_epoch int, "
        "from_offset bigint, to_offset bigint, records bigint, committed bigint, records_epoch int?, "
        "topic_id string?, file_id string, line_no bigint"
    ),
    "flapping": (
        "cluster string, what string, broker int?, topic string?, partition int?, from_ms bigint, to_ms bigint, "
        "transitions int, most_in_window int"
    ),
    "illegal_transitions": (
        "cluster string, topic string, partition int, at_ms bigint, machine string, replica int?, "
        "controller_epoch int?, from_state string?, to_state string?, how string, partitions bigint, file_id string, "
        "line_no bigint"
    ),
    "state_transitions": (
        "cluster string, machine string, source string?, target string, cause string?, hour_ms bigint, times bigint, "
        "known_as string"
    ),
    "time_in_state": (
        "cluster string, machine string, state string, subjects bigint, stays bigint, known_ms bigint, at_most_ms "
        "bigint, longest_ms bigint, lasting bigint, unbegun bigint, evidence string"
    ),
    "replica_lives": (
        "cluster string, topic string, partition int, broker int, from_ms bigint, to_ms bigint?, is_begun boolean, "
        "states array<string>, since_ms array<bigint>, file_id string, line_no bigint"
    ),
    "moves_out_of_turn": (
        "cluster string, machine string, controller_epoch int, stood_in string, source string, target string, times "
        "bigint, at_ms bigint, topic string, partition int, replica int?, file_id string, line_no bigint"
    ),
    "operations": (
        "cluster string, kind string, topic string?, partition int?, started_ms bigint, ended_ms bigint, outcome "
        "string, why string?, file_id string, line_no bigint"
    ),
    "stuck_ops": (
        "cluster string, kind string, topic string, partition int?, started_ms bigint, last_step_ms bigint, "
        "last_step string, age_ms bigint, file_id string, line_no bigint"
    ),
    "zombies": (
        "cluster string, kind string, stale int?, witness int?, controller_epoch int?, topic string?, partition "
        "int?, first_ms bigint, last_ms bigint, times int, file_id string, line_no bigint"
    ),
    "rpc_latency": (
        "cluster string, hour_ms bigint, broker int, api string, side string, requests int, p50_ms double, p95_ms "
        "double, p99_ms double, max_ms double"
    ),
    "slo_daily": (
        "cluster string, dt string, topic string?, partitions int, observed_ms bigint, unavailable_ms bigint, "
        "unavailable_hi_ms bigint, availability double, budget_ms bigint, budget_used double, is_met boolean"
    ),
    "replica_roles": (
        "cluster string, topic string, partition int, leader_epoch int, partition_epoch bigint?, broker int, role "
        "string, at_ms bigint, leader int?, offset bigint?, file_id string, line_no bigint"
    ),
    "fencings": (
        "cluster string, at_ms bigint, controller int, broker int, broker_epoch bigint?, heard_ms bigint?, file_id "
        "string, line_no bigint"
    ),
    "quorum_tenures": (
        "cluster string, controller_epoch int, controller int, from_ms bigint, to_ms bigint?, committed_offset "
        "bigint?, file_id string, line_no bigint"
    ),
    "migration_states": (
        "cluster string, at_ms bigint, controller int, state_before string, state string, file_id string, line_no "
        "bigint"
    ),
    "node_signs": ("cluster string, at_ms bigint, node int, sign string, epoch int?, file_id string, line_no bigint"),
    "log_spans": ("cluster string, from_ms bigint, to_ms bigint"),
    "coverage": ("cluster string, question string, grade string, why string"),
}
ALL = {**TABLES, **GOLD}


def test_there_are_these_tables_and_no_other() -> None:
    assert list(ALL) == list(COLUMNS)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_table_has_these_columns(name: str) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    optional = {field.name for field in spark_schema(ALL[name]) if field.nullable}
    found = (f"{column} {kind}{'?' if column in optional else ''}" for column, kind in columns_of(ALL[name]).items())
    assert ", ".join(found) == COLUMNS[name]


@pytest.mark.parametrize("name", GOLD)
def test_rows_of_an_answer_begin_with_their_cluster_and_where_a_line_proves_them_end_with_its_place(name: str) -> None:
    table: type[Row] = GOLD[name]
    assert table.__struct_fields__[0] == "cluster"
    if "file_id" in table.__struct_fields__:
        assert table.__struct_fields__[-2:] == ("file_id", "line_no")
