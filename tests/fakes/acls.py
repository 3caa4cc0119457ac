"""The permissions of a fake znode: ZooKeeper's ACLs, its schemes "world", "digest" and "auth", and its checks."""

from __future__ import annotations

import base64
import hashlib
import struct
from typing import Final, NamedTuple

READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
ALL: Final = READ | WRITE | CREATE | DELETE | ADMIN

#: the identities that a connection has proved: scheme and id, beside "world"
Identities = frozenset[tuple[str, str]]


class Grant(NamedTuple):
    """One entry of an ACL."""

    perms: int
    scheme: str
    id: str


Acl = tuple[Grant, ...]
OPEN: Final[Acl] = (Grant(ALL, "world", "anyone"),)


class InvalidAclError(Exception):
    """ZooKeeper's -114: "auth" by a connection that has proved no identity."""


def identities_of(auth: str | None) -> Identities:
    """Of a client that was given "digest:user:password", or nothing."""
    return frozenset() if auth is None else frozenset((_identity_of(auth),))


def grant_to(auth: str, perms: int) -> Grant:
    """Returns a grant to connections with "digest:user:password"."""
    return Grant(perms, *_identity_of(auth))


def grant_to_all(perms: int) -> Grant:
    return Grant(perms, "world", "anyone")


def allows(acl: Acl, perm: int, identities: Identities | None) -> bool:
    """Returns whether one of these may; the test itself (None) may do all."""
    return identities is None or any(
        grant.perms & perm and (grant.scheme == "world" or (grant.scheme, grant.id) in identities) for grant in acl
    )


def acl_in(packed: bytes, identities: Identities | None) -> Acl:
    """Returns the ACL of a request for a new znode; "auth" is the requesting connection."""
    (count,) = struct.unpack_from("!i", packed)
    at, grants = 4, list[Grant]()
    for _ in range(count):
        perms, size = struct.unpack_from("!ii", packed, at)
        scheme, at = packed[at + 8 : at + 8 + size].decode(), at + 8 + size
        (size,) = struct.unpack_from("!i", packed, at)
        name, at = packed[at + 4 : at + 4 + size].decode(), at + 4 + size
        if scheme != "auth":
            grants.append(Grant(perms, scheme, name))
        elif not identities:
            raise InvalidAclError
        else:
            grants += [Grant(perms, *identity) for identity in sorted(identities)]
    return tuple(grants)


def _identity_of(auth: str) -> tuple[str, str]:
    scheme, _, secret = auth.partition(":")
    assert scheme == "digest", "the fake knows no other scheme"
    digest = base64.b64encode(hashlib.sha1(secret.encode()).digest()).decode()
    return scheme, f"{secret.partition(':')[0]}:{digest}"
