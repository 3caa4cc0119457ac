"""The users of SCRAM, where Kafka keeps them (`/config/users/<name>`): read at each login, and changed for an
administrator by AlterUserScramCredentials, as Kafka's controller changes them.

A change is one transaction with its notification, and with the checks that we have the seat. Other settings of a user,
his quotas, stay as they are. What is stored and told of a password is what Kafka stores: no password, and nothing of it
in a log.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote

import structlog

from controller.core import formats
from controller.core.codes import Code
from controller.core.operations import Check, Create, Op, Set
from controller.core.project.znodes import CONFIG_CHANGES, CONTROLLER, CONTROLLER_EPOCH
from controller.kafka.protocol.codec import Reader, Writer, tagged
from controller.kafka.server.listener import Api
from controller.zookeeper.port import (
    BadVersionError,
    NodeExistsError,
    OutcomeUnknownError,
    ZooKeeper,
    ZooKeeperError,
    refusal_for,
)

log = structlog.get_logger()

ALTER_USERS: Final = 51


class Mechanism(NamedTuple):
    """One of SCRAM's."""

    name: str
    digest: str


#: by Kafka's number
MECHANISMS: Final[Mapping[int, Mechanism]] = {
    1: Mechanism("SCRAM-SHA-256", "sha256"),
    2: Mechanism("SCRAM-SHA-512", "sha512"),
}
ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384
#: another writer was faster: so often the node is read again
TRIES: Final = 5


class Wish(NamedTuple):
    """One user's record of one mechanism: a new one, or none any more (without `salted`)."""

    user: str
    mechanism: int
    iterations: int = 0
    salt: bytes = b""
    salted: bytes | None = None

    @property
    def is_deletion(self) -> bool:
        return self.salted is None


class RefusedUserError(Exception):
    """Nothing of this user is changed."""

    def __init__(self, code: Code, detail: str) -> None:
        self.code = code
        super().__init__(detail)


def user_path(user: str) -> str:
    name = quote(user, safe="").replace("~", "%7E")
    return f"/config/users/{name}"


def record_for(wish: Wish) -> str:
    """As Kafka stores it: enough to know the password when it is told, and not enough to tell it."""
    digest = MECHANISMS[wish.mechanism].digest
    salted = wish.salted or b""
    client_key = hmac.digest(salted, b"Client Key", digest)
    parts = {
        "salt": wish.salt,
        "stored_key": hashlib.new(digest, client_key).digest(),
        "server_key": hmac.digest(salted, b"Server Key", digest),
    }
    told = [f"{name}={base64.b64encode(part).decode()}" for name, part in parts.items()]
    return ",".join([*told, f"iterations={wish.iterations}"])


def check_wishes(wishes: Sequence[Wish]) -> None:
    """All of one user. Raises RefusedUserError."""
    for wish in wishes:
        if not wish.user:
            raise RefusedUserError(Code.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        if wish.mechanism not in MECHANISMS:
            raise RefusedUserError(Code.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if not wish.is_deletion and wish.iterations > ITERATIONS_MAX:
            raise RefusedUserError(Code.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
        if not wish.is_deletion and wish.iterations < ITERATIONS_MIN:
            raise RefusedUserError(Code.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if max(Counter(wish.mechanism for wish in wishes).values()) > 1:
        raise RefusedUserError(Code.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


def changed(settings: Mapping[str, str], wishes: Sequence[Wish]) -> dict[str, str]:
    """Returns the settings of a user afterwards. Raises RefusedUserError."""
    found = dict(settings)
    for wish in wishes:
        name = MECHANISMS[wish.mechanism].name
        if not wish.is_deletion:
            found[name] = record_for(wish)
        elif found.pop(name, None) is None:
            raise RefusedUserError(Code.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return found


class ScramUsers:
    """`session`: the present one, if any."""

    def __init__(self, session: Callable[[], ZooKeeper | None]) -> None:
        self._session = session

    def table(self) -> dict[int, Api]:
        return {ALTER_USERS: Api(0, 0, 0, self.alter)}

    async def record_of(self, user: str, mechanism: str) -> str | None:
        """Returns the record as Kafka wrote it; None for an unknown user, or one whose record cannot be read now."""
        zk = self._session()
        if zk is None:
            return None
        try:
            node = await zk.get(user_path(user))
            value = None if node is None else formats.decode(node.data, formats.ConfigZnode).config.get(mechanism)
        except (ZooKeeperError, formats.FormatError) as error:
            log.warning("user.unread", user=user, reason=str(error))
            return None
        return value

    async def alter(self, version: int, reader: Reader, writer: Writer) -> None:
        wishes = [
            *reader.array(lambda: tagged(reader, Wish(reader.string(), reader.i8()))),
            *reader.array(lambda: _wish(reader)),
        ]
        reader.tags()
        by_user: dict[str, list[Wish]] = {}
        for wish in wishes:
            by_user.setdefault(wish.user, []).append(wish)
        answers = [(user, *await self._altered(user, of_user)) for user, of_user in by_user.items()]
        writer.i32(0)
        writer.array(answers, lambda one: writer.string(one[0]).i16(one[1]).string(one[2]).tags())
        writer.tags()

    async def _altered(self, user: str, wishes: Sequence[Wish]) -> tuple[Code, str | None]:
        try:
            check_wishes(wishes)
            await self._write(user, wishes)
        except RefusedUserError as error:
            return error.code, str(error)
        except OutcomeUnknownError as error:
            return Code.REQUEST_TIMED_OUT, f"{error}: whether it was done, kafka-configs --describe tells"
        except (ZooKeeperError, formats.FormatError) as error:
            log.warning("user.unwritten", user=user, reason=str(error))
            return Code.UNKNOWN_SERVER_ERROR, str(error)
        log.info("user.altered", user=user, mechanisms=[MECHANISMS[one.mechanism].name for one in wishes])
        return Code.NONE, None

    async def _write(self, user: str, wishes: Sequence[Wish]) -> None:
        zk = self._session()
        if zk is None:
            raise RefusedUserError(Code.NOT_CONTROLLER, "no session with ZooKeeper now")
        path = user_path(user)
        entity_path = path.removeprefix("/config/")
        notification = formats.encode(formats.ConfigChangeZnode(version=2, entity_path=entity_path))
        for _ in range(TRIES):
            fence = await _fence(zk)
            node = await zk.get(path)
            before = {} if node is None else formats.decode(node.data, formats.ConfigZnode).config
            data = formats.encode(formats.ConfigZnode(changed(before, wishes)))
            write: Op = Create(path, data) if node is None else Set(path, data, node.stat.version)
            notify = Create(f"{CONFIG_CHANGES}/config_change_", notification, sequential=True)
            answer = await zk.transact([*fence, write, notify])
            if answer.refused is None:
                return
            index, code = answer.refused
            if index < len(fence):
                raise RefusedUserError(Code.NOT_CONTROLLER, "this is not the active controller any more")
            if code not in (BadVersionError.code, NodeExistsError.code):
                raise refusal_for(path, code)
        raise RefusedUserError(Code.REQUEST_TIMED_OUT, "others are changing this user")


async def _fence(zk: ZooKeeper) -> list[Op]:
    """Returns the checks that fail when the seat is lost. The epoch is read first: a later claim raises it."""
    epoch, seat = await zk.get(CONTROLLER_EPOCH), await zk.get(CONTROLLER)
    if epoch is None or seat is None or seat.stat.ephemeral_owner != zk.session_id:
        raise RefusedUserError(Code.NOT_CONTROLLER, "this is not the active controller")
    return [Check(CONTROLLER_EPOCH, epoch.stat.version), Check(CONTROLLER, seat.stat.version)]


def _wish(reader: Reader) -> Wish:
    user, mechanism, iterations = reader.string(), reader.i8(), reader.i32()
    return tagged(reader, Wish(user, mechanism, iterations, reader.data(), reader.data()))
