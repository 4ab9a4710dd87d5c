from __future__ import annotations

import pickle

import pytest

from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.kafka.configuration.client_settings import ENGINE_OWNED, check_client_settings
from airflow_kstreams.kafka.configuration.known_settings import KNOWN_SETTINGS
from airflow_kstreams.kafka.configuration.secrets import redact
from airflow_kstreams.streams.errors import ConfigError

pytestmark = pytest.mark.promise("owned-settings-are-refused")

BROKER = {"bootstrap.servers": "127.0.0.1:1"}
SECRETS = {
    "sasl.password": "canary-1",
    "ssl.key.password": "canary-2",
    "ssl.key.pem": "canary-3",
    "sasl.jaas.config": "canary-4",
    "sasl.oauthbearer.config": "canary-5",
    "sasl.oauthbearer.client.secret": "canary-6",
    "basic.auth.user.info": "canary-7",
    "ssl.keystore.password": "canary-8",
    "sasl.oauthbearer.assertion.private.key.passphrase": "canary-9",
    "some.token": "canary-10",
}


def test_numbers_and_booleans_become_text_when_settings_are_checked() -> None:
    checked = check_client_settings({**BROKER, "linger.ms": 5, "socket.keepalive.enable": True})
    assert checked == {**BROKER, "linger.ms": "5", "socket.keepalive.enable": "true"}


@pytest.mark.promise("misspelt-settings-are-refused")
def test_setting_is_refused_with_the_nearest_name_when_it_is_unknown() -> None:
    with pytest.raises(ConfigError, match=r"unknown client setting 'lingr.ms'") as caught:
        check_client_settings({**BROKER, "lingr.ms": "5"})
    assert caught.value.fix == "did you mean 'linger.ms'?"


@pytest.mark.parametrize(
    "name",
    # What would undo the protocol, by the client's manual and not by the package's own list.
    [
        "acks",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "isolation.level",
        "partitioner",
        "transaction.timeout.ms",
        "transactional.id",
    ],
)
def test_setting_is_refused_when_it_would_undo_the_protocol(name: str) -> None:
    with pytest.raises(ConfigError, match="owned by the engine"):
        check_client_settings({**BROKER, name: "x"})


@pytest.mark.parametrize("name", sorted(ENGINE_OWNED))
def test_setting_is_refused_with_a_way_out_when_the_engine_owns_it(name: str) -> None:
    with pytest.raises(ConfigError, match="owned by the engine") as caught:
        check_client_settings({**BROKER, name: "x"})
    assert caught.value.fix


def test_application_setting_is_refused_when_it_stands_among_client_settings() -> None:
    with pytest.raises(ConfigError, match=r"'commit.interval.ms' is an application setting"):
        check_client_settings({**BROKER, "commit.interval.ms": 5})


@pytest.mark.parametrize("name", ["plugin.library.paths", "ssl.engine.location", "sasl.kerberos.kinit.cmd"])
def test_setting_is_refused_when_it_runs_code(name: str) -> None:
    with pytest.raises(ConfigError, match="runs code"):
        check_client_settings({**BROKER, name: "/tmp/x.so"})


@pytest.mark.parametrize("config", [{}, {"bootstrap.servers": " "}])
def test_settings_are_refused_when_the_broker_is_missing(config: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        check_client_settings(config)


def test_value_is_refused_when_the_client_cannot_use_it() -> None:
    with pytest.raises(ConfigError, match="compression"):
        check_client_settings({**BROKER, "compression.type": "zip"})
    with pytest.raises(ConfigError, match="must be text"):
        check_client_settings({**BROKER, "client.id": print})


def test_secret_is_not_shown_when_the_client_repeats_a_refused_value() -> None:
    with pytest.raises(ConfigError) as caught:
        check_client_settings({**BROKER, "ssl.key.pem": "canary", "security.protocol": "canary"})
    assert "canary" not in str(caught.value)


def test_secrets_are_hidden_when_settings_are_shown() -> None:
    shown = redact({**BROKER, **SECRETS, "sasl.username": "alice"})
    assert "canary" not in str(shown)
    assert shown["sasl.username"] == "alice"
    assert shown["bootstrap.servers"] == "127.0.0.1:1"


def test_every_hinted_name_exists_when_the_client_is_asked() -> None:
    # Each probe stops at the sentinel or at the value: what it must not say is that the name is unknown.
    for name in KNOWN_SETTINGS:
        if name in ENGINE_OWNED or name == "plugin.library.paths":
            continue
        try:
            check_client_settings({**BROKER, name: "1"})
        except ConfigError as error:
            assert "unknown" not in error.cause, name


def test_cluster_survives_pickling_and_hides_secrets_when_shown() -> None:
    cluster = KafkaCluster({**BROKER, "sasl.password": "canary"})
    copy = pickle.loads(pickle.dumps(cluster))
    assert "canary" not in repr(cluster)
    assert repr(copy) == repr(cluster)
    assert copy.bootstrap == "127.0.0.1:1"


@pytest.mark.remedy("client_settings._refuse_unencodable")
@pytest.mark.parametrize("setting", [{"client.id": "a\ud800"}, {"client.id\ud800": "a"}])
def test_setting_is_refused_when_the_client_library_would_end_the_process(setting: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="half a character"):
        check_client_settings({"bootstrap.servers": "kafka:9092", **setting})
    assert check_client_settings({"bootstrap.servers": "kafka:9092", "client.id": "a\U0001f600"})
