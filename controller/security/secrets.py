"""The secrets of a process: from its environment, or from files that only their owner may read.

`KLAMM_API_TOKEN` guards every change, `KLAMM_READ_TOKEN` reading, too, `KLAMM_RPC_SECRET` signs the requests between
processes, `KLAMM_ZOOKEEPER_AUTH` is the process's identity for ZooKeeper; each also as `<NAME>_FILE`. Several tokens or
RPC secrets, divided by white space, are all accepted and the first is used: so they can be changed one process after
the other. A secret is never in a message, nor in the representation of these values.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.base.config import ConfigError

API_TOKEN: Final = "KLAMM_API_TOKEN"
READ_TOKEN: Final = "KLAMM_READ_TOKEN"
RPC_SECRET: Final = "KLAMM_RPC_SECRET"
ZOOKEEPER_AUTH: Final = "KLAMM_ZOOKEEPER_AUTH"
#: a shorter secret can be guessed
CHARACTERS_MIN: Final = 16
CHARACTERS_MAX: Final = 512
FILE_MAX_BYTES: Final = 16 * 1024
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, repr=False)
class Secrets:
    """The secrets that were set; where none is set nothing is guarded."""

    api_tokens: tuple[str, ...] = ()
    read_tokens: tuple[str, ...] = ()
    rpc_secrets: tuple[str, ...] = ()
    zookeeper_auth: str | None = None

    def __repr__(self) -> str:
        return f"Secrets(of {', '.join(name for name, value in vars(self).items() if value) or 'nothing'})"

    def authorization(self, *, is_write: bool) -> dict[str, str]:
        """Returns the header with which this process asks another: with no more right than it needs."""
        preferred, other = self.api_tokens, self.read_tokens
        tokens = (preferred or other) if is_write else (other or preferred)
        return {"Authorization": f"Bearer {tokens[0]}"} if tokens else {}


NO_SECRETS: Final = Secrets()


def secrets_from(environment: Mapping[str, str]) -> Secrets:
    """Returns the checked secrets of the environment. The message of an error names the variable, never its value."""
    secrets = Secrets(
        api_tokens=_several(environment, API_TOKEN),
        read_tokens=_several(environment, READ_TOKEN),
        rpc_secrets=_several(environment, RPC_SECRET),
        zookeeper_auth=_zookeeper_auth(environment),
    )
    if set(secrets.api_tokens) & set(secrets.read_tokens):
        raise ConfigError(f"{API_TOKEN} and {READ_TOKEN} are the same: callers that may read could write")
    return secrets


def is_one_of(given: str, expected: Sequence[str]) -> bool:
    """Compared in a time that tells nothing of them, not even how many characters agree."""
    digest = hashlib.sha256(given.encode(errors="surrogateescape")).digest()
    same = [hmac.compare_digest(digest, hashlib.sha256(one.encode()).digest()) for one in expected]
    return any(same)


def _several(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    text = _text_of(environment, name)
    if text is None:
        return ()
    found = tuple(text.split())
    if not found:
        raise ConfigError(f"{name} is empty: unset it, or set it to what `openssl rand -hex 32` prints")
    for one in found:
        if not (one.isascii() and one.isprintable() and CHARACTERS_MIN <= len(one) <= CHARACTERS_MAX):
            raise ConfigError(
                f"{name}: {CHARACTERS_MIN} to {CHARACTERS_MAX} characters of plain ASCII are needed; "
                "`openssl rand -hex 32` prints a good one"
            )
    return found


def _zookeeper_auth(environment: Mapping[str, str]) -> str | None:
    text = _text_of(environment, ZOOKEEPER_AUTH)
    if text is None:
        return None
    scheme, _, rest = text.strip().partition(":")
    user, _, password = rest.partition(":")
    if scheme != "digest" or not user or not password:
        raise ConfigError(f"{ZOOKEEPER_AUTH}: write it like digest:user:password")
    return text.strip()


def _text_of(environment: Mapping[str, str], name: str) -> str | None:
    """Returns the variable's value, or the content of the file that it names."""
    value, path = environment.get(name), environment.get(f"{name}_FILE")
    if path is None:
        return value
    if value is not None:
        raise ConfigError(f"{name} and {name}_FILE are both set: unset one")
    return owned_text(Path(path), f"{name}_FILE")


def trusted_bytes(path: Path) -> bytes:
    """Returns the content of a file that names where secrets are sent: only this user and root may have written it.
    Raises OSError where it cannot be read."""
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        if found.st_uid not in (os.geteuid(), 0):
            raise ConfigError(f"{path} belongs to another user, and says where secrets are sent: it is not believed")
        if stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(f"others may write {path}, which says where secrets are sent: `chmod go-w {path}`")
        return file.read()


def owned_text(path: Path, name: str) -> str:
    """Returns the text of a file that only its owner may use. The file that is judged is the one that is read."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(f"{name}: {path} is no regular file")
            if stat.S_IMODE(found.st_mode) & _OTHERS:
                raise ConfigError(f"{name}: others than its owner may use {path}: `chmod 600 {path}`")
            if found.st_uid not in (os.geteuid(), 0):
                raise ConfigError(f"{name}: {path} belongs to another user: `chown` it to the one that runs this")
            content = file.read(FILE_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{name}: {path} cannot be read ({error.strerror})") from None
    if len(content) > FILE_MAX_BYTES:
        raise ConfigError(f"{name}: {path} has more than {FILE_MAX_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: {path} is no text") from None
