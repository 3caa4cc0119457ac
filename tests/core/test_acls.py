"""Kafka's ACLs as data: what a real broker answers, is asked in `real_brokers/test_acls.py`. Here the laws that hold
for any rules."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.acls import (
    ANY_NAME,
    ANYBODY,
    ANYWHERE,
    CLOSED,
    IMPLIED_BY,
    Acl,
    Authorizer,
    Caller,
    Kind,
    Operation,
    Resource,
    acls_in,
    pascal,
)
from controller.core.formats import FormatError

USERS = ("User:ann", "User:bob")
HOSTS = ("127.0.0.1", "10.0.0.1")
SOME = (Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER)
NAMES = st.text("ab", min_size=1, max_size=3)
CALLERS = st.builds(Caller, st.sampled_from(USERS), st.sampled_from(HOSTS))
ACLS = st.builds(
    Acl,
    st.sampled_from([*USERS, ANYBODY]),
    st.sampled_from([*HOSTS, ANYWHERE]),
    st.sampled_from([*SOME, Operation.ALL]),
    st.booleans(),
)
RESOURCES = st.one_of(
    st.builds(Resource, st.just(Kind.TOPIC), NAMES | st.just(ANY_NAME)),
    st.builds(Resource, st.just(Kind.TOPIC), NAMES, st.just(True)),
)
RULES = st.dictionaries(RESOURCES, st.lists(ACLS, min_size=1, max_size=3).map(tuple), max_size=5)
Rules = Mapping[Resource, tuple[Acl, ...]]


def asked(rules: Rules, caller: Caller, operation: Operation, name: str, **settings: bool) -> bool:
    return Authorizer(rules, **settings).allows(caller, operation, Kind.TOPIC, name)


@given(RULES, CALLERS, st.sampled_from(SOME), NAMES, st.booleans())
def test_an_answer_is_that_of_all_rules_about_the_name_read_one_by_one(
    rules: Rules, caller: Caller, operation: Operation, name: str, is_open: bool
) -> None:
    about = [
        acl
        for resource, acls in rules.items()
        if (name.startswith(resource.name) if resource.is_prefix else resource.name in (name, ANY_NAME))
        for acl in acls
    ]
    fitting = [one for one in about if one.principal in (caller[0], ANYBODY) and one.host in (caller[1], ANYWHERE)]
    denied = any(one.is_denial and one.operation in (operation, Operation.ALL) for one in fitting)
    wide = {operation, Operation.ALL} | IMPLIED_BY.get(operation, frozenset())
    allowed = any(not one.is_denial and one.operation in wide for one in fitting)
    expected = is_open if not about else allowed and not denied
    assert asked(rules, caller, operation, name, is_open=is_open) == expected


@given(RULES, CALLERS, st.sampled_from(SOME), NAMES, RESOURCES)
def test_a_denial_more_gives_nobody_more(
    rules: Rules, caller: Caller, operation: Operation, name: str, resource: Resource
) -> None:
    more = {**rules, resource: (*rules.get(resource, ()), Acl(ANYBODY, ANYWHERE, operation, is_denial=True))}
    assert asked(more, caller, operation, name) <= asked(rules, caller, operation, name)


@given(RULES, CALLERS)
def test_it_is_allowed_somewhere_if_there_is_such_a_topic(rules: Rules, caller: Caller) -> None:
    authorizer = Authorizer(rules)
    names = [name for resource in rules for name in (resource.name, f"{resource.name}~new")] + ["new"]
    is_somewhere = any(authorizer.allows(caller, Operation.WRITE, Kind.TOPIC, name) for name in names if name != "*")
    assert authorizer.allows_somewhere(caller, Operation.WRITE, Kind.TOPIC) == is_somewhere


@given(RULES, CALLERS, NAMES)
def test_what_is_possible_is_what_is_allowed(rules: Rules, caller: Caller, name: str) -> None:
    authorizer = Authorizer(rules)
    bits = authorizer.possible(caller, Kind.TOPIC, name)
    for operation in SOME:
        assert bool(bits >> operation & 1) == authorizer.allows(caller, operation, Kind.TOPIC, name)


@given(RULES, st.sampled_from(SOME), NAMES)
def test_super_users_may_do_everything_and_nobody_beside_them_where_a_znode_cannot_be_read(
    rules: Rules, operation: Operation, name: str
) -> None:
    closed = {**rules, Resource(Kind.TOPIC, name): CLOSED}
    authorizer = Authorizer(closed, frozenset({"User:root"}), is_open=True)
    assert authorizer.allows(Caller("User:root", "h"), operation, Kind.TOPIC, name)
    assert not authorizer.allows(Caller("User:ann", "127.0.0.1"), operation, Kind.TOPIC, name)


def test_rules_are_read_as_kafka_writes_them() -> None:
    assert pascal(Operation.IDEMPOTENT_WRITE) == "IdempotentWrite"
    row = {"principal": "User:ann", "permissionType": "Allow", "operation": "DescribeConfigs", "host": "*"}
    data = json.dumps({"version": 1, "acls": [row, {**row, "permissionType": "Deny", "operation": "All"}]}).encode()
    assert acls_in(data) == (
        Acl("User:ann", "*", Operation.DESCRIBE_CONFIGS, is_denial=False),
        Acl("User:ann", "*", Operation.ALL, is_denial=True),
    )


ROW = '{"principal": "User:x", "permissionType": "Allow", "operation": "Read", "host": "*"}'


@pytest.mark.parametrize(
    "data", ["", "{}", '{"version": 2, "acls": []}', f'{{"acls": [{ROW.replace("Read", "Fly")}]}}',
             f'{{"acls": [{ROW.replace("Allow", "Perhaps")}]}}'],
)  # fmt: skip
def test_rules_that_make_no_sense_are_not_guessed(data: str) -> None:
    with pytest.raises(FormatError):
        acls_in(data.encode())
