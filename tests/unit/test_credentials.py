"""What the application knows the sidecar by: from settings into requests, nowhere else."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.credentials import header_line, is_own_header, signing_keys
from sidecar.delivery.credentials import REREAD_SECONDS, Credentials, Refreshed
from sidecar.delivery.request import RequestEncoder, split_head
from sidecar.delivery.signature import Signer
from sidecar.errors import ConfigError
from sidecar.model import Assignment, Partition, Record
from sidecar.settings import RouteSettings, Secret, Settings, load_settings
from tests.fakes.clock import SimulatedScheduler

HUSH = "hush-hush"
KEY = bytes(range(32))
WHSEC = "whsec_" + base64.b64encode(KEY).decode()
OTHER = "whsec_" + base64.b64encode(KEY[::-1]).decode()
NO_VALUE = "the value of 'X' is not a legal header: visible ASCII, with blanks inside only"
NOW = 1_614_265_330.9


def settings(env: dict[str, str] | None = None, **given: Any) -> Settings:
    tree = {
        "kafka": {"bootstrap.servers": "b:1", "group.id": "g"},
        "routes": [{"topics": ["orders"], "target": "http://app/", **given}],
    }
    return load_settings(None, env or {}, tree)


def credentials(route: RouteSettings) -> Credentials:
    assert route.auth is not None
    return Credentials(route.headers, route.auth.bearer, route.auth.signature)


def problem(env: dict[str, str] | None = None, **given: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        settings(env, **given)
    return str(caught.value).removeprefix("routes[0].")


def record(topic: str = "orders", value: bytes | None = b"body") -> Record:
    return Record(Assignment(Partition(topic, 3), 1), 42, 1_700, None, value, None, size=0)


# --- settings -----------------------------------------------------------------------------------


def test_credentials_come_as_text_from_files_and_from_variables(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{HUSH}\n")
    route = settings(
        {"TOKEN": HUSH},
        auth={"bearer": {"file": str(file)}, "signature": WHSEC},
        headers={"X-Api-Key": {"env": "TOKEN"}, "X-Team": "blue"},
    ).routes[0]
    assert credentials(route).lines() == (
        b"X-Api-Key: hush-hush\r\nX-Team: blue\r\nAuthorization: Bearer hush-hush\r\n"
    )
    assert credentials(route).keys() == (KEY,)
    assert credentials(route).may_change


@pytest.mark.parametrize("reference", [False, True])
def test_a_variable_gives_the_token_or_its_file(reference: bool, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(HUSH)
    config = tmp_path / "sidecar.yaml"
    config.write_text(
        """
        kafka: {bootstrap.servers: "b:1", group.id: g}
        routes: [{topics: [t], target: "http://app/", auth: {bearer: {env: NOT_THERE}}}]
        """
    )
    name = "SIDECAR_ROUTES__0__AUTH__BEARER"
    env = {f"{name}__FILE": str(tmp_path / "token")} if reference else {name: HUSH}
    route = load_settings(config, env).routes[0]
    assert b"Bearer hush-hush" in credentials(route).lines()


def test_secrets_show_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(WHSEC)
    given = settings(
        auth={"bearer": HUSH, "signature": {"file": str(file)}}, headers={"X-Api-Key": HUSH}
    )
    plain = given.model_dump(mode="json")
    for shown in (repr(given), str(given), str(plain), given.model_dump_json()):
        assert HUSH not in shown
        assert WHSEC not in shown
    route = plain["routes"][0]
    assert route["auth"] == {"bearer": "**********", "signature": "**********"}
    assert route["headers"] == {"X-Api-Key": "**********"}
    assert HUSH not in repr(credentials(given.routes[0]))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"auth": {"bearer": ""}}, "auth.bearer: must not be empty"),
    ({"auth": {"bearer": 5}}, "auth.bearer: must be text, {file: PATH} or {env: NAME}"),
    (
        {"auth": {"bearer": {"env": "NOT_THERE"}}},
        "auth.bearer: the environment has no NOT_THERE, or it is empty",
    ),
    (
        {"auth": {"bearer": {"file": "/not/there"}}},
        "auth.bearer: cannot read /not/there: No such file or directory",
    ),
    (
        {"auth": {"bearer": f"{HUSH} x"}},
        "auth.bearer: a bearer token must hold visible ASCII without spaces, and not be empty",
    ),
    (
        {"auth": {"signature": HUSH}},
        "auth.signature: a signing secret must begin with whsec_",
    ),
    (
        {"auth": {"signature": f"whsec_{HUSH}"}},
        "auth.signature: a signing secret must be base64 after whsec_",
    ),
    (
        {"auth": {"signature": "whsec_aHVzaA=="}},
        "auth.signature: a signing secret must hold 24 to 64 bytes, not 4",
    ),
    ({"headers": HUSH}, "headers: must be a mapping of header names to values"),
    ({"headers": {"X": 5}}, "headers.X: must be text, {file: PATH} or {env: NAME}"),
    ({"headers": {"a b": "x"}}, "headers: 'a b' is not a legal header name"),
    (
        {"headers": {"X": f"{HUSH}\r\nY: 1"}},
        f"headers: {NO_VALUE}",
    ),
    ({"headers": {"Host": "x"}}, "headers.Host: is the sidecar's own header"),
    ({"headers": {"Kafka-Key": "x"}}, "headers.Kafka-Key: is the sidecar's own header"),
    ({"headers": {"X": "1", "x": "2"}}, "headers.x: is given twice"),
    (
        {"auth": {"bearer": HUSH}, "headers": {"authorization": "Basic x"}},
        "headers.authorization: is given as well as auth.bearer: keep one of them",
    ),
]


@pytest.mark.parametrize(("given", "told"), REFUSED)
def test_credentials_that_make_no_sense_are_refused_without_being_told(
    given: dict[str, Any], told: str
) -> None:
    assert problem(**given) == told
    assert HUSH not in told


# --- lines --------------------------------------------------------------------------------------


@given(name=st.text(max_size=6), value=st.text(max_size=8))
def test_a_header_line_is_one_line_or_refused(name: str, value: str) -> None:
    try:
        line = header_line(name, value)
    except ValueError:
        return
    assert line == f"{name}: {value}\r\n".encode("ascii")
    assert line.count(b"\n") == line.count(b"\r") == 1
    assert value == value.strip()


@pytest.mark.parametrize(
    "name", ["content-length", "HOST", "Connection", "Idempotency-Key", "Sidecar-X", "ce-id"]
)
def test_the_sidecars_own_headers_are_known(name: str) -> None:
    assert is_own_header(name)
    assert not is_own_header("Authorization")


# --- signature ----------------------------------------------------------------------------------


def hmac_sha256(key: bytes, message: bytes) -> bytes:
    """By the letter of RFC 2104."""
    padded = key.ljust(64, b"\0")
    inner = hashlib.sha256(bytes(each ^ 0x36 for each in padded) + message).digest()
    return hashlib.sha256(bytes(each ^ 0x5C for each in padded) + inner).digest()


def signed_request(record: Record, *secrets: str) -> tuple[dict[str, str], bytes]:
    signer = Signer(signing_keys(" ".join(secrets)), lambda: NOW)
    encoder = RequestEncoder("/", "app:80", "text/plain", 16_384, sign=signer)
    head, body = encoder.encode(record, 1)
    return {name.decode().lower(): value.decode() for name, value in split_head(head)}, body


def verifies(headers: dict[str, str], body: bytes, secret: str) -> bool:
    """What a receiver does."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    message = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    right = "v1," + base64.b64encode(hmac_sha256(key, message)).decode()
    return right in headers["webhook-signature"].split(" ")


@pytest.mark.parametrize("value", [b"", None, b"\x00\xff.", b"x" * 100_000])
def test_a_receiver_can_verify_the_signature(value: bytes | None) -> None:
    headers, body = signed_request(record(value=value), WHSEC)
    assert verifies(headers, body, WHSEC)
    assert not verifies(headers, body + b"x", WHSEC)
    assert not verifies(headers, body, OTHER)
    assert headers["webhook-timestamp"] == "1614265330"


def test_the_id_is_the_records_and_holds_no_full_stop() -> None:
    """Else a part of the body could be taken for the time, or a part of the id."""
    headers, _ = signed_request(record(topic="orders.v1"), WHSEC)
    assert headers["webhook-id"] == "orders%2Ev1/3/42/1700"
    assert headers["idempotency-key"] == '"orders.v1/3/42/1700"'


def test_while_a_secret_is_replaced_either_verifies() -> None:
    headers, body = signed_request(record(), WHSEC, OTHER)
    assert verifies(headers, body, WHSEC)
    assert verifies(headers, body, OTHER)


def test_a_known_signature() -> None:
    """The example that the scheme's own libraries are tested with."""
    (key,) = signing_keys("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    message = b'msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}'
    expected = "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert base64.b64encode(hmac_sha256(key, message)).decode() == expected


def test_what_is_not_signed_is_not_touched() -> None:
    encoder = RequestEncoder("/", "app:80", "text/plain", 16_384)
    assert b"webhook" not in encoder.encode(record(), 1)[0]


# --- files that change --------------------------------------------------------------------------


class Idle:
    """A delivery that does nothing but close."""

    closed = False

    def open_slot(self) -> Any:
        raise AssertionError

    def probe(self, done: Callable[[str | None], None]) -> None:
        done(None)

    async def close(self) -> None:
        self.closed = True


class Rotation:
    """Both credentials in files, on a simulated clock."""

    def __init__(self, directory: Path) -> None:
        self.token, self.key = directory / "token", directory / "key"
        self.token.write_text("first")
        self.key.write_text(WHSEC)
        route = settings(
            auth={"bearer": {"file": str(self.token)}, "signature": {"file": str(self.key)}}
        ).routes[0]
        given = credentials(route)
        self.scheduler = SimulatedScheduler()
        signer = given.signer(lambda: NOW)
        assert signer is not None
        self.encoder = RequestEncoder(
            "/", "app:80", "text/plain", 16_384, fixed_lines=given.lines(), sign=signer
        )
        self.idle = Idle()
        loop = cast("asyncio.AbstractEventLoop", self.scheduler)
        self.delivery = Refreshed(self.idle, loop, given, self.encoder, signer)

    def sent(self) -> tuple[str, dict[str, str], bytes]:
        head, body = self.encoder.encode(record(), 1)
        headers = {name.decode().lower(): value.decode() for name, value in split_head(head)}
        return headers["authorization"], headers, body


def test_a_rotated_file_is_used_within_the_interval(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rotation = Rotation(tmp_path)
    assert rotation.sent()[0] == "Bearer first"
    rotation.token.write_text("second\n")
    rotation.key.write_text(OTHER)
    rotation.scheduler.advance(REREAD_SECONDS)
    token, headers, body = rotation.sent()
    assert token == "Bearer second"
    assert verifies(headers, body, OTHER)
    assert not verifies(headers, body, WHSEC)
    rotation.scheduler.advance(3 * REREAD_SECONDS)
    assert [each.message for each in caplog.records] == [
        "the credentials for the application have changed"
    ]


@pytest.mark.parametrize("broken", [None, "", "a b", "a\r\nX: 1", "ü"])
def test_what_cannot_be_used_leaves_the_last_in_use_and_is_told_once(
    broken: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rotation = Rotation(tmp_path)
    if broken is None:
        rotation.token.unlink()
    else:
        rotation.token.write_text(broken, newline="")
    rotation.scheduler.advance(5 * REREAD_SECONDS)
    assert rotation.sent()[0] == "Bearer first"
    assert len(caplog.records) == 1
    assert "stay as they were" in caplog.text
    rotation.token.write_text("third")
    rotation.scheduler.advance(REREAD_SECONDS)
    assert rotation.sent()[0] == "Bearer third"


def test_closing_ends_the_reading(tmp_path: Path) -> None:
    rotation = Rotation(tmp_path)
    asyncio.run(rotation.delivery.close())
    assert rotation.idle.closed
    rotation.token.write_text("second")
    rotation.scheduler.advance(2 * REREAD_SECONDS)
    assert rotation.sent()[0] == "Bearer first"


def test_what_is_no_file_is_never_read_again() -> None:
    assert not Credentials({"X": Secret.parse("1")}).may_change
