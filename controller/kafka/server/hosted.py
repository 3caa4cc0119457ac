"""What a client asks every broker for, and adds up: groups and transactions. The controller hosts none, and says so.

If it passed these questions on, a broker's groups would be counted twice.
"""

from __future__ import annotations

from typing import Final

from controller.core.codes import Code
from controller.kafka.protocol.codec import Reader, Writer
from controller.kafka.server.listener import Api

LIST_GROUPS, LIST_TRANSACTIONS = 16, 66


async def list_groups(version: int, reader: Reader, writer: Writer) -> None:
    if version >= 1:
        writer.i32(0)
    writer.i16(Code.NONE).array((), writer.string).tags()


async def list_transactions(version: int, reader: Reader, writer: Writer) -> None:
    writer.i32(0).i16(Code.NONE).array((), writer.string).array((), writer.string).tags()


HOSTED: Final = {LIST_GROUPS: Api(0, 5, 3, list_groups), LIST_TRANSACTIONS: Api(0, 1, 0, list_transactions)}
