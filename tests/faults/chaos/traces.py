"""Checks the logs of a round, beside its history: each granted change has a line of its own (S35), and no secret
appears anywhere (S36). It reads logs of brokers and the writes to ZooKeeper. It sends no request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.faults.chaos.player import request_for
from tests.faults.checker.history import Call, Commit


def leaks_in(secrets: Iterable[str], folders: Iterable[Path], commits: Sequence[Commit]) -> Iterator[str]:
    """Yield each place that contains a secret."""
    wanted = [secret.encode() for secret in secrets]
    for path in (path for folder in folders for path in sorted(folder.rglob("*.log*")) if path.is_file()):
        data = path.read_bytes()
        if any(secret in data for secret in wanted):
            yield f"a secret stands in {path.name} of {path.parent.name}"
    for commit in commits:
        for write in commit.writes:
            if any(secret in write.data for secret in wanted):
                yield f"a secret was written to {write.path} at {commit.zxid:#x}"


def unaudited(calls: Iterable[Call], audited: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Changes that were granted more often than their lines say. A request that was passed on may have two."""
    lines = Counter((line["method"], line["path"]) for line in audited if line["status"] < 300)
    granted = Counter(_asked(call) for call in calls if call.outcome == "ok")
    for (method, path), count in granted.items():
        if lines[method, path] < count:
            yield f"{method} {path} was granted {count} times, and {lines[method, path]} lines say so"


def _asked(call: Call) -> tuple[str, str]:
    """Return method and path. Lines do not contain the query."""
    method, path, _ = request_for(call.detail)
    return method, path.partition("?")[0]
