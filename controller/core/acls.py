"""Who may do what, by Kafka's ACLs: the rules as data, and the answers that Kafka's AclAuthorizer gives.

Pure: a question is answered from the rules that were read last. A rule that denies goes before all that allow. Some
operations imply others where they are allowed, and never where they are denied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from controller.core import formats


class Operation(IntEnum):
    """Kafka's numbers."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Kind(IntEnum):
    """Of a resource: Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


def pascal(one: Operation | Kind) -> str:
    """Kafka's name of it in ZooKeeper: `DescribeConfigs`, `TransactionalId`."""
    return "".join(part.capitalize() for part in one.name.split("_"))


OPERATIONS: Final = {pascal(one): one for one in Operation}
KINDS: Final = {pascal(one): one for one in Kind}
PERMISSIONS: Final = {"Allow": False, "Deny": True}
ANYBODY: Final = "User:*"
ANYWHERE: Final = "*"
ANY_NAME: Final = "*"
CLUSTER: Final = "kafka-cluster"
#: allowed with an operation that is allowed
IMPLIED_BY: Final[Mapping[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
#: of the resources whose clients may ask what they may do there
POSSIBLE: Final[Mapping[Kind, tuple[Operation, ...]]] = {
    Kind.TOPIC: (
        *(Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE, Operation.DELETE, Operation.ALTER),
        *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    ),
    Kind.CLUSTER: (
        *(Operation.CREATE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
        *(Operation.IDEMPOTENT_WRITE, Operation.ALTER, Operation.DESCRIBE),
    ),
}


class Acl(NamedTuple):
    """One rule about a resource."""

    principal: str
    host: str
    operation: Operation
    is_denial: bool


class Resource(NamedTuple):
    """What rules are about: one name (`*` is each of its kind), or all names that begin so."""

    kind: Kind
    name: str
    is_prefix: bool = False


class Caller(NamedTuple):
    """`principal` as Kafka writes it, `User:ann`; `host` as Java writes an address."""

    principal: str
    host: str


#: stands for the rules of a znode that cannot be read: nobody is allowed anything there
CLOSED: Final = (Acl(ANYBODY, ANYWHERE, Operation.ALL, is_denial=True),)


def acls_in(data: bytes) -> tuple[Acl, ...]:
    """Returns the rules in a resource's znode. Raises FormatError."""
    znode = formats.decode(data, formats.AclZnode)
    if znode.version != 1:
        raise formats.FormatError(f"rules of version {znode.version}")
    try:
        return tuple(
            Acl(row.principal, row.host, OPERATIONS[row.operation], PERMISSIONS[row.permissionType])
            for row in znode.acls
        )
    except KeyError as error:
        raise formats.FormatError(f"no operation or permission: {error}") from None


#: principal, host, operation and permission of rules, with the kind and the pattern of their resources
_Key = tuple[Acl, Kind, bool]


class Authorizer:
    """`super_users` may do everything. `is_open`: so may everybody on a resource without a rule."""

    def __init__(
        self,
        rules: Mapping[Resource, Sequence[Acl]],
        super_users: frozenset[str] = frozenset(),
        *,
        is_open: bool = False,
    ) -> None:
        self._rules = rules
        self._super_users = super_users
        self._is_open = is_open
        self._names: dict[_Key, set[str]] = defaultdict(set)
        for resource, acls in rules.items():
            for acl in acls:
                self._names[acl, resource.kind, resource.is_prefix].add(resource.name)

    def is_super(self, caller: Caller) -> bool:
        return caller.principal in self._super_users

    def allows(self, caller: Caller, operation: Operation, kind: Kind, name: str) -> bool:
        if caller.principal in self._super_users:
            return True
        found = list(self._about(kind, name))
        if not found:
            return self._is_open
        fitting = [acl for acl in found if acl.principal in (caller.principal, ANYBODY)]
        fitting = [acl for acl in fitting if acl.host in (caller.host, ANYWHERE)]
        if any(acl.is_denial and acl.operation in (operation, Operation.ALL) for acl in fitting):
            return False
        enough = {operation, Operation.ALL, *IMPLIED_BY.get(operation, ())}
        return any(not acl.is_denial and acl.operation in enough for acl in fitting)

    def allows_somewhere(self, caller: Caller, operation: Operation, kind: Kind) -> bool:
        """On at least one resource of that kind, as far as rules tell."""
        if caller.principal in self._super_users:
            return True
        denied = self._names_for(caller, operation, kind, is_denial=True, is_prefix=False)
        if ANY_NAME in denied:
            return False
        if self._is_open:
            return True
        denied_prefixes = self._names_for(caller, operation, kind, is_denial=True, is_prefix=True)

        def is_free(name: str) -> bool:
            return not any(name[:length] in denied_prefixes for length in range(len(name) + 1))

        prefixes = self._names_for(caller, operation, kind, is_denial=False, is_prefix=True)
        names = self._names_for(caller, operation, kind, is_denial=False, is_prefix=False)
        return any(map(is_free, prefixes)) or any(
            name == ANY_NAME or (name not in denied and is_free(name)) for name in names
        )

    def possible(self, caller: Caller, kind: Kind, name: str) -> int:
        """Returns the operations that are allowed there, as Kafka's bits."""
        return sum(1 << operation for operation in POSSIBLE[kind] if self.allows(caller, operation, kind, name))

    def _about(self, kind: Kind, name: str) -> Iterator[Acl]:
        for literal in {ANY_NAME, name}:
            yield from self._rules.get(Resource(kind, literal), ())
        for length in range(min(1, len(name)), len(name) + 1):
            yield from self._rules.get(Resource(kind, name[:length], is_prefix=True), ())

    def _names_for(
        self, caller: Caller, operation: Operation, kind: Kind, *, is_denial: bool, is_prefix: bool
    ) -> set[str]:
        """Of the resources with a rule that says so."""
        return {
            name
            for principal in (caller.principal, ANYBODY)
            for host in (caller.host, ANYWHERE)
            for one in (operation, Operation.ALL)
            for name in self._names.get((Acl(principal, host, one, is_denial), kind, is_prefix), ())
        }
