"""For any bytes, a parser returns a value or its own refusal, soon. Nothing decodes without a row or a reason."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.security.hostile import hostile
from tests.security.parsers import PARSERS, Parser
from tests.test_tidy import modules_of

#: functions that decode bytes or plain values, by the name of the call
DECODING: Final = {"decode_lines", "unpack", "unpack_from", "iter_unpack", "from_bytes", "b64decode", "loads"}
DECODING |= {"urlsafe_b64decode", "deserialize", "convert", "literal_eval", "fromhex"}
#: the functions that call them, and the input of each: groups of the table, or a reason for having no row
DECODED_IN: Final = {
    "brokerstub.lab.zk_proxy": "ZooKeeper's replies",
    "brokerstub.metadata": "RPC bodies and answers",
    "brokerstub.lab.troubles": "only what the lab's own brokers answer and log",
    "brokerstub.log_dirs": "files of a broker",
    "brokerstub.clients.apis._not_served": "a head, which the listener has read: kafka/test_kafka_limits.py",
    "brokerstub.topic_settings": "topic configurations",
    "brokerstub.records.batches": "record batches",
    "brokerstub.records.segment": "files of a log",
    "brokerstub.records.state": "files of a log",
    "controller.api.bodies.decode_body": "API bodies",
    "controller.api.bodies.query_of": "any query of any path: test_schema.py and hostile.py, over sockets",
    "controller.api.listing": "cursors",
    "controller.cli.plans": "files of Kafka's tools",
    "controller.cli.lab.trouble": "only options of the command line",
    "controller.base.config": "server.properties",
    "controller.core.formats": "znodes",
    "controller.tell.dialects.kafka._Connection.exchange": "a length, bounded in the next line",
    "controller.kafka.protocol.codec": "Kafka's protocol",
    "controller.tell.dialects.kafka": "Kafka's protocol",
    "controller.tell.dialects.kafka_requests._refused_in": "Kafka's protocol",
    "controller.tell.dialects.kafka_requests.stop_bodies": "only our own body",
    "controller.kafka.protocol.access": "a length, bounded in the next line",
    "controller.kafka.server.login": "logins",
    "controller.kafka.protocol.messages": "a head, which the listener has read: kafka/test_kafka_limits.py",
    "controller.kafka.server.gate": "a head, which the listener has read: kafka/test_kafka_limits.py",
    "controller.kafka.server.own_configs": "a head whose size was checked: kafka/test_kafka_limits.py",
    "controller.kafka.server.listener": "a length and a head: kafka/test_kafka_limits.py",
    "controller.kafka.server.relay": "a length, bounded in the next line",
    "controller.kafka.server.relay.Relay.pass_on": "a head, which the listener has read: kafka/test_kafka_limits.py",
    "controller.wire.bodies": "RPC bodies and answers",
    "controller.zookeeper.codec": "ZooKeeper's replies",
    "controller.zookeeper.connection": "a length and a head: contract/test_protocol.py",
    "controller.zookeeper.session": "ZooKeeper's replies",
    "controller.zookeeper.client": "only a reply that the codec has read",
    "sparkjobs.records.zookeeper_files": "ZooKeeper's files",
    "sparkjobs.records.zookeeper_live": "a live ZooKeeper",
    "sparkjobs.records.kraft_files": "KRaft's files",
    "sparkjobs.records.kraft_files._table": "only our own table",
}
#: generous, as the machine may be busy; a parser whose time grows with the square of its input would still be found
SOON: Final = timedelta(seconds=20)
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
DEEP: Final = st.builds(lambda opening, times: opening * times, st.sampled_from([b"[", b'{"a":', b'["a",1,[']),
                        st.integers(1, 5_000))  # fmt: skip


def inputs_for(parser: Parser) -> st.SearchStrategy[bytes]:
    """A good sample, spoiled; anything; any JSON, also with the right keys; something very deep."""
    good = st.sampled_from(parser.samples)
    keys = sorted({key for sample in parser.samples for key in _keys_in(sample)}) or ["a"]
    shaped = st.dictionaries(st.sampled_from(keys), VALUES)
    spoiled = st.builds(lambda seed, one: hostile(Random(seed), one), st.integers(0, 1 << 32), good)
    return st.one_of(spoiled, st.binary(max_size=200), st.builds(_encoded, VALUES | shaped), DEEP, good)


def _keys_in(sample: bytes) -> list[str]:
    with suppress(ValueError):
        said = json.loads(sample)
        return list(said) if isinstance(said, dict) else []
    return []


def _encoded(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("parser", PARSERS, ids=[f"{one.group}: {one.name}" for one in PARSERS])
def test_a_parser_gives_a_value_or_its_own_refusal(parser: Parser) -> None:
    @given(inputs_for(parser))
    @settings(deadline=SOON, max_examples=settings.default.max_examples // 20)
    def parse(data: bytes) -> None:
        with suppress(*parser.refusals):
            parser.parse(data)

    parse()


def test_each_sample_is_understood_by_a_parser_of_its_group() -> None:
    """Otherwise the mutated samples would be nonsense to begin with."""
    groups = {one.group for one in PARSERS}
    shown = {(one.group, sample) for one in PARSERS for sample in one.samples}
    understood = set()
    for parser in PARSERS:
        for sample in parser.samples:
            with suppress(*parser.refusals):
                parser.parse(sample)
                understood.add((parser.group, sample))
    assert {group for group, _ in shown} == groups
    assert shown - understood == set()


def functions_in(tree: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name}.{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from functions_in(node, f"{name}.{node.name}")


def is_decoding(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    if node.func.attr == "decode":
        owner = ast.unparse(node.func.value)
        return owner == "msgspec.json" or owner.endswith("decoder")
    return node.func.attr in DECODING


def test_nothing_decodes_without_a_row_or_a_reason() -> None:
    found = {
        name
        for module, tree in modules_of("controller", "brokerstub", "sparkjobs.records").items()
        for name, function in functions_in(tree, module)
        if any(map(is_decoding, ast.walk(function)))
    }
    assert {name for name in found if not name.startswith(tuple(DECODED_IN))} == set()
    assert {name for name in DECODED_IN if not any(one.startswith(name) for one in found)} == set(), "these do no more"
    assert {said for said in DECODED_IN.values() if ":" not in said and "," not in said and "only" not in said} <= {
        one.group for one in PARSERS
    }
