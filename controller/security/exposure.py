"""Where a process may listen: on loopback freely, anywhere else only where it guards the API that it serves.

It judges addresses and nothing else; nothing listens before it was asked.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from controller.base.config import ConfigError
from controller.security.secrets import (
    API_TOKEN,
    READ_TOKEN,
    RPC_SECRET,
    Secrets,
)


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches it. A name that is not `localhost` might be anywhere."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_loopback_url(url: str) -> bool:
    """Returns whether an address by HTTP is one of this machine alone."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and parts.username is None and is_loopback(parts.hostname or "")
    except ValueError:
        return False


def check_exposure(hosts: Iterable[str], secrets: Secrets, *, is_insecure: bool = False) -> None:
    """Raises ConfigError where listening on these hosts would let the network drive the cluster, and where callers that
    may not read could still write."""
    if secrets.read_tokens and not secrets.api_tokens:
        raise ConfigError(f"{READ_TOKEN} is set and {API_TOKEN} is not: callers that may not read could still write")
    exposed = sorted({host for host in hosts if not is_loopback(host)})
    missing = [
        name for name, value in ((API_TOKEN, secrets.api_tokens), (RPC_SECRET, secrets.rpc_secrets)) if not value
    ]
    if exposed and missing and not is_insecure:
        raise ConfigError(
            f"refusing to listen on {', '.join(exposed)}, which others than this machine may reach, without "
            f"{' and '.join(missing)}: set them (`openssl rand -hex 32` prints a good one), or say --insecure"
        )
