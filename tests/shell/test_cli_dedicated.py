"""`klamm controller`: where it may listen, and what it must be told."""

from __future__ import annotations

import pytest

from tests.shell.deciding_support import run

TO = ("controller", "--zookeeper", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--listen", "kafka://10.0.0.1:9100,http://127.0.0.1:9101"), "or --insecure"),
        (("--listen", "kafka://127.0.0.1:9100,http://db.example:9101"), "say --insecure"),
        (("--listen", "kafka://0.0.0.0:9100,http://127.0.0.1:9101", "--insecure"), "name the one address"),
        (("--listen", "kafka://127.0.0.1:9100"), "name a kafka:// address (or ssl://, …) and one of http"),
        (("--listen", "kafka://127.0.0.1,http://127.0.0.1:1"), "write it like kafka://127.0.0.1:9100"),
        (("--protocol", "2.3"), "no protocol level from 2.4 to 3.9"),
        (("--protocol", "4.0"), "no protocol level from 2.4 to 3.9"),
        (("--set", "broker.rank=1"), "unknown properties: broker.rank"),
    ],
)
def test_what_it_cannot_do_is_wrong_usage_and_says_so(given: tuple[str, ...], said: str) -> None:
    result = run(*TO, *given)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
