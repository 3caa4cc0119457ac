"""A signature is good for one request, from one incarnation to one incarnation, once, and in its order."""

from __future__ import annotations

import pytest

from controller.wire import bodies
from controller.wire.signing import (
    FORWARDS_WINDOW,
    Incarnation,
    SignatureError,
    Signer,
    Verifier,
)

SECRET, OTHER = "rpc-secret-of-the-tests", "another-secret-of-the-tests"
OWN, FOLLOWER = Incarnation(1, 100), Incarnation(2, 200)
BODY = b'{"session":0}'
URL = f"http://127.0.0.1:1{bodies.FETCH}"


def a_verifier(own: Incarnation = OWN, *secrets: str) -> Verifier:
    return Verifier(secrets or (SECRET,), lambda: own)


def signed(
    signer: Signer,
    url: str = URL,
    *,
    sender: Incarnation = FOLLOWER,
    receiver: Incarnation = OWN,
    body: bytes = BODY,
    method: str = "POST",
    **more: str,
) -> dict[str, str]:
    heads = {bodies.CONTROLLER_EPOCH: "7", **{name.replace("_", "-"): value for name, value in more.items()}}
    return signer.headers_for(method, url, body, sender=sender, receiver=receiver, more=heads)


def take(verifier: Verifier, headers: dict[str, str], path: str = bodies.FETCH, body: bytes = BODY) -> None:
    verifier.admit(verifier.judge("POST", path, headers.items()), body)


def test_a_signed_request_is_taken() -> None:
    verifier, signer = a_verifier(), Signer([SECRET])
    take(verifier, signed(signer))
    take(verifier, signed(signer))


def test_a_request_is_not_taken_twice_and_a_retry_signed_anew_is() -> None:
    verifier, signer = a_verifier(), Signer([SECRET])
    first = signed(signer)
    take(verifier, first)
    with pytest.raises(SignatureError, match="seen before"):
        take(verifier, first)
    take(verifier, signed(signer))


def test_a_request_later_than_its_successor_is_refused() -> None:
    verifier, signer = a_verifier(), Signer([SECRET])
    given_up, newer = signed(signer), signed(signer)
    take(verifier, newer)
    with pytest.raises(SignatureError, match="later than"):
        take(verifier, given_up)


@pytest.mark.parametrize(
    "header", [bodies.SENDER, bodies.RECEIVER, bodies.BROKER_EPOCH, bodies.CONTROLLER_EPOCH, bodies.SEQUENCE]
)
def test_every_header_of_ours_is_covered(header: str) -> None:
    headers = signed(Signer([SECRET]))
    for changed in ({**headers, header: "3 300" if header == bodies.SENDER else "9"}, {**headers, "Klamm-More": "1"}):
        with pytest.raises(SignatureError, match="wrong"):
            take(a_verifier(), changed)
    with pytest.raises(SignatureError, match="wrong"):
        take(a_verifier(), {name: value for name, value in headers.items() if name != header})


def test_method_path_query_and_body_are_covered() -> None:
    headers = signed(Signer([SECRET]))
    with pytest.raises(SignatureError, match="wrong"):
        a_verifier().judge("GET", bodies.FETCH, headers.items())
    for path in (bodies.ALTER_PARTITION, f"{bodies.FETCH}?x=1", bodies.FETCH + "/"):
        with pytest.raises(SignatureError, match="wrong"):
            take(a_verifier(), headers, path)
    with pytest.raises(SignatureError, match="not the one"):
        take(a_verifier(), headers, body=BODY + b" ")


def test_a_header_given_twice_proves_nothing() -> None:
    headers = signed(Signer([SECRET]))
    twice = [*headers.items(), (bodies.SENDER.lower(), headers[bodies.SENDER])]
    with pytest.raises(SignatureError, match="twice"):
        a_verifier().judge("POST", bodies.FETCH, twice)


@pytest.mark.parametrize("signature", ["", "0" * 64, "ä", "\udcff" * 3])
def test_no_nonsense_is_a_signature(signature: str) -> None:
    with pytest.raises(SignatureError, match="wrong"):
        take(a_verifier(), {**signed(Signer([SECRET])), bodies.SIGNATURE: signature})


def test_another_secret_is_refused_and_an_older_one_accepted_while_it_is_listed() -> None:
    headers = signed(Signer([OTHER]))
    with pytest.raises(SignatureError, match="KLAMM_RPC_SECRET"):
        take(a_verifier(), headers)
    take(a_verifier(OWN, SECRET, OTHER), headers)


def test_a_request_to_another_broker_or_to_an_earlier_process_is_refused() -> None:
    signer = Signer([SECRET])
    for receiver in (Incarnation(3, 100), Incarnation(1, 99), Incarnation(1, 101)):
        with pytest.raises(SignatureError, match="this was said to"):
            take(a_verifier(), signed(signer, receiver=receiver))
    with pytest.raises(SignatureError, match="this was said to"):
        take(a_verifier(Incarnation(1, None)), signed(signer))


def test_a_controller_reaches_another_incarnation_whose_answer_then_says_so() -> None:
    path = bodies.LEADER_AND_ISR
    headers = signed(Signer([SECRET]), f"http://h:1{path}", receiver=Incarnation(1, 99), Klamm_Controller_Id="2")
    take(a_verifier(), headers, path)


def test_a_broker_does_not_speak_for_another_as_controller() -> None:
    path = bodies.LEADER_AND_ISR
    headers = signed(Signer([SECRET]), f"http://h:1{path}", Klamm_Controller_Id="3")
    with pytest.raises(SignatureError, match="speaks for"):
        take(a_verifier(), headers, path)


def test_an_earlier_incarnation_of_the_sender_is_refused_once_the_next_was_heard() -> None:
    verifier, signer = a_verifier(), Signer([SECRET])
    late = signed(signer)
    take(verifier, signed(signer, sender=Incarnation(2, 201)))
    with pytest.raises(SignatureError, match="newer incarnation"):
        take(verifier, late)


def test_senders_and_kinds_of_requests_do_not_overtake_each_other() -> None:
    verifier, signer = a_verifier(), Signer([SECRET])
    fetch = signed(signer)
    alter = signed(signer, f"http://h:1{bodies.ALTER_PARTITION}")
    take(verifier, alter, bodies.ALTER_PARTITION)
    take(verifier, fetch)
    take(verifier, signed(Signer([SECRET]), sender=Incarnation(3, 300)))


def test_a_forwarded_request_may_overtake_within_a_window_and_is_taken_once() -> None:
    verifier, signer = a_verifier(), Signer([SECRET])
    url = "http://h:1/v1/topics?x=%7e"
    passed = [signed(signer, url, Klamm_Role="admin") for _ in range(FORWARDS_WINDOW + 1)]
    for headers in reversed(passed[1:]):
        take(verifier, headers, "/v1/topics?x=~")
    for headers in (passed[0], passed[5]):
        with pytest.raises(SignatureError, match="seen before"):
            take(verifier, headers, "/v1/topics?x=~")


@pytest.mark.parametrize(("path", "role"), [(bodies.FETCH, "admin"), ("/v1/topics", "")])
def test_under_rpc_a_broker_asks_for_itself_and_elsewhere_never(path: str, role: str) -> None:
    headers = signed(Signer([SECRET]), f"http://h:1{path}", **({"Klamm_Role": role} if role else {}))
    with pytest.raises(SignatureError, match="asks for itself"):
        take(a_verifier(), headers, path)


def test_without_a_secret_nothing_is_signed() -> None:
    headers = signed(Signer())
    plain = {"Content-Type": "application/json", "Klamm-Sender": "2 200", "Klamm-Controller-Epoch": "7"}
    assert headers == plain | {"Klamm-Sequence": "1"}
    assert not Verifier((), lambda: OWN).demands


def test_no_header_has_the_secret_in_it() -> None:
    assert SECRET not in str(signed(Signer([SECRET])))
