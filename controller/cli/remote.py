"""A command's way to the cluster: finds a broker that knows, asks it, and follows it to the controller.

It gives its token to the addresses that it was given, and to no other: with a token it asks a broker to pass requests
on. Without, it follows a redirect to an address that the cluster itself lists. It repeats only requests that may be
sent twice.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from controller.base.config import ConfigError
from controller.cli.output import RefusedError, UnreachableClusterError, WrongUsageError
from controller.security.exposure import is_loopback_url
from controller.security.secrets import NO_SECRETS, Secrets, secrets_from, trusted_bytes
from controller.security.tls import OWN, TRUST, client_context_from
from controller.wire import bodies
from controller.wire.client import (
    ExchangeError,
    HttpClient,
    NoAnswerError,
    UnreachableError,
)

PROBE_TIMEOUT_MS: Final = 1_000  # a silent broker is waited for so long, where another broker has answered
PROBE_TIMEOUT_ALONE_MS: Final = 5_000  # and so long where none has
READ_TIMEOUT_MS: Final = 10_000
WRITE_TIMEOUT_MS: Final = 20_000
RETRY_INTERVAL_MS: Final = 250
#: a comment comes more often than this
STREAM_SILENCE_MS: Final = 30_000
REDIRECTS_MAX: Final = 3
ITEMS_PER_PAGE: Final = 5_000
_USUAL_URLS: Final = ("http://127.0.0.1:8081", "http://127.0.0.1:8082", "http://127.0.0.1:8083")
#: errors after a handshake that the server refused
_ENDED: Final = ("Connection reset by peer", "Server disconnected", "CERTIFICATE_REQUIRED")
_TRY_LATER: Final = (503, 504)
#: instead of a controller epoch, where no broker of ours answered; below -1, the epoch of one that was told nothing
NOBODY: Final = -2

_T = TypeVar("_T")


def urls_for(url: str | None, var: Path | None = None) -> Sequence[str]:
    """Where to look: the address given, else the brokers of the local cluster, else where they usually are."""
    if url is not None:
        return [(url if "://" in url else f"http://{url}").rstrip("/")]
    return list(lab_addresses(var).values()) or _USUAL_URLS


def lab_addresses(var: Path | None = None) -> Mapping[str, str]:
    """Returns the addresses of the local cluster's processes, by name; none where there is no local cluster. Tokens are
    sent there, so the file must be this user's own, and the addresses local."""
    lab = (var or Path(os.environ.get("KLAMM_VAR", "var"))) / "lab.json"
    try:
        brokers = bodies.decode(trusted_bytes(lab), dict[str, Any])["brokers"]
        found = {str(name): str(address).rstrip("/") for name, address in brokers.items()}
    except ConfigError as error:
        raise WrongUsageError(f"{error}; name a broker with --url") from None
    except (OSError, msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return {}
    for address in found.values():
        if not is_loopback_url(address):
            raise WrongUsageError(f"{lab} names {address}, which is not on this machine; name a broker with --url")
    return found


def ask_cluster(url: str | None, question: Callable[[Remote], Awaitable[_T]], *, var: Path | None = None) -> _T:
    """Run one conversation with the cluster to its end. `var`: the directory of the local cluster, if not the usual
    one."""

    try:
        secrets = secrets_from(os.environ)
    except ConfigError as error:
        raise WrongUsageError(str(error)) from None

    async def conversation() -> _T:
        async with Remote(urls_for(url, var), secrets) as remote:
            return await question(remote)

    try:
        return asyncio.run(conversation())
    except ConfigError as error:
        raise WrongUsageError(str(error)) from None


def _tls_trouble(url: str, said: str) -> str:
    """Returns the fault in certificates, as far as a failed connection shows it; an empty text for any other
    failure."""
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return f"its certificate is not trusted here; {TRUST} names a file of whom to trust"
    if url.startswith("https:") and OWN not in os.environ and any(sign in said for sign in _ENDED):
        return (
            f"it ended the connection; if it wants to be shown a certificate, {OWN} names a file with one and its key"
        )
    return ""


class Probe(NamedTuple):
    """A broker's knowledge of the controller, in the order in which brokers are believed."""

    is_controller: bool = False
    controller_epoch: int = NOBODY
    url: str = ""
    trouble: str = ""


class Frame(NamedTuple):
    """One event of the controller's stream."""

    id: str
    kind: str
    data: dict[str, Any]


class Remote:
    """One conversation with a cluster."""

    def __init__(self, urls: Sequence[str], secrets: Secrets = NO_SECRETS) -> None:
        self._urls = urls
        self._secrets = secrets
        self._home: str | None = None
        #: a write got no answer, or a bad one, and was sent again: what it finds done may be its own work
        self.has_repeated = False
        self._client: HttpClient

    async def __aenter__(self) -> Self:
        self._client = HttpClient(tls=client_context_from(os.environ))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def home(self) -> str:
        """Returns the broker that knows best: the controller itself, else the broker that knows the newest one."""
        if self._home is None:
            best = max(await self._probes())
            if best.controller_epoch == NOBODY:
                trouble = f" ({best.trouble})" if best.trouble else ""
                where = ", ".join(self._urls)
                hint = "start one with `klamm up`, or name a broker with --url"
                raise UnreachableClusterError(f"cannot reach a cluster at {where}{trouble}; {hint}")
            self._home = best.url
        return self._home

    async def _probes(self) -> list[Probe]:
        """Returns the brokers' knowledge. A silent broker is not waited for once the controller answered, or another in
        time."""
        answered: list[Probe] = []
        clock = asyncio.get_running_loop().time
        in_time = clock() + PROBE_TIMEOUT_MS / 1_000
        async with asyncio.TaskGroup() as group:
            open_probes = {group.create_task(self._probe(url)) for url in self._urls}
            while open_probes and not any(probe.is_controller for probe in answered):
                left_s = None
                if any(probe.controller_epoch != NOBODY for probe in answered):
                    left_s = in_time - clock()
                    if left_s <= 0:
                        break
                done, open_probes = await asyncio.wait(open_probes, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                answered += [task.result() for task in done]
            for task in open_probes:
                task.cancel()
        return answered

    async def get(self, path: str, *, accept: Sequence[int] = (200,)) -> Any:
        status, body = await self._follow("GET", path, None, time.monotonic() + READ_TIMEOUT_MS / 1_000)
        if status not in accept:
            raise _refusal(status, body)
        return body

    async def controller(self) -> dict[str, Any]:
        """The controller by its own word: the others notice only when its session ends. Phase `silent`: no word. One of
        Kafka's own brokers gives none; one of ours that is no broker is asked by its standby."""
        told: dict[str, Any] = await self.get("/v1/controller")
        if told["since"] is not None or told["kind"] != "klamm":
            return told
        broker = await self.get(f"/v1/brokers/{told['broker_id']}", accept=(200, 404))
        if "host" not in broker:
            passed_on: dict[str, Any] = (await self.get("/v1/cluster"))["controller"]
            return passed_on
        url = f"{self._scheme}://{broker['host']}:{broker['port']}"
        said, trouble = await self._controller_at(url)
        if said is None and "(AUTHENTICATION_REQUIRED)" in trouble and not self._may_tell(url):
            return told  # it answers, and says no more without a token
        return {**told, "phase": "silent"} if said is None else said

    async def items(self, path: str, query: Mapping[str, object] | None = None) -> list[Any]:
        """Returns a whole list, page after page."""
        found: list[Any] = []
        asked: dict[str, object] = {"limit": ITEMS_PER_PAGE, **(query or {})}
        while True:
            page = await self.get(f"{path}?{urlencode(asked)}")
            found += page["items"]
            if page["next_cursor"] is None:
                return found
            asked["cursor"] = page["next_cursor"]

    async def write(self, path: str, body: object, timeout_ms: int, method: str = "POST") -> tuple[int, Any]:
        """Ask until done or refused. Over a failover the same is sent again: writes are idempotent by content."""
        deadline = time.monotonic() + timeout_ms / 1_000
        while True:
            trouble: RefusedError | UnreachableClusterError
            try:
                status, answer = await self._follow(method, path, msgspec.json.encode(body), deadline)
            except UnreachableClusterError as error:
                trouble = error
            else:
                if status < 300:
                    return status, answer
                trouble = _refusal(status, answer)
                if status not in _TRY_LATER:
                    raise trouble
            if time.monotonic() >= deadline:
                raise trouble
            await asyncio.sleep(RETRY_INTERVAL_MS / 1_000)
            self._home, self.has_repeated = None, True

    async def events(self, path: str, last_id: str | None, *, is_patient: bool = False) -> AsyncIterator[Frame]:
        """The frames of a stream until it ends. Patient: a cluster that cannot be asked now has none, for now."""
        headers = {"Klamm-Forward": "1", **({} if last_id is None else {"Last-Event-ID": last_id})}
        headers |= self._secrets.authorization(is_write=False)
        rest = b""
        try:
            url = f"{await self.home()}{path}"
            async for piece in self._client.stream(url, headers, STREAM_SILENCE_MS):
                *blocks, rest = (rest + piece).split(b"\n\n")
                for frame in map(frame_of, blocks):
                    if frame is not None:
                        yield frame
        except (ExchangeError, UnreachableClusterError) as error:
            self._home = None  # another broker may know better
            if not is_patient:
                raise UnreachableClusterError(f"no stream: {error}; `klamm status` shows who controls") from None

    async def _follow(self, method: str, path: str, body: bytes | None, deadline: float) -> tuple[int, Any]:
        """Ask at home, and where that sends us to."""
        base = await self.home()
        for _ in range(REDIRECTS_MAX):
            left_ms = max(PROBE_TIMEOUT_MS, round((deadline - time.monotonic()) * 1_000))
            timeout_ms = min(left_ms, READ_TIMEOUT_MS if body is None else WRITE_TIMEOUT_MS)
            status, answer = await self._exchange(method, f"{base}{path}", body, timeout_ms)
            if status != 307:
                return status, answer
            location = answer.get("location", "") if isinstance(answer, dict) else ""
            base = self._home = await self._listed(location)
        raise UnreachableClusterError("the brokers send each other's clients around; try again in a moment")

    async def _listed(self, location: str) -> str:
        """Returns the base of an address, if the cluster lists it."""
        parts = urlsplit(location)
        base = f"{parts.scheme}://{parts.netloc}"
        listed = {
            f"{self._scheme}://{broker['host']}:{broker['port']}" for broker in (await self.get("/v1/brokers"))["items"]
        }
        if base not in listed:
            raise UnreachableClusterError(f"will not follow a redirect to {base}: /v1/brokers does not list it")
        if not self._may_tell(base):
            raise UnreachableClusterError(f"will not follow a redirect to {base} with a token; name it with --url")
        return base

    @property
    def _scheme(self) -> str:
        """Of the broker that we ask: it names the others' addresses by the same kind of listener."""
        return urlsplit(self._home or "").scheme

    def _may_tell(self, url: str) -> bool:
        """Returns whether the address may get our token, if we have any: any writer to ZooKeeper can register any
        address."""
        is_named = any(url == one or url.startswith(f"{one}/") for one in self._urls)
        return is_named or not (self._secrets.api_tokens or self._secrets.read_tokens)

    async def _probe(self, url: str) -> Probe:
        said, trouble = await self._controller_at(url)
        return (
            Probe(url=url, trouble=trouble)
            if said is None
            else Probe(said["since"] is not None, said["controller_epoch"], url)
        )

    async def _controller_at(self, url: str) -> tuple[dict[str, Any] | None, str]:
        """Returns a broker's answer about the controller, or the reason why there is none."""
        try:
            status, body = await self._exchange("GET", f"{url}/v1/controller", None, PROBE_TIMEOUT_ALONE_MS)
        except UnreachableClusterError as error:
            return None, _tls_trouble(url, str(error))
        if status in (401, 403):
            return None, str(_refusal(status, body))
        if status != 200 or not isinstance(body, dict) or not body.keys() >= {"since", "controller_epoch", "phase"}:
            return None, "what answers there is no broker of ours"
        return body, ""

    async def _exchange(self, method: str, url: str, body: bytes | None, timeout_ms: int) -> tuple[int, Any]:
        """Sends one request, with our token where that may go. Its receiver passes it on if another process has to
        answer."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        authorization = self._secrets.authorization(is_write=body is not None) if self._may_tell(url) else {}
        if authorization:
            headers |= {**authorization, bodies.FORWARD: "1"}
        try:
            answer = await self._client.send(method, url, body or b"", headers, timeout_ms)
            return answer.status, bodies.decode(answer.body, object)
        except (UnreachableError, NoAnswerError) as error:
            raise UnreachableClusterError(f"no answer from the cluster: {error}; `klamm ps` shows what runs") from None
        except msgspec.DecodeError:
            raise UnreachableClusterError(f"{url} does not answer like a broker of ours; name one with --url") from None


def frame_of(block: bytes) -> Frame | None:
    """One block of Server-Sent Events; None for a comment and the like."""
    fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line and not line.startswith(b":"))
    if b"data" not in fields:
        return None
    try:
        return Frame(fields[b"id"].decode(), fields[b"event"].decode(), bodies.decode(fields[b"data"], dict[str, Any]))
    except (KeyError, ValueError):
        raise UnreachableClusterError("the events that come are none of a broker of ours") from None


def _refusal(status: int, body: Any) -> RefusedError:
    problem = body if isinstance(body, dict) else {}
    return RefusedError(status, str(problem.get("code", status)), str(problem.get("detail", "refused")))
