"""The API against its own description, drawn by Schemathesis: an allowed request is answered as described, and another
one is refused as described. No answer is a 500, and none is missing in the description.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from controller.api.serve.openapi import document
from controller.api.serve.operations import OPERATIONS, Operation
from controller.security.secrets import Secrets
from tests.security.roles import a_process

pytestmark = pytest.mark.long

IS_FULL: Final = os.environ.get("KLAMM_HYPOTHESIS") == "full"
#: drawn per operation and mode: the same each time, or many more and others each time
PLAN: Final = {"max_examples": 150 if IS_FULL else 30, "derandomize": not IS_FULL}
CHECKS: Final = [status_code_conformance, content_type_conformance, response_schema_conformance]
#: parts of a path that cannot be any text
NARROW: Final = re.compile(r"{(broker|id|partition|verb)}")
#: existing names, to be asked for as often as missing ones
THERE: Final = {"topic": "orders", "partition": 0, "broker": 1, "id": 1, "verb": "kill"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A served broker with its controller, in a thread of its own: Schemathesis does not wait for others."""
    loop, ready, served = asyncio.new_event_loop(), threading.Event(), []
    over = asyncio.Event()

    async def serve(folder: Path) -> None:
        async with a_process(folder, Secrets()) as process:
            served.append(process.url)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(tmp_path_factory.mktemp("broker")),))
    thread.start()
    assert ready.wait(30)
    yield served[0]
    loop.call_soon_threadsafe(over.set)
    thread.join(30)
    loop.close()


@pytest.fixture(scope="module")
def said(url: str) -> BaseSchema:
    """Without the answer for unforeseen results: there is to be none."""
    whole: Any = msgspec.json.decode(msgspec.json.encode(document()))
    for item in whole["paths"].values():
        for one in item.values():
            del one["responses"]["default"]
    return schemathesis.openapi.from_dict(whole)


def can_be_wrong(one: Operation) -> bool:
    return bool(one.query or one.body or NARROW.search(one.path))


ASKED: Final = [
    pytest.param(one.method, one.path, mode, id=f"{mode.value}-{one.method}-{one.path}")
    for one in OPERATIONS
    for mode in (GenerationMode.POSITIVE, *([GenerationMode.NEGATIVE] if can_be_wrong(one) else []))
]


def keep_small(body: Any) -> None:
    """The model of ZooKeeper behind this API takes minutes for many thousand partitions; more are refused."""
    for name in ("count", "partitions") if isinstance(body, dict) else ():
        if type(body.get(name)) is int and 100 < body[name] < 1_000_000:
            body[name] = 100


def keep_short(query: dict[str, Any]) -> None:
    """A stream that follows does not end; its other parameters stay as drawn."""
    if str(query.get("follow", True)).lower() in ("true", "1"):
        query["follow"] = "false"


@pytest.mark.parametrize(("method", "path", "mode"), ASKED)
def test_every_answer_is_as_described(url: str, said: BaseSchema, method: str, path: str, mode: GenerationMode) -> None:
    operation, answers = said[path][method], []

    @given(st.data())
    @settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), **PLAN)
    def ask(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        if data.draw(st.booleans()):
            case.path_parameters |= {name: THERE[name] for name in case.path_parameters.keys() & THERE.keys()}
        keep_small(case.body)
        if path == "/v1/events":
            keep_short(case.query)
        response = case.call(base_url=url, timeout=20)
        answers.append(response.status_code)
        case.validate_response(response, checks=CHECKS)

    ask()
    assert answers
