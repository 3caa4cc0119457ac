"""Addresses from another author, in a registration or an answer: the check whether a request may be sent there. Pure.

An address is a host and a port and nothing beside them, so that it can add no path, query or credentials to a request.
Nothing is sent to link-local addresses and to the others at which clouds hand out secrets, under any name.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

PORT_MAX: Final = 65_535
_HOST: Final = re.compile(r"\w(?:[\w.-]{0,252}[\w.])?")
#: an address, if in a form that only some systems read
_NUMBER: Final = re.compile(r"(?:.*\.)?(?:\d+|0[xX][0-9a-fA-F]*)\.?")
#: where clouds answer that do not use a link-local address: of AWS by IPv6, of Alibaba, of Oracle
_METADATA: Final = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "192.0.0.192")))
_METADATA_NAMES: Final = frozenset({"metadata", "metadata.google.internal", "instance-data"})


def split_address(address: str) -> tuple[str, int] | None:
    """Host, without brackets, and port of `host:port`; None for anything else, and where nothing may be sent to."""
    host, colon, port = address.rpartition(":")
    if not (colon and port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) <= PORT_MAX):
        return None
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    is_number = is_bracketed or ":" in host or _NUMBER.fullmatch(host) is not None
    is_host = is_ip(host) if is_number else _HOST.fullmatch(host) is not None
    return (host, int(port)) if is_host and may_be_asked(host) else None


def is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def may_be_asked(host: str) -> bool:
    """Returns whether a broker can be there. Of a name this says little: ask again for the address it resolves to."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.rstrip(".").lower() not in _METADATA_NAMES
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    return not (address.is_link_local or address.is_multicast or address in _METADATA)
