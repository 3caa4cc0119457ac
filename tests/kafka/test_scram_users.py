"""Users of SCRAM are changed as Kafka's controller does it: what is stored, who may write, and what stays as it was."""

from __future__ import annotations

import base64
import json
from hashlib import pbkdf2_hmac
from typing import Any

import pytest
from scramp import ScramMechanism
from structlog.testing import capture_logs

from controller.kafka.protocol.codec import Reader, Writer
from controller.kafka.server.scram_users import MECHANISMS, ScramUsers, Wish, record_for, user_path
from controller.zookeeper.layout import ensure_paths
from controller.zookeeper.port import TransactionAnswer, ZooKeeper
from tests.fakes.zookeeper import FakeZooKeeper
from tests.kafka import kafka_support as kio

SALT, SALTED = b"some salt", b"a salted password"


async def a_seat() -> tuple[FakeZooKeeper, ZooKeeper]:
    """With us in it."""
    server = FakeZooKeeper()
    zk = await server.connect()
    await ensure_paths(zk)
    await zk.create("/controller_epoch", b"1")
    await zk.create("/controller", b"{}", ephemeral=True)
    return server, zk


def row(kind: str, **fields: Any) -> Any:
    return getattr(kio.schema("alter_user_scram_credentials", 0, "request"), kind)(**fields)


def upsertion(user: str, mechanism: int = 1, iterations: int = 4_096) -> Any:
    common = {"salt": SALT, "salted_password": SALTED}
    return row("ScramCredentialUpsertion", name=user, mechanism=mechanism, iterations=iterations, **common)


def deletion(user: str, mechanism: int = 1) -> Any:
    return row("ScramCredentialDeletion", name=user, mechanism=mechanism)


async def altered(zk: ZooKeeper | None, *rows: Any) -> dict[str, int]:
    """The code for each user, by the other codec both ways."""
    deletions = tuple(one for one in rows if not hasattr(one, "salt"))
    upsertions = tuple(one for one in rows if hasattr(one, "salt"))
    request = row("AlterUserScramCredentialsRequest", deletions=deletions, upsertions=upsertions)
    writer = Writer(flexible=True)
    await ScramUsers(lambda: zk).alter(0, Reader(kio.written(request), flexible=True), writer)
    kind = kio.schema("alter_user_scram_credentials", 0, "response").AlterUserScramCredentialsResponse
    return {one.user: int(one.error_code) for one in kio.read(kind, writer.message()).results}


def settings_of(server: FakeZooKeeper, user: str) -> dict[str, str] | None:
    data = server.read(user_path(user))
    return None if data is None else json.loads(data)["config"]


@pytest.mark.parametrize("number", MECHANISMS)
def test_a_record_is_what_the_login_expects(number: int) -> None:
    name = MECHANISMS[number].name
    salt, stored, server, iterations = ScramMechanism(name).make_auth_info("secret", iteration_count=4_096)
    salted = pbkdf2_hmac(MECHANISMS[number].digest, b"secret", salt, iterations)  # as Kafka's tools do it
    record = record_for(Wish("ann", number, iterations, salt, salted))
    said = dict(part.partition("=")[::2] for part in record.split(","))
    assert [base64.b64decode(said[one]) for one in ("salt", "stored_key", "server_key")] == [salt, stored, server]
    assert said["iterations"] == "4096"


async def test_a_user_is_made_changed_and_removed_and_brokers_are_notified() -> None:
    server, zk = await a_seat()
    assert await altered(zk, upsertion("ann"), upsertion("ann", 2), upsertion("böb ~*")) == {"ann": 0, "böb ~*": 0}
    assert settings_of(server, "ann") == {
        "SCRAM-SHA-256": record_for(Wish("ann", 1, 4_096, SALT, SALTED)),
        "SCRAM-SHA-512": record_for(Wish("ann", 2, 4_096, SALT, SALTED)),
    }
    assert user_path("böb ~*") == "/config/users/b%C3%B6b%20%7E%2A"
    assert await altered(zk, deletion("ann")) == {"ann": 0}
    assert list(settings_of(server, "ann") or ()) == ["SCRAM-SHA-512"]
    notified = [json.loads(node.data) for path, node in sorted(server.tree.nodes.items()) if "config_change_" in path]
    users = [one["entity_path"] for one in notified]
    assert users == ["users/ann", "users/b%C3%B6b%20%7E%2A", "users/ann"]
    assert {one["version"] for one in notified} == {2}


async def test_other_settings_of_a_user_stay() -> None:
    server, zk = await a_seat()
    await zk.create(user_path("ann"), json.dumps({"version": 1, "config": {"producer_byte_rate": "5"}}).encode())
    await altered(zk, upsertion("ann"))
    assert set(settings_of(server, "ann") or ()) == {"producer_byte_rate", "SCRAM-SHA-256"}
    await altered(zk, deletion("ann"))
    assert settings_of(server, "ann") == {"producer_byte_rate": "5"}


async def test_a_wish_that_makes_no_sense_changes_nothing_of_its_user_and_others_are_served() -> None:
    server, zk = await a_seat()
    wishes = [
        upsertion("few", iterations=4_095), upsertion("many", iterations=16_385), upsertion("strange", 3),
        upsertion("", 1), upsertion("twice"), upsertion("twice"), deletion("nobody"), upsertion("good"),
        upsertion("half"), deletion("half", 2),
    ]  # fmt: skip
    assert await altered(zk, *wishes) == {
        "few": 93, "many": 93, "strange": 33, "": 93, "twice": 92, "nobody": 91, "good": 0, "half": 91,
    }  # fmt: skip
    made = [path for path in server.tree.nodes if path.startswith("/config/users/")]
    assert made == [user_path("good")]


async def test_only_the_active_controller_writes() -> None:
    server, _ = await a_seat()
    assert await altered(None, upsertion("ann")) == {"ann": 41}
    assert await altered(await server.connect(), upsertion("ann")) == {"ann": 41}
    assert settings_of(server, "ann") is None


async def test_a_seat_that_is_lost_meanwhile_is_noticed_by_the_transaction() -> None:
    server, zk = await a_seat()
    other = await server.connect()
    send = zk.transact

    async def late(ops: Any, **how: Any) -> TransactionAnswer:
        await other.set("/controller_epoch", b"2", -1)
        return await send(ops, **how)

    zk.transact = late  # type: ignore[method-assign]
    assert await altered(zk, upsertion("ann")) == {"ann": 41}
    assert settings_of(server, "ann") is None


async def test_another_writer_s_settings_are_read_again_and_kept() -> None:
    server, zk = await a_seat()
    other = await server.connect()
    send, quota = zk.transact, json.dumps({"version": 1, "config": {"producer_byte_rate": "5"}}).encode()
    is_late = [True]

    async def late(ops: Any, **how: Any) -> TransactionAnswer:
        if is_late and is_late.pop():
            await other.create(user_path("ann"), quota)
        return await send(ops, **how)

    zk.transact = late  # type: ignore[method-assign]
    assert await altered(zk, upsertion("ann")) == {"ann": 0}
    assert set(settings_of(server, "ann") or ()) == {"producer_byte_rate", "SCRAM-SHA-256"}


async def test_a_node_that_makes_no_sense_is_not_overwritten() -> None:
    server, zk = await a_seat()
    await zk.create(user_path("ann"), b"{")
    assert await altered(zk, upsertion("ann")) == {"ann": -1}
    assert server.read(user_path("ann")) == b"{"


async def test_nothing_of_a_password_is_logged() -> None:
    _, zk = await a_seat()
    with capture_logs() as lines:
        await altered(zk, upsertion("ann"))
    [line] = [one for one in lines if one["event"] == "user.altered"]
    assert line["mechanisms"] == ["SCRAM-SHA-256"]
    record = record_for(Wish("ann", 1, 4_096, SALT, SALTED))
    told = repr(lines)
    assert not any(part.partition("=")[2] in told for part in record.split(",")[:3])
