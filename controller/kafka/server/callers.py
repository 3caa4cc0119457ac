"""Who is at the other end of a connection, in the words of Kafka's ACLs: a principal, and a host.

The principal is the user that logged in; without a login the name in the client's certificate, as Java writes it; or
else nobody in particular.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from asyncio import StreamWriter
from typing import Any, Final

from controller.core.acls import Caller
from controller.kafka.protocol.codec import WireError

ANONYMOUS: Final = "User:ANONYMOUS"
#: the attributes of a name that Java writes by a word; of others it writes the bytes, which are not to be had here
_WORDS: Final = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_SPECIAL = re.compile(r'([,=+<>#;"\\])')
_OUTER_SPACES = re.compile(r"^ +| +$")


def caller_of(writer: StreamWriter, user: str | None) -> Caller:
    """`user`: who has logged in, if anybody. Raises WireError for a name that cannot be written as Java does."""
    host = host_as_java_writes(str((writer.get_extra_info("peername") or ("nowhere",))[0]))
    if user is not None:
        return Caller(f"User:{user}", host)
    tls: ssl.SSLObject | None = writer.get_extra_info("ssl_object")
    shown: Any = None if tls is None else tls.getpeercert()
    return Caller(f"User:{name_as_java_writes(shown['subject'])}" if shown else ANONYMOUS, host)


def host_as_java_writes(address: str) -> str:
    """`getHostAddress`: of IPv6 all eight numbers, and of an IPv4 address within it the latter."""
    text, _, zone = address.partition("%")
    try:
        known = ipaddress.ip_address(text)
    except ValueError:
        return address
    if isinstance(known, ipaddress.IPv4Address):
        return str(known)
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    parts = ":".join(f"{int(part, 16):x}" for part in known.exploded.split(":"))
    return f"{parts}%{zone}" if zone else parts


def name_as_java_writes(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """`X500Principal.getName()`: the name of RFC 2253, its last part first."""
    return ",".join("+".join(_attribute(*one) for one in part) for part in reversed(subject))


def _attribute(kind: str, value: str) -> str:
    word = _WORDS.get(kind)
    if word is None:
        raise WireError(f"a certificate's name has {kind}, and ACLs cannot be asked about it here")
    escaped = _OUTER_SPACES.sub(lambda found: r"\ " * len(found[0]), _SPECIAL.sub(r"\\\1", value))
    return f"{word}={escaped}"
