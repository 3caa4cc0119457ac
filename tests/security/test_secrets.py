"""Secrets come from the environment or from a file of the owner alone, and no message and no repr has one in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.base.config import ConfigError
from controller.security.exposure import check_exposure, is_loopback
from controller.security.secrets import (
    NO_SECRETS,
    Secrets,
    is_one_of,
    secrets_from,
)

ADMIN, READER, RPC = "admin-token-of-the-tests", "reader-token-of-the-tests", "rpc-secret-of-the-tests"
ALL = Secrets((ADMIN,), (READER,), (RPC,), "digest:klamm:zookeeper-password")


def a_file(path: Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_nothing_set_is_nothing_guarded() -> None:
    assert secrets_from({}) == NO_SECRETS


def test_each_may_come_from_a_file_of_its_owner_alone(tmp_path: Path) -> None:
    files = {
        "KLAMM_API_TOKEN_FILE": a_file(tmp_path / "a", f"{ADMIN}\n"),
        "KLAMM_READ_TOKEN_FILE": a_file(tmp_path / "b", READER, 0o400),
        "KLAMM_RPC_SECRET_FILE": a_file(tmp_path / "c", RPC),
        "KLAMM_ZOOKEEPER_AUTH_FILE": a_file(tmp_path / "d", "digest:klamm:zookeeper-password\n"),
    }
    assert secrets_from(files) == ALL


def test_several_are_accepted_and_the_first_is_used() -> None:
    secrets = secrets_from({"KLAMM_API_TOKEN": f"{ADMIN}\n{ADMIN}-of-before"})
    assert secrets.authorization(is_write=True) == {"Authorization": f"Bearer {ADMIN}"}
    assert is_one_of(f"{ADMIN}-of-before", secrets.api_tokens)
    assert not is_one_of(f"{ADMIN}-", secrets.api_tokens)


def test_a_process_asks_with_no_more_right_than_it_needs() -> None:
    assert ALL.authorization(is_write=False) == {"Authorization": f"Bearer {READER}"}
    assert ALL.authorization(is_write=True) == {"Authorization": f"Bearer {ADMIN}"}


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o660, 0o610, 0o644])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = a_file(tmp_path / "token", ADMIN, mode)
    with pytest.raises(ConfigError, match="chmod 600") as refused:
        secrets_from({"KLAMM_API_TOKEN_FILE": path})
    assert ADMIN not in str(refused.value)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"KLAMM_API_TOKEN": ""}, "KLAMM_API_TOKEN is empty"),
        ({"KLAMM_API_TOKEN": "short-and-weak"}, "16 to 512 characters"),
        ({"KLAMM_RPC_SECRET": "x" * 513}, "16 to 512 characters"),
        ({"KLAMM_API_TOKEN": "no-ascii-at-all-ä"}, "plain ASCII"),
        ({"KLAMM_API_TOKEN": ADMIN, "KLAMM_READ_TOKEN": ADMIN}, "are the same"),
        ({"KLAMM_API_TOKEN": ADMIN, "KLAMM_API_TOKEN_FILE": "/x"}, "both set"),
        ({"KLAMM_API_TOKEN_FILE": "/nowhere/token"}, "cannot be read"),
        ({"KLAMM_API_TOKEN_FILE": "/"}, "cannot be read"),
        ({"KLAMM_ZOOKEEPER_AUTH": "klamm:hidden-password"}, "digest:user:password"),
        ({"KLAMM_ZOOKEEPER_AUTH": "digest:klamm"}, "digest:user:password"),
    ],
)
def test_a_secret_that_cannot_be_used_is_named_and_not_shown(environment: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        secrets_from(environment)
    secret_ones = [value for name, value in environment.items() if not name.endswith("_FILE") and value]
    assert not any(value in str(refused.value) for value in secret_ones)


def test_no_representation_has_a_secret_in_it() -> None:
    text = f"{ALL!r} {ALL} {[ALL]}"
    assert not any(value in text for value in (ADMIN, READER, RPC, "zookeeper-password"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost"])
def test_loopback_needs_nothing(host: str) -> None:
    assert is_loopback(host)
    check_exposure([host], NO_SECRETS)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "broker-1", "127.0.0.1.evil.example", ""])
def test_elsewhere_no_process_listens_unguarded_unless_told_to(host: str) -> None:
    for secrets in (NO_SECRETS, Secrets(api_tokens=(ADMIN,)), Secrets(rpc_secrets=(RPC,))):
        with pytest.raises(ConfigError, match="refusing to listen"):
            check_exposure(["127.0.0.1", host], secrets)
        check_exposure([host], secrets, is_insecure=True)
    check_exposure([host], Secrets(api_tokens=(ADMIN,), rpc_secrets=(RPC,)))


def test_a_caller_that_may_not_read_may_not_write_either() -> None:
    with pytest.raises(ConfigError, match="could still write"):
        check_exposure(["127.0.0.1"], Secrets(read_tokens=(READER,)))
