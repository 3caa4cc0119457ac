"""Transactions by aiozk's own `Transaction`: for the seat, which is claimed and released rarely.

The store sends thousands a second, and packs its own (`codec.py`). Both leave by the same session, so nothing is sent
twice; the bytes are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aiozk import protocol  # type: ignore[import-untyped]
from aiozk.features import Features  # type: ignore[import-untyped]
from aiozk.protocol import acl  # type: ignore[import-untyped]
from aiozk.transaction import Transaction  # type: ignore[import-untyped]

from controller.core.operations import Create, Delete, Op, Set
from controller.zookeeper import codec
from controller.zookeeper.connection import BODY_OFFSET, Reply
from controller.zookeeper.port import TransactionAnswer, refusal_for
from controller.zookeeper.session import Session

#: of no server: a create is answered with the path alone
_NO_FEATURES: Final = Features((0, 0, 0))
_ACL: Final = [acl.UNRESTRICTED_ACCESS]
_OWNED: Final = [acl.AUTHED_UNRESTRICTED, acl.WORLD_READABLE]
_PRIVATE: Final = [acl.AUTHED_UNRESTRICTED]


async def transact_by_aiozk(session: Session, ops: Sequence[Op], chroot: str, *, is_owned: bool) -> TransactionAnswer:
    """Commit one of aiozk's transactions; returns how each operation fared, which aiozk itself does not say."""
    client = _Client(session, chroot)
    transaction = Transaction(client)
    for op in ops:
        if isinstance(op, Create):
            transaction.create(op.path, op.data, _acl_for(op.path, is_owned), op.ephemeral, op.sequential)
        elif isinstance(op, Set):
            transaction.set_data(op.path, op.data, op.version)
        elif isinstance(op, Delete):
            transaction.delete(op.path, op.version)
        else:
            transaction.check_version(op.path, op.version)
    await transaction.commit()
    return client.answers[0]


def answer_in(reply: Reply, chroot: str) -> TransactionAnswer:
    """How a transaction fared."""
    if reply.code != 0 and len(reply.frame) == BODY_OFFSET:
        raise refusal_for("the transaction", reply.code)
    results = codec.parse_transaction(reply.frame, BODY_OFFSET, chroot)
    return TransactionAnswer(reply.zxid, results, codec.refused_in(results))


class _Client:
    """The calls of a client that aiozk's `Transaction` needs: paths, and one sending that is never repeated."""

    features = _NO_FEATURES

    def __init__(self, session: Session, chroot: str) -> None:
        self._session = session
        self._chroot = chroot
        self.answers: list[TransactionAnswer] = []

    def normalize_path(self, path: str) -> str:
        return codec.server_path_for(path, self._chroot)

    def denormalize_path(self, path: str) -> str:
        return codec.client_path_for(path, self._chroot)

    async def send(self, request: Any) -> Any:
        reply = await (await self._session.send(request.serialize()))
        answer = answer_in(reply, self._chroot)
        self.answers.append(answer)
        # Of a refusal aiozk would print each code that it does not know
        is_done = answer.refused is None
        return protocol.TransactionResponse.deserialize(reply.frame[BODY_OFFSET:]) if is_done else _REFUSED


_REFUSED: Final = protocol.TransactionResponse()


def _acl_for(path: str, is_owned: bool) -> list[Any]:
    """As `codec.acl_for`, in aiozk's words."""
    if not is_owned:
        return _ACL
    return _PRIVATE if path.startswith(codec.SENSITIVE) else _OWNED
