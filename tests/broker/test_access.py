"""Kafka that asks who is there: every way in, what is said where one is shut, and new keys."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
import trustme
from confluent_kafka.admin import AclOperation, ResourceType

from sidecar.cli import main
from sidecar.core.findings import Finding, Grade
from sidecar.kafka.check import cannot_connect, check_kafka
from sidecar.settings import Settings, load_settings
from tests.conftest import entered
from tests.rig.processes import Scene, Sidecar, at_the_end, config, route
from tests.rig.scripted_app import Answer, Request, ScriptedApp
from tests.rig.secured import PLAIN_PASSWORD, Grant, SecuredKafka, bundle, unsecured_token
from tests.rig.waiting import eventually

pytestmark = pytest.mark.kafka

PASSWORD: Final = "scram-secret"
TOPIC, GROUP, TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE

Properties = Mapping[str, object]


class Entrance:
    """A broker, and what its clients need to get in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = trustme.CA()
        self.kafka = SecuredKafka(directory, self.authority)
        (directory / "ca.pem").write_bytes(bundle([self.authority]))

    @property
    def ca(self) -> Properties:
        return {"ssl.ca.location": str(self.directory / "ca.pem")}

    def certificate(
        self,
        name: str,
        by: trustme.CA | None = None,
        *,
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> Properties:
        """A certificate for the user of this name."""
        made = (by or self.authority).issue_cert(
            f"{name}@x.example", common_name=name, not_before=not_before, not_after=not_after
        )
        chain = b"".join(each.bytes() for each in made.cert_chain_pems)
        (self.directory / f"{name}.crt").write_bytes(chain)
        (self.directory / f"{name}.key").write_bytes(made.private_key_pem.bytes())
        return {
            "ssl.certificate.location": str(self.directory / f"{name}.crt"),
            "ssl.key.location": str(self.directory / f"{name}.key"),
        }

    def scram(self, user: str, password: object = PASSWORD) -> Properties:
        return {
            "bootstrap.servers": self.kafka.sasl,
            "security.protocol": "SASL_SSL",
            **self.ca,
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
        }

    def plain(self) -> Properties:
        login = {"sasl.mechanisms": "PLAIN", "sasl.password": PLAIN_PASSWORD}
        return {**self.scram("plain"), **login}

    def mutual(self, name: str) -> Properties:
        return {
            "bootstrap.servers": self.kafka.mutual,
            "security.protocol": "SSL",
            **self.ca,
            **self.certificate(name),
        }

    def oidc(self, endpoint: str) -> Properties:
        return {
            "bootstrap.servers": self.kafka.sasl,
            "security.protocol": "SASL_SSL",
            **self.ca,
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "orders",
            "sasl.oauthbearer.client.secret": "hush",
            "sasl.oauthbearer.token.endpoint.url": endpoint,
        }

    def msk(self) -> Properties:
        return {
            "bootstrap.servers": self.kafka.sasl,
            "security.protocol": "SASL_SSL",
            **self.ca,
            "sasl.mechanisms": "AWS_MSK_IAM",
        }


# In place of the signer, which would ask for AWS's credentials.
SIGNER: Final = """
import os, time
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from tests.rig.secured import unsecured_token
os.environ["AWS_REGION"] = "eu-central-1"
def signed(region):
    return unsecured_token("msk", 60), (time.time() + 60) * 1000
MSKAuthTokenProvider.generate_auth_token = signed
"""


@pytest.fixture(scope="module")
def entrance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entrance]:
    made = Entrance(tmp_path_factory.mktemp("entrance"))
    for _ in entered(made.kafka):
        yield made


@contextmanager
def token_server(subject: str) -> Iterator[str]:
    """Gives every client that asks a token for this subject; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            token = {"access_token": unsecured_token(subject), "token_type": "Bearer"}
            body = json.dumps(token).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token"
        server.shutdown()
        thread.join()


def tree(properties: Properties, group: str, what: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kafka": {**properties, "group.id": group},
        "routes": [{"name": "r", "target": "http://127.0.0.1:1/", **what}],
    }


def settings(properties: Properties) -> Settings:
    return load_settings(None, {}, tree(properties, "billing", {"topics": ["orders"]}))


def failures(findings: list[Finding]) -> list[str]:
    return [each.text for each in findings if each.grade is Grade.FAIL]


# --- every way in ---------------------------------------------------------------------------------


def needed(route: str, group: str, topic: str, dead: str) -> dict[str, Grant]:
    """What docs/kafka-access.md says that a user needs."""
    return {
        "read": (TOPIC, topic, READ),
        "group": (GROUP, group, READ),
        "park": (TOPIC, dead, WRITE),
        "retry-read": (TOPIC, f"{route}.{group}.retry.*", READ),
        "retry-write": (TOPIC, f"{route}.{group}.retry.*", WRITE),
        "retry-create": (TOPIC, f"{route}.{group}.retry.*", CREATE),
        "letters": (TOPIC, dead, READ),
        "progress": (GROUP, f"{group}.redrive", READ),
        "redrive": (TRANSACTION, f"{group}.redrive.{dead}", WRITE),
    }


def test_every_way_in_delivers_retries_and_parks_with_no_more_than_the_documented_permissions(
    entrance: Entrance, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka = entrance.kafka
    with token_server("oidc") as endpoint, ScriptedApp(_fussy) as app:
        ways = {
            kafka.user("scram", PASSWORD): entrance.scram("scram"),
            "plain": entrance.plain(),
            "mutual": entrance.mutual("mutual"),
            "oidc": entrance.oidc(endpoint),
            "msk": entrance.msk(),
        }
        sidecars = {way: _start(scene, app, kafka, way, ways[way]) for way in ways}
        for way in sidecars:
            at_the_end(kafka, way, f"{way}.orders")
            eventually(lambda way=way: kafka.end_offsets(f"{way}.dead") == {0: 1}, f"{way} parks")  # type: ignore[misc]
        app.until(lambda seen: sum(each.body == b"later" for each in seen) == 2 * len(ways))
        for way, sidecar in sidecars.items():
            assert sidecar.stop() == 0, way
            assert sidecar.said("Authorization") == [], way
        assert _redrive(sidecars["scram"]) == 0
        assert _redrive(sidecars["plain"]) == 1
        missing = "allow the user Write and Describe on transactional id plain.redrive.plain.dead"
        assert missing in capsys.readouterr().err


def _redrive(sidecar: Sidecar) -> int:
    return main(["dead-letters", "redrive", "-c", str(sidecar.file), "--yes"])


def _fussy(request: Request) -> Answer:
    """Refuses what is bad, and is not yet ready for what is to come later."""
    if request.body == b"bad":
        return 422
    return 500 if request.body == b"later" and request.attempt == 1 else 204


def _start(
    scene: Scene, app: ScriptedApp, kafka: SecuredKafka, way: str, properties: Properties
) -> Sidecar:
    topic, dead = f"{way}.orders", f"{way}.dead"
    kafka.create_topic(topic, 1)
    kafka.create_topic(dead, 1)
    grants = needed("r", way, topic, dead)
    if way == "plain":
        del grants["redrive"]
    kafka.allow(way, *grants.values())
    kafka.produce(topic, [b"good", b"bad", b"later"])
    what = route(
        topic,
        app.port,
        name="r",
        dead_letter={"topic": dead},
        retry={"max_attempts": 1, "topics": [{"delay_seconds": 1}]},
    )
    return scene.sidecar(
        {**config("", way, [what]), "kafka": {**properties, "group.id": way}},
        way,
        fault=SIGNER if way == "msk" else "",
    )


# --- a way that is shut ---------------------------------------------------------------------------


def shut(entrance: Entrance) -> dict[str, tuple[Properties, str]]:
    """By what is wrong: the properties, and the end of what is said."""
    kafka = entrance.kafka
    kafka.user("known", PASSWORD)
    right, mutual = entrance.scram("known"), entrance.mutual("known")
    another = trustme.CA()
    (entrance.directory / "another.pem").write_bytes(bundle([another]))
    yesterday = datetime.now(UTC) - timedelta(days=1)
    old = entrance.certificate("old", not_before=yesterday - timedelta(days=9), not_after=yesterday)
    strange = entrance.certificate("strange", another)
    unknown_ca = (
        "; ssl.ca.location does not hold the CA that signed the broker's certificate, or the"
        " certificate is for another host name than bootstrap.servers has"
    )
    login = "; the login was refused: check sasl.mechanisms, sasl.username and sasl.password"
    certificate = (
        "; the broker refuses the client certificate, or misses one: check that"
        " ssl.certificate.location is current and signed by a CA that the broker trusts"
    )
    encrypted = (
        "the port hangs up on what is not encrypted: set security.protocol to SSL or SASL_SSL"
    )
    no_login = "SSL or PLAINTEXT, or use the SASL port"
    at = "bootstrap.servers"
    return {
        "CA": ({**right, "ssl.ca.location": str(entrance.directory / "another.pem")}, unknown_ca),
        "host name": ({**right, at: kafka.sasl.replace("127.0.0.1", "localhost")}, unknown_ca),
        "password": ({**right, "sasl.password": "wrong"}, login),
        "user": ({**right, "sasl.username": "nobody"}, login),
        "mechanism": (
            {**right, "sasl.mechanisms": "SCRAM-SHA-256"},
            "; set sasl.mechanisms to one that the broker supports",
        ),
        "no TLS": ({at: kafka.sasl}, encrypted),
        "no TLS with a login": ({**right, "security.protocol": "SASL_PLAINTEXT"}, encrypted),
        "TLS to a port without": (
            {**mutual, at: kafka.bootstrap_servers},
            "PLAINTEXT or SASL_PLAINTEXT, or use the TLS port",
        ),
        "no login": (
            {at: kafka.sasl, "security.protocol": "SSL", **entrance.ca},
            "the port hangs up on who does not log in: set security.protocol to SASL_SSL",
        ),
        "login to a port without": ({**right, at: kafka.mutual, **strange}, certificate),
        "login where a certificate is": (
            {**right, at: kafka.mutual, **entrance.certificate("known")}, no_login,
        ),
        "no certificate": (
            {at: kafka.mutual, "security.protocol": "SSL", **entrance.ca}, certificate,
        ),
        "certificate of another CA": ({**mutual, **strange}, certificate),
        "expired certificate": ({**mutual, **old}, f"{yesterday:%Y-%m-%d %H:%M} UTC: renew it"),
        "key of another": (
            {**mutual, "ssl.key.location": strange["ssl.key.location"]},
            "; ssl.key.location is not the key of ssl.certificate.location",
        ),
        "no such file": (
            {**mutual, "ssl.ca.location": "/nowhere/ca.pem"},
            "; the file cannot be read, or holds no certificates (PEM)",
        ),
        "no token": (
            entrance.oidc("http://127.0.0.1:1/token"),
            "; no token: check sasl.oauthbearer.token.endpoint.url, client.id and client.secret",
        ),
    }  # fmt: skip


def test_what_shuts_a_way_is_told_in_one_sentence_with_the_way_out(entrance: Entrance) -> None:
    cases = shut(entrance)

    def tried(properties: Properties) -> str | None:
        return cannot_connect(settings(properties))

    with ThreadPoolExecutor(len(cases)) as pool:
        asked = [properties for properties, _ in cases.values()]
        said = dict(zip(cases, pool.map(tried, asked), strict=True))
    told = {case: (said[case] or "")[-len(end) :] for case, (_, end) in cases.items()}
    assert told == {case: end for case, (_, end) in cases.items()}, said
    assert all("\n" not in (text or "") for text in said.values())


def test_each_permission_that_is_missing_is_told_by_check(entrance: Entrance) -> None:
    kafka = entrance.kafka
    kafka.create_topic("orders", 1)
    kafka.create_topic("orders.dlq", 1)
    grants = needed("r", "billing", "orders", "orders.dlq")
    del grants["letters"], grants["redrive"]  # which only a redrive needs
    user = kafka.user("checked", PASSWORD)
    kafka.allow(user, *grants.values())
    checked = load_settings(
        None,
        {},
        tree(entrance.scram(user), "billing",
             {"topics": ["orders"], "dead_letter": {"topic": "orders.dlq"}}),
    )  # fmt: skip

    def told() -> list[str]:
        return failures(list(check_kafka(checked)))

    eventually(lambda: told() == [], "everything is allowed")
    said: dict[str, str] = {}
    for name in ("read", "group", "park", "progress", "retry-create", "retry-read", "retry-write"):
        if name == "retry-read":
            kafka.create_topic("r.billing.retry.0s", 1)
        grant = grants[name]
        kafka.forbid(user, grant)
        said[name] = eventually(told, f"{name} is missing")[0]
        kafka.allow(user, grant)
        eventually(lambda: told() == [], f"{name} is allowed again")
    made = "create it with 1 partition, cleanup.policy=delete, retention.ms=604800000"
    retry = "retry topic r.billing.retry.0s"
    assert said == {
        "read": "topic orders may not be seen: allow the user Describe and Read on it",
        "group": "group billing: Broker: Group authorization failed; allow the user Describe and"
        " Read on the group",
        "park": "dead-letter topic orders.dlq may not be seen: allow the user Describe and Write"
        " on it",
        "retry-create": f"{retry} cannot be made (Authorization failed.): allow the user Create on"
        f" it, or {made}",
        "retry-read": f"{retry} may not be read: allow the user Read on it",
        "retry-write": f"{retry} may not be written: allow the user Write on it",
        "progress": "group billing.redrive, of redrives: Broker: Group authorization failed; allow"
        " the user Describe and Read on the group",
    }


# --- new keys -------------------------------------------------------------------------------------

QUICKLY: Final = "import sidecar.kafka.access_watch as watch; watch.LOOK_SECONDS = 0.3"


def test_new_certificates_and_a_new_ca_cost_no_record(scene: Scene, tmp_path: Path) -> None:
    """The secret is replaced while it runs, then the broker takes nothing but what is new in it.
    Each record is delivered once.
    """
    entrance = Entrance(tmp_path)
    new = trustme.CA()
    entrance.kafka.renew(entrance.authority, [entrance.authority, new])
    for kafka in entered(entrance.kafka):
        assert isinstance(kafka, SecuredKafka)
        with ScriptedApp() as app:
            kafka.create_topic("orders", 4)
            kafka.allow("rotated", *needed("r", "rotated", "orders", "dead").values())
            made = config("", "rotated", [route("orders", app.port)])
            properties = {**entrance.mutual("rotated"), "reconnect.backoff.max.ms": 500}
            made["kafka"] = {**properties, "group.id": "rotated"}
            sidecar = scene.sidecar(made, fault=QUICKLY)
            kafka.produce("orders", [b"1"])
            app.until(lambda seen: len(seen) == 1)

            (tmp_path / "ca.pem").write_bytes(bundle([entrance.authority, new]))
            entrance.certificate("rotated", new)
            sidecar.until_said("clients are made anew")
            kafka.produce("orders", [b"2"])
            app.until(lambda seen: len(seen) == 2)

            kafka.renew(new, [new])
            kafka.node(1).restart()
            kafka.produce("orders", [b"3"])
            app.until(lambda seen: len(seen) >= 3)
            at_the_end(kafka, "rotated", "orders")
            assert sorted(each.body for each in app.requests) == [b"1", b"2", b"3"]
            assert sidecar.stop() == 0


def test_a_new_password_is_taken_and_a_wrong_one_costs_nothing(
    entrance: Entrance, scene: Scene, tmp_path: Path
) -> None:
    kafka = entrance.kafka
    kafka.create_topic("passwords", 1)
    user = kafka.user("renamed", PASSWORD)
    kafka.allow(user, *needed("r", user, "passwords", "passwords.dead").values())
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    with ScriptedApp() as app:
        made = config("", user, [route("passwords", app.port)])
        made["kafka"] = {**entrance.scram(user, {"file": str(secret)}), "group.id": user}
        sidecar = scene.sidecar(made, fault=QUICKLY)
        kafka.produce("passwords", [b"1"])
        app.until(lambda seen: len(seen) == 1)
        secret.write_text("wrong")
        sidecar.until_said("do not work yet")
        kafka.produce("passwords", [b"2"])
        app.until(lambda seen: len(seen) == 2)
        kafka.user(user, "another")
        secret.write_text("another")
        sidecar.until_said("clients are made anew")
        kafka.produce("passwords", [b"3"])
        app.until(lambda seen: len(seen) == 3)
        at_the_end(kafka, user, "passwords")
        assert [each.body for each in app.requests] == [b"1", b"2", b"3"]
        assert "wrong" not in sidecar.log.read_text().replace("check", "")
        assert sidecar.stop() == 0
