"""The login on a connection of ours: SASL as a server, by PLAIN or SCRAM, before any other request is served there.

There is one `Login` for each connection of a listener that asks for it. Users of PLAIN are in our own properties; those
of SCRAM are in ZooKeeper, where Kafka keeps them (`/config/users/<name>`), read at each login (`scram_users.py`). A
failed login is told no more than that it failed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog
from scramp import ScramException, ScramMechanism

from controller.kafka.protocol.access import AUTHENTICATE, HANDSHAKE, PLAIN, Admission
from controller.kafka.protocol.codec import Reader, WireError, Writer
from controller.kafka.server.listener import Api
from controller.security.secrets import is_one_of

log = structlog.get_logger()

UNSUPPORTED_MECHANISM: Final = 33
ILLEGAL_STATE: Final = 34
AUTHENTICATION_FAILED: Final = 58
NEVER: Final = 99  # a message that has no compact version
_NAME = re.compile(r"(?:^|,)n=([^,]+)")

#: a user's record of a mechanism, as Kafka writes it to `/config/users`; None: there is no such user
ScramRecords = Callable[[str, str], Awaitable[str | None]]


class LoginError(Exception):
    """The user is unknown, or the proof is wrong. The reason is for our log, and not for the client."""


class Login:
    """Of one connection."""

    def __init__(self, admission: Admission, records: ScramRecords) -> None:
        self._admission = admission
        self._records = records
        self._mechanism: str | None = None
        self._talk: _ScramTalk | None = None
        self.is_done = False
        self.has_failed = False
        self.user: str | None = None

    def table(self) -> Mapping[int, Api]:
        return {HANDSHAKE: Api(1, 1, NEVER, self.handshake), AUTHENTICATE: Api(0, 2, 2, self.authenticate)}

    async def handshake(self, version: int, reader: Reader, writer: Writer) -> None:
        wanted = reader.string()
        code = 0 if wanted in self._admission.enabled else UNSUPPORTED_MECHANISM
        if self._mechanism is not None:
            code = ILLEGAL_STATE
        self.has_failed = code != 0
        self._mechanism = wanted
        writer.i16(code).array(self._admission.enabled, writer.string)

    async def authenticate(self, version: int, reader: Reader, writer: Writer) -> None:
        token = reader.data()
        reader.tags()
        code, said, given = 0, None, b""
        try:
            given = await self._next(token)
        except (LoginError, ScramException, WireError, UnicodeDecodeError) as error:
            log.warning("login.refused", mechanism=self._mechanism, user=self.user, reason=str(error))
            code, said, self.has_failed = AUTHENTICATION_FAILED, "Authentication failed", True
        writer.i16(code).string(said).data(given)
        if version >= 1:
            writer.i64(0)  # for as long as the connection lasts
        writer.tags()

    async def _next(self, token: bytes) -> bytes:
        """Returns the answer to a token of the client's."""
        if self._mechanism is None or self.is_done:
            raise LoginError("a token out of turn")
        if self._mechanism == PLAIN:
            self._judge_plain(token)
            return b""
        if self._talk is None:
            self._talk = _ScramTalk(self._mechanism)
            self.user = _user_in(token.decode())
            return self._talk.first(token.decode(), self.user, await self._records(self.user, self._mechanism))
        final = await asyncio.to_thread(self._talk.final, token.decode())
        self.is_done = True
        return final

    def _judge_plain(self, token: bytes) -> None:
        parts = token.decode().split("\0")
        if len(parts) != 3:
            raise LoginError("no token of PLAIN")
        acting_as, self.user, password = parts
        expected = self._admission.users.get(self.user)
        # as long as for a user that there is
        is_right = is_one_of(password, [expected if expected is not None else "\0"])
        if expected is None or not is_right or acting_as not in ("", self.user):
            raise LoginError("no such user, or another password")
        self.is_done = True


class _ScramTalk:
    """The four messages, by the library."""

    def __init__(self, mechanism: str) -> None:
        self._mechanism = mechanism
        self._server = ScramMechanism(mechanism).make_server(self._record_of)
        self._user = ""
        self._record: tuple[bytes, bytes, bytes, int] | None = None

    def first(self, message: str, user: str, record: str | None) -> bytes:
        self._user, self._record = user, None if record is None else _decoded(record)
        self._server.set_client_first(message)
        return bytes(self._server.get_server_first(), "utf-8")

    def final(self, message: str) -> bytes:
        self._server.set_client_final(message)
        return bytes(self._server.get_server_final(), "utf-8")

    def _record_of(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        if self._record is None or user != self._user:
            raise LoginError(f"no such user with {self._mechanism}")
        return self._record


def _user_in(message: str) -> str:
    found = _NAME.search(message)
    if found is None:
        raise LoginError("no user in it")
    return found[1].replace("=2C", ",").replace("=3D", "=")


def _decoded(record: str) -> tuple[bytes, bytes, bytes, int]:
    """Salt, stored key, server key and iterations, out of `salt=…,stored_key=…,server_key=…,iterations=…`."""
    values = dict(part.partition("=")[::2] for part in record.split(","))
    try:
        salt, stored, server = (base64.b64decode(values[name]) for name in ("salt", "stored_key", "server_key"))
        return salt, stored, server, int(values["iterations"])
    except (KeyError, ValueError, binascii.Error):
        raise LoginError("its record in ZooKeeper is malformed") from None
