"""Client settings of which the doctor warns."""

from __future__ import annotations

import pytest

from airflow_kstreams.kafka.configuration.weak_settings import weaknesses
from tests.support.remedies import walked

pytestmark = pytest.mark.promise("weak-settings-are-found")
TLS = {"bootstrap.servers": "kafka-1:9093,kafka-2:9093", "security.protocol": "SASL_SSL"}
OPEN = {"security.protocol": "sasl_plaintext"}
REGISTRY = {
    "schema.registry.url": "http://registry:8081",
    "schema.registry.basic.auth.user.info": "a:canary-1",
}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"enable.ssl.certificate.verification": "false"}, "enable.ssl.certificate.verification=false: any"),
        ({"enable.ssl.certificate.verification": False}, "enable.ssl.certificate.verification=false: any"),
        (
            {"ssl.endpoint.identification.algorithm": "none"},
            "ssl.endpoint.identification.algorithm=none: any",
        ),
        (OPEN | {"sasl.mechanism": "PLAIN"}, "SASL_PLAINTEXT with PLAIN: the password can be read"),
        (OPEN | {"sasl.mechanisms": "SCRAM-SHA-512"}, "SASL_PLAINTEXT with SCRAM-SHA-512: the password"),
        (OPEN | {"sasl.mechanism": "OAUTHBEARER"}, "the token can be read"),
        (REGISTRY, "schema.registry.url is http:// at registry: the login by schema.registry.basic"),
        (
            {
                "schema.registry.url": "https://a, http://b:81",
                "schema.registry.bearer.auth.token": "canary-1",
            },
            "schema.registry.url is http:// at b: the login by schema.registry.bearer.auth.token",
        ),
        (
            {
                "sasl.oauthbearer.token.endpoint.url": "http://alice:canary-1@login/token",
                "sasl.oauthbearer.client.secret": "canary-1",
            },
            "sasl.oauthbearer.token.endpoint.url is http:// at login",
        ),
    ],
)
def test_setting_is_named_when_it_weakens_a_connection(settings: dict[str, object], named: str) -> None:
    (weakness,) = weaknesses(TLS | settings)
    assert named in weakness.text
    assert weakness.fix
    assert "canary" not in weakness.text + weakness.fix


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"security.protocol": "PLAINTEXT", "enable.ssl.certificate.verification": "false"},
        OPEN | {"sasl.mechanism": "GSSAPI"},
        {"schema.registry.url": "http://registry:8081"},
        REGISTRY | {"schema.registry.url": "https://registry:8081"},
        REGISTRY | {"schema.registry.url": "http://127.0.0.1:8081"},
        OPEN | {"bootstrap.servers": "localhost:9092,127.0.0.2:9092,[::1]:9092", "sasl.mechanism": "PLAIN"},
    ],
)
def test_nothing_is_said_of_what_is_verified_or_stays_on_the_machine(settings: dict[str, object]) -> None:
    assert not list(weaknesses(TLS | settings))


def test_brokers_count_when_one_of_them_is_on_another_machine() -> None:
    settings = OPEN | {"bootstrap.servers": "localhost:9092,kafka-1", "sasl.mechanism": "PLAIN"}
    assert len(list(weaknesses(settings))) == 1


@pytest.mark.parametrize(
    ("settings", "mended"),
    [
        walked(
            "weak_settings._of_brokers: remove the setting; ssl.ca.location",
            {"enable.ssl.certificate.verification": "false"},
            {"ssl.ca.location": "/etc/kafka/ca.pem"},
        ),
        walked(
            "weak_settings._of_brokers: remove the setting, and name the brokers",
            {"ssl.endpoint.identification.algorithm": "none"},
            {"bootstrap.servers": "kafka-1.example:9093"},
        ),
        walked(
            "weak_settings._of_brokers: set security.protocol=SASL_SSL",
            OPEN | {"sasl.mechanism": "PLAIN"},
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
        ),
        walked(
            "weak_settings._of_addresses",
            REGISTRY,
            REGISTRY | {"schema.registry.url": "https://registry:8081"},
        ),
    ],
)
def test_nothing_is_found_when_the_remedy_is_followed(
    settings: dict[str, object], mended: dict[str, object]
) -> None:
    assert list(weaknesses(TLS | settings))
    assert not list(weaknesses(TLS | mended))
