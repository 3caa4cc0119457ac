"""Errors as application/problem+json with stable codes, and the one table from Kafka's codes to HTTP statuses.

Every refusal of the API is a `ProblemError` by the time it leaves; library errors are converted here. A bug stays a
bug: an unknown exception is not caught here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from controller.api.ports import BusyError
from controller.core.codes import Code

OUTCOME_UNKNOWN: Final = "OUTCOME_UNKNOWN"
RETRY_AFTER_MS: Final = 1_000
#: of a response: the code of its problem
CODE: Final = web.ResponseKey("code", str)

HTTP_STATUSES: Final[Mapping[Code, int]] = {
    Code.UNKNOWN_SERVER_ERROR: 500,
    Code.NONE: 200,
    Code.OFFSET_OUT_OF_RANGE: 409,
    Code.CORRUPT_MESSAGE: 400,
    Code.UNKNOWN_TOPIC_OR_PARTITION: 404,
    Code.LEADER_NOT_AVAILABLE: 503,
    Code.NOT_LEADER_OR_FOLLOWER: 409,
    Code.REQUEST_TIMED_OUT: 503,
    Code.BROKER_NOT_AVAILABLE: 503,
    Code.MESSAGE_TOO_LARGE: 413,
    Code.STALE_CONTROLLER_EPOCH: 409,
    Code.COORDINATOR_NOT_AVAILABLE: 503,
    Code.INVALID_TOPIC_EXCEPTION: 400,
    Code.RECORD_LIST_TOO_LARGE: 413,
    Code.NOT_ENOUGH_REPLICAS: 503,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND: 503,
    Code.INVALID_REQUIRED_ACKS: 400,
    Code.TOPIC_AUTHORIZATION_FAILED: 403,
    Code.GROUP_AUTHORIZATION_FAILED: 403,
    Code.CLUSTER_AUTHORIZATION_FAILED: 403,
    Code.UNSUPPORTED_SASL_MECHANISM: 400,
    Code.UNSUPPORTED_VERSION: 400,
    Code.TOPIC_ALREADY_EXISTS: 409,
    Code.INVALID_PARTITIONS: 400,
    Code.INVALID_REPLICATION_FACTOR: 400,
    Code.INVALID_REPLICA_ASSIGNMENT: 400,
    Code.INVALID_CONFIG: 400,
    Code.NOT_CONTROLLER: 503,
    Code.INVALID_REQUEST: 400,
    Code.UNSUPPORTED_FOR_MESSAGE_FORMAT: 400,
    Code.POLICY_VIOLATION: 422,
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER: 409,
    Code.INVALID_PRODUCER_EPOCH: 409,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
    Code.OPERATION_NOT_ATTEMPTED: 409,
    Code.KAFKA_STORAGE_ERROR: 503,
    Code.REASSIGNMENT_IN_PROGRESS: 409,
    Code.FETCH_SESSION_ID_NOT_FOUND: 404,
    Code.INVALID_FETCH_SESSION_EPOCH: 409,
    Code.TOPIC_DELETION_DISABLED: 403,
    Code.FENCED_LEADER_EPOCH: 409,
    Code.UNKNOWN_LEADER_EPOCH: 409,
    Code.UNSUPPORTED_COMPRESSION_TYPE: 400,
    Code.STALE_BROKER_EPOCH: 409,
    Code.OFFSET_NOT_AVAILABLE: 503,
    Code.PREFERRED_LEADER_NOT_AVAILABLE: 409,
    Code.ELIGIBLE_LEADERS_NOT_AVAILABLE: 409,
    Code.ELECTION_NOT_NEEDED: 409,
    Code.NO_REASSIGNMENT_IN_PROGRESS: 404,
    Code.INVALID_RECORD: 400,
    Code.RESOURCE_NOT_FOUND: 404,
    Code.DUPLICATE_RESOURCE: 400,
    Code.UNACCEPTABLE_CREDENTIAL: 400,
    Code.INVALID_UPDATE_VERSION: 409,
    Code.UNKNOWN_TOPIC_ID: 404,
    Code.BROKER_ID_NOT_REGISTERED: 404,
    Code.INCONSISTENT_TOPIC_ID: 409,
    Code.INELIGIBLE_REPLICA: 409,
    Code.NEW_LEADER_ELECTED: 409,
}

#: the refusals of HTTP itself, by status; any other 4xx is an INVALID_REQUEST
_HTTP_CODES: Final[Mapping[int, str]] = {404: "UNKNOWN_PATH", 405: "METHOD_NOT_ALLOWED", 413: "BODY_TOO_LARGE"}


class Problem(msgspec.Struct, frozen=True):
    """The body of every error."""

    type: str
    title: str
    status: int
    code: str
    detail: str


class MovedProblem(Problem, frozen=True):
    """The body of a 307: `location` says where, for clients that cannot see headers."""

    location: str


class ProblemError(Exception):
    """A request is refused; the caller gets `code` and `detail`. It is not a fault of this process."""

    def __init__(
        self, status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, location: str = ""
    ) -> None:
        self.status, self.code, self.detail, self.location = status, code, detail, location
        self.headers = dict(headers or {})
        super().__init__(f"{code}: {detail}")


def refusal_for(code: Code, detail: str) -> ProblemError:
    """One of Kafka's codes as a refusal."""
    status = HTTP_STATUSES[code]
    return unavailable(code.name, detail) if status == 503 else ProblemError(status, code.name, detail)


def invalid(detail: str) -> ProblemError:
    return refusal_for(Code.INVALID_REQUEST, detail)


def unavailable(code: str, detail: str, retry_after_ms: int = RETRY_AFTER_MS) -> ProblemError:
    """Nothing was changed; the same request may succeed a little later."""
    return ProblemError(503, code, detail, headers={"Retry-After": str(max(1, math.ceil(retry_after_ms / 1_000)))})


def unknown_outcome(detail: str) -> ProblemError:
    """The request may have been carried out or not. `detail` names the path to read to find out."""
    return ProblemError(504, OUTCOME_UNKNOWN, detail)


def moved_to(location: str) -> ProblemError:
    detail = "another broker is the active controller: ask it"
    return ProblemError(307, Code.NOT_CONTROLLER.name, detail, headers={"Location": location}, location=location)


def problem_for(error: ProblemError) -> Problem:
    """Returns the body of a refusal."""
    # a request may hold half a surrogate pair, which JSON cannot say
    detail = error.detail.encode(errors="replace").decode()
    title = error.code.replace("_", " ").capitalize()
    problem = Problem(f"urn:klamm:problem:{error.code}", title, error.status, error.code, detail)
    if error.location:
        problem = MovedProblem(**msgspec.structs.asdict(problem), location=error.location)
    return problem


def response_for(error: ProblemError) -> web.Response:
    response = web.Response(
        body=msgspec.json.encode(problem_for(error)),
        status=error.status,
        content_type="application/problem+json",
        headers=error.headers,
    )
    response[CODE] = error.code
    return response


def _problem_of(error: web.HTTPException, request: web.Request) -> ProblemError:
    code = _HTTP_CODES.get(error.status, Code.INVALID_REQUEST.name)
    detail = error.text or error.reason
    headers = {}
    if error.status == 404:
        detail = f"there is nothing at {request.path}"
    if isinstance(error, web.HTTPMethodNotAllowed):
        headers["Allow"] = ", ".join(sorted(error.allowed_methods))
        detail = f"{request.method} is not possible at {request.path}; possible: {headers['Allow']}"
    return ProblemError(error.status, code, detail, headers=headers)


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns every refusal into its body."""
    try:
        return await handler(request)
    except ProblemError as error:
        return response_for(error)
    except BusyError as error:
        return response_for(unavailable("BUSY", str(error), error.retry_after_ms))
    except web.HTTPException as error:
        if error.status < 400 or error.status >= 500:
            raise
        return response_for(_problem_of(error, request))
