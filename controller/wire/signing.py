"""Signatures of requests between processes: they prove the sender, the receiver, and that it is sent now, and once.

A signature covers method, path, every `Klamm-` header and the hash of the body: sender and receiver with their broker
epochs, the controller epoch, the event, and a sequence number. A receiver takes only rising numbers of an incarnation
of a sender, so it needs neither a clock nor a store of nonces, and a request that was given up and comes late is
refused; a sender that tries again signs anew. The receiver's broker epoch in it makes requests to an earlier process
worthless. Without a secret nothing is signed and nothing is checked. No I/O.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

from yarl import URL

from controller.wire import bodies

#: of a number in a header: 64 bits
#: requests passed on for callers overtake each other: numbers this far behind the newest are taken, once each
FORWARDS_WINDOW: Final = 1_024
_BY_CONTROLLER: Final = frozenset(
    {bodies.LEADER_AND_ISR, bodies.UPDATE_METADATA, bodies.STOP_REPLICA, bodies.DESCRIBE_TOPICS}
)
_OURS: Final = "klamm-"
_SIGNATURE: Final = bodies.SIGNATURE.lower()
_NUMBERS: Final = (bodies.RECEIVER, bodies.BROKER_EPOCH, bodies.CONTROLLER_EPOCH, bodies.SEQUENCE)


class Incarnation(NamedTuple):
    """A broker by id and broker epoch; an epoch of None is not registered."""

    broker_id: int
    epoch: int | None


class Signed(NamedTuple):
    """The claims of a good signature."""

    sender: Incarnation
    receiver: Incarnation
    sequence: int
    stream: str
    body_sha256: str
    #: the role of the caller for which it was passed on; empty when the sender asks for itself
    role: str


class SignatureError(Exception):
    """A request not from its named sender, or to another receiver, or late. The message says why."""


class Signer:
    """Numbers and signs the requests of this process. One per process: its numbers rise over all receivers."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._key = secrets[0].encode() if secrets else None
        self._numbers = count(1)

    @property
    def signs(self) -> bool:
        return self._key is not None

    def headers_for(
        self,
        method: str,
        url: str,
        body: bytes,
        *,
        sender: Incarnation,
        receiver: Incarnation,
        more: Mapping[str, str],
    ) -> dict[str, str]:
        """Returns all headers of a request; `more` are those beside sender, receiver and signature."""
        headers = {"Content-Type": "application/json", **more}
        if sender.epoch is not None:
            headers[bodies.SENDER] = f"{sender.broker_id} {sender.epoch}"
        headers[bodies.SEQUENCE] = str(next(self._numbers))  # signed or not: late copies are told by it
        if self._key is None:
            return headers
        headers[bodies.RECEIVER] = str(receiver.broker_id)
        headers[bodies.BROKER_EPOCH] = str(receiver.epoch)
        headers[bodies.BODY_SHA256] = hashlib.sha256(body).hexdigest()
        headers[bodies.SIGNATURE] = _signature(self._key, method, URL(url).raw_path_qs, headers.items())
        return headers


class _Stream:
    """The numbers of one incarnation that were taken, of one kind of request."""

    def __init__(self, epoch: int, window: int) -> None:
        self.epoch = epoch
        self._window = window
        self._newest = 0
        self._taken: set[int] = set()

    def takes(self, number: int) -> bool:
        if number <= self._newest - self._window or number in self._taken:
            return False
        self._taken.add(number)
        if number > self._newest:
            self._newest = number
            self._taken = {one for one in self._taken if one > number - self._window}
        return True


class Verifier:
    """Judges signatures for this process, and remembers which numbers it took."""

    def __init__(self, secrets: Sequence[str], own: Callable[[], Incarnation]) -> None:
        self._keys = [secret.encode() for secret in secrets]
        self._own = own
        self._streams: dict[tuple[int, str], _Stream] = {}

    @property
    def demands(self) -> bool:
        """Whether a request between processes must be signed."""
        return bool(self._keys)

    def judge(self, method: str, path: str, headers: Iterable[tuple[str, str]]) -> Signed:
        """Returns the claims that the headers prove. Raises SignatureError; the body is judged by `admit`."""
        said: dict[str, str] = {}
        for name, value in headers:
            if name.lower().startswith(_OURS):
                if name.lower() in said:
                    raise SignatureError(f"the header {name} is there twice")
                said[name.lower()] = value
        given = said.pop(_SIGNATURE, None)
        if given is None:
            raise SignatureError("this needs the signature of a broker")
        # every key is tried, in a time that does not tell which one fits
        good = [
            hmac.compare_digest(_signature(key, method, path, said.items()).encode(), _bytes(given))
            for key in self._keys
        ]
        if not any(good):
            raise SignatureError("the signature is wrong: is KLAMM_RPC_SECRET the same everywhere?")
        signed = _signed(path, said)
        own = self._own()
        if signed.receiver.broker_id != own.broker_id:
            raise SignatureError(f"this was said to broker {signed.receiver.broker_id}")
        # the controller's requests to another incarnation have answers of their own
        if signed.stream != bodies.CONTROLLER_ID and signed.receiver.epoch != own.epoch:
            raise SignatureError(f"this was said to broker epoch {signed.receiver.epoch}, which is not ours")
        return signed

    def admit(self, signed: Signed, body: bytes) -> None:
        """Take it, once. Raises SignatureError for another body, or for a number that is not a newer one."""
        if not hmac.compare_digest(hashlib.sha256(body).hexdigest().encode(), _bytes(signed.body_sha256)):
            raise SignatureError("the body is not the one that was signed")
        key, epoch = (signed.sender.broker_id, signed.stream), signed.sender.epoch
        assert epoch is not None, "read from a header"
        stream = self._streams.get(key)
        if stream is None or stream.epoch < epoch:
            stream = self._streams[key] = _Stream(epoch, FORWARDS_WINDOW if signed.role else 1)
        if stream.epoch > epoch:
            raise SignatureError(f"broker {signed.sender.broker_id} has a newer incarnation")
        if not stream.takes(signed.sequence):
            raise SignatureError("this request was seen before, or came later than its successor")


def _signed(path: str, said: Mapping[str, str]) -> Signed:
    """Returns the values of signed headers: present, and well formed."""
    sender = bodies.sender_in(said.get(bodies.SENDER.lower(), ""))
    said_numbers = (bodies.number_in(said.get(name.lower(), "")) for name in _NUMBERS)
    numbers = [one for one in said_numbers if one is not None]
    if sender is None or len(numbers) < len(_NUMBERS):
        raise SignatureError(f"a signed request says {bodies.SENDER}, {', '.join(_NUMBERS)}")
    if path in _BY_CONTROLLER and bodies.number_in(said.get(bodies.CONTROLLER_ID.lower(), "")) != sender[0]:
        raise SignatureError("a broker speaks for a controller that it is not")
    role = said.get(bodies.ROLE.lower(), "")
    is_rpc = path.startswith("/rpc/")
    if is_rpc == bool(role):
        raise SignatureError("a broker asks for itself under /rpc, and elsewhere for a caller whose role it says")
    receiver_id, receiver_epoch, _, sequence = numbers
    return Signed(
        sender=Incarnation(*sender),
        receiver=Incarnation(receiver_id, receiver_epoch),
        sequence=sequence,
        stream=bodies.CONTROLLER_ID if path in _BY_CONTROLLER else path if is_rpc else bodies.ROLE,
        body_sha256=said.get(bodies.BODY_SHA256.lower(), ""),
        role=role,
    )


def _signature(key: bytes, method: str, path: str, headers: Iterable[tuple[str, str]]) -> str:
    """Lines cannot run into each other: neither a path nor a header has a line end."""
    ours = sorted((name.lower(), value) for name, value in headers if name.lower().startswith(_OURS))
    text = "\n".join([method, path, *(f"{name}:{value}" for name, value in ours)])
    return hmac.new(key, _bytes(text), hashlib.sha256).hexdigest()


def _bytes(text: str) -> bytes:
    """Returns the bytes of a header with any content."""
    return text.encode(errors="surrogateescape")
