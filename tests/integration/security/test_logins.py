"""Logins over TLS: what is right works, and what is wrong is named with the setting to correct."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.kafka.listener import ListenerFinding, look_at
from airflow_kstreams.streams.errors import AccessDeniedError, KafkaClientError
from airflow_kstreams.streams.naming.permissions import Operation, Permission, Resource
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings
from dev.servers.certificates import Authority
from dev.servers.secured import SecuredBroker
from tests.support.kafka.access_control import Acls
from tests.support.remedies import walked

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

pytestmark = pytest.mark.promise("wrong-logins-are-final")

SETTINGS = ApplicationSettings.parse("app", {"client.timeout.ms": 20_000})
Config = Mapping[str, str]


def scram(broker: SecuredBroker, **changes: str) -> dict[str, str]:
    changed = {name.replace("_", "."): value for name, value in changes.items()}
    return {**broker.scram_config("carol"), **changed}


def tls(broker: SecuredBroker, bootstrap: str) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(broker.authority_file),
    }


#: Name -> settings, what the cause says, what the fix names.
WRONG: dict[str, tuple[Callable[[SecuredBroker], Config], str, str]] = {
    "wrong password": (
        lambda broker: scram(broker, sasl_password="wrong-canary"),
        "refused the credentials",
        "sasl.username and sasl.password",
    ),
    "unknown user": (
        lambda broker: scram(broker, sasl_username="nobody"),
        "refused the credentials",
        "sasl.username and sasl.password",
    ),
    "unsupported mechanism": (
        lambda broker: scram(broker, sasl_mechanism="PLAIN"),
        "supported mechanisms: SCRAM-SHA-",
        "sasl.mechanism",
    ),
    "expired certificate": (
        lambda broker: tls(broker, broker.expired_bootstrap),
        "has expired",
        "certificate renewed",
    ),
    "certificate for another host": (
        lambda broker: tls(broker, broker.elsewhere_bootstrap),
        "is for another host",
        "bootstrap.servers",
    ),
    "client with TLS at a plain listener": (
        lambda broker: scram(broker, bootstrap_servers=broker.bootstrap),
        "does not speak TLS, but security.protocol is SASL_SSL",
        "security.protocol",
    ),
    "plain client at a TLS listener": (
        lambda broker: {"bootstrap.servers": broker.scram_bootstrap},
        "speaks TLS, but security.protocol is PLAINTEXT",
        "security.protocol",
    ),
    "plain login at a TLS listener": (
        lambda broker: scram(broker, security_protocol="SASL_PLAINTEXT"),
        "speaks TLS, but security.protocol is SASL_PLAINTEXT",
        "set security.protocol to SASL_SSL",
    ),
    "no login where one is demanded": (
        lambda broker: tls(broker, broker.scram_bootstrap),
        "demands a login, but security.protocol is SSL",
        "set security.protocol to SASL_SSL",
    ),
    "no client certificate where one is demanded": (
        lambda broker: tls(broker, broker.mutual_bootstrap),
        "demands a client certificate, and none is given",
        "ssl.certificate.location",
    ),
}


def failure(config: Config, call: Callable[[KafkaCluster], object]) -> KafkaClientError:
    with pytest.raises(KafkaClientError) as caught:
        call(KafkaCluster(config, settings=SETTINGS))
    return caught.value


def describe(cluster: KafkaCluster) -> object:
    return cluster.admin().describe_topics(["no-such-topic"])


def check(error: KafkaClientError, cause: str, fix: str) -> None:
    assert cause in error.cause
    assert fix in error.fix
    assert not error.is_retriable, "a retry cannot help, and would only hide the cause"
    assert "\n" not in error.cause + error.fix
    assert "canary" not in str(error)


@pytest.mark.parametrize("case", WRONG)
def test_setting_to_correct_is_named_when_the_connection_is_wrong(
    secured_broker: SecuredBroker, case: str, capfd: pytest.CaptureFixture[str]
) -> None:
    settings, cause, fix = WRONG[case]
    check(failure(settings(secured_broker), describe), cause, fix)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "call",
    [
        lambda cluster: cluster.reader(group_id="app").committed([TopicPartition("in", 0)]),
        lambda cluster: cluster.writer(transactional_id="app-0_0").init_transactions(),
        lambda cluster: cluster.writer(transactional_id=None).begin(),
    ],
    ids=["reader", "transactional writer", "idempotent writer"],
)
def test_setting_to_correct_is_named_when_any_client_meets_an_expired_certificate(
    secured_broker: SecuredBroker, call: Callable[[KafkaCluster], object]
) -> None:
    error = failure(tls(secured_broker, secured_broker.expired_bootstrap), call)
    check(error, "has expired", "certificate renewed")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_user_is_let_in_and_no_further_when_the_password_is_right(
    secured_broker: SecuredBroker, mechanism: str
) -> None:
    error = failure(scram(secured_broker, sasl_mechanism=mechanism), describe)
    assert isinstance(error, AccessDeniedError)
    assert "User:carol needs the permission Describe on topic no-such-topic" in error.cause


def test_user_is_known_by_certificate_when_the_listener_demands_one(
    secured_broker: SecuredBroker, kafka_admin: AdminClient
) -> None:
    certificate = secured_broker.client_certificate("dave")
    config = {
        **tls(secured_broker, secured_broker.mutual_bootstrap),
        "ssl.certificate.pem": certificate.certificate,
        "ssl.key.pem": certificate.locked_key("canary"),
        "ssl.key.password": "canary",
    }
    # As whom the broker knows a certificate is the broker's business.
    assert "User:NAME" in failure(config, describe).fix
    acls = Acls(kafka_admin, principal="User:CN=dave")
    acls.allow([Permission(operation=Operation.DESCRIBE, resource=Resource.TOPIC, name="no-such-topic")])
    assert describe(KafkaCluster(config, settings=SETTINGS)) == {}
    acls.withdraw()


def with_certificate(broker: SecuredBroker, folder: Path) -> Config:
    """Return the settings of a client with a certificate, at the listener that demands one."""
    signed = broker.client_certificate("erin")
    certificate, key = folder / "erin.pem", folder / "erin.key"
    certificate.write_text(signed.certificate)
    key.write_text(signed.key)
    return {
        **tls(broker, broker.mutual_bootstrap),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
    }


#: The remedy, settings with the fault, and the settings that it says.
TOLD = [
    walked(
        "listener._Listener.plain",
        lambda broker, _: scram(broker, security_protocol="SASL_PLAINTEXT"),
        lambda broker, _: scram(broker, security_protocol="SASL_SSL"),
    ),
    walked(
        "listener._Listener.through_tls",
        lambda broker, _: tls(broker, broker.mutual_bootstrap),
        with_certificate,
    ),
    walked(
        "listener._Listener._wants_login",
        lambda broker, _: tls(broker, broker.scram_bootstrap),
        lambda broker, _: scram(broker),
    ),
    walked(
        "listener._Listener._without_tls",
        lambda broker, _: scram(broker, bootstrap_servers=broker.bootstrap),
        lambda broker, _: scram(broker, bootstrap_servers=broker.bootstrap, security_protocol="PLAINTEXT"),
    ),
    pytest.param(
        lambda broker, _: scram(broker, bootstrap_servers=broker.bootstrap),
        lambda broker, _: scram(broker, bootstrap_servers=broker.scram_bootstrap),
        marks=pytest.mark.remedy("listener._Listener._without_tls"),
        id="the port of the TLS listener",
    ),
]


@pytest.mark.parametrize(("fault", "told"), TOLD)
def test_broker_is_reached_by_the_settings_that_the_error_says(
    secured_broker: SecuredBroker,
    fault: Callable[[SecuredBroker, Path], Config],
    told: Callable[[SecuredBroker, Path], Config],
    tmp_path: Path,
) -> None:
    wrong, right = fault(secured_broker, tmp_path), told(secured_broker, tmp_path)
    error = failure(wrong, describe)
    for name in {name for name in right if wrong.get(name) != right[name]}:
        assert name in error.fix
        if name == "security.protocol":
            assert f"security.protocol to {right[name]}," in f"{error.fix},"
    try:
        assert describe(KafkaCluster(right, settings=SETTINGS)) == {}
    except AccessDeniedError as refused:
        assert "needs the permission Describe" in refused.cause, "the broker knows who asks"


@contextmanager
def tls_server(certificate: Path) -> Iterator[int]:
    """Serve handshakes with a certificate on a port of this machine."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with suppress(OSError), context.wrap_socket(connection, server_side=True) as wrapped:
                        wrapped.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


#: The remedy; certificate and host with the fault, and those that it says.
CERTIFICATES = [
    walked("listener._Listener._refused_certificate: have", {"expired": True}, "localhost", {}, "localhost"),
    walked("listener._Listener._refused_certificate: correct", {"early": True}, "localhost", {}, "localhost"),
    walked("listener._Listener._refused_certificate: set bootstrap", {}, "127.0.0.1", {}, "localhost"),
]


@pytest.mark.parametrize(("fault", "host", "told", "right_host"), CERTIFICATES)
def test_certificate_is_taken_when_the_remedy_is_followed(
    tmp_path: Path, fault: dict[str, bool], host: str, told: dict[str, bool], right_host: str
) -> None:
    authority = Authority()
    (tmp_path / "authority.pem").write_text(authority.certificate)

    def look(certificate: Path, host: str) -> ListenerFinding | None:
        config = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(tmp_path / "authority.pem")}
        with tls_server(certificate) as port:
            return look_at({**config, "bootstrap.servers": f"{host}:{port}"}, "handshake failed")

    wrong = authority.sign("broker", hosts=("localhost",), **fault).write(tmp_path / "wrong.pem")
    assert look(wrong, host) is not None
    right = authority.sign("broker", hosts=("localhost",), **told).write(tmp_path / "right.pem")
    assert look(right, right_host) is None


@pytest.mark.remedy("listener._Listener._refused_certificate: set ssl.ca.location")
def test_certificate_is_taken_when_its_authority_is_named(
    secured_broker: SecuredBroker, tmp_path: Path
) -> None:
    stranger = tmp_path / "stranger.pem"
    stranger.write_text(Authority("a stranger").certificate)
    error = failure(scram(secured_broker, ssl_ca_location=str(stranger)), describe)
    check(error, "signed by an authority that this client does not trust", "ssl.ca.location")
    right = scram(secured_broker, ssl_ca_location=str(secured_broker.authority_file))
    assert isinstance(failure(right, describe), AccessDeniedError)
