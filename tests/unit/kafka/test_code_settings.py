from __future__ import annotations

import json
import re

import pytest

from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.kafka.configuration.client_settings import ENGINE_OWNED, check_client_settings
from airflow_kstreams.kafka.configuration.code_settings import (
    ALLOWED_VARIABLE,
    RUNS_CODE,
    SENDS,
    AllowedSettings,
    with_callback,
)
from airflow_kstreams.kafka.configuration.known_settings import KNOWN_SETTINGS, REGISTRY_SETTINGS
from airflow_kstreams.streams.errors import ConfigError

pytestmark = pytest.mark.promise("settings-that-run-code-are-refused", "drivers-list-holds")

BROKER = {"bootstrap.servers": "127.0.0.1:1"}
KINIT = "sasl.kerberos.kinit.cmd"


def token(_: str) -> tuple[str, float]:
    return "token", 0.0


@pytest.mark.parametrize(
    "name",
    # From the manual of librdkafka, not from the package's own list.
    [
        "plugin.library.paths",
        "ssl.engine.location",
        "ssl.engine.id",
        "ssl.providers",
        "sasl.kerberos.kinit.cmd",
        "oauth_cb",
    ],
)
def test_setting_is_refused_when_the_clients_manual_says_that_it_loads_or_runs_something(name: str) -> None:
    with pytest.raises(ConfigError, match="runs code"):
        check_client_settings({**BROKER, name: "canary"})


AZURE, CLOUD = (
    "sasl.oauthbearer.metadata.authentication.type",
    "schema.registry.bearer.auth.credentials.source",
)
#: From the manuals of librdkafka and of the registry's client: each setting that names a file, a folder, a
#: program, an address or a source of identity, and whether it is refused.
DECIDED = {
    "bootstrap.servers": "data",
    "metadata.broker.list": "data",
    "https.ca.location": "data",
    "offset.store.method": "owned",
    "offset.store.path": "owned",
    "offset.store.sync.interval.ms": "owned",
    "plugin.library.paths": "refused",
    "sasl.kerberos.keytab": "data",
    "sasl.kerberos.kinit.cmd": "refused",
    "sasl.oauthbearer.assertion.file": "refused",
    "sasl.oauthbearer.assertion.jwt.template.file": "refused",
    "sasl.oauthbearer.assertion.private.key.file": "refused",
    AZURE: "refused",
    "sasl.oauthbearer.token.endpoint.url": "refused",
    "ssl.ca.location": "data",
    "ssl.ca.certificate.stores": "data",
    "ssl.certificate.location": "data",
    "ssl.crl.location": "data",
    "ssl.endpoint.identification.algorithm": "data",
    "ssl.engine.id": "refused",
    "ssl.engine.location": "refused",
    "ssl.key.location": "data",
    "ssl.keystore.location": "data",
    "ssl.keystore.password": "data",
    "ssl.providers": "refused",
    CLOUD: "refused",
    "schema.registry.url": "data",
    "schema.registry.proxy": "data",
    "schema.registry.bearer.auth.issuer.endpoint.url": "refused",
    "schema.registry.bearer.auth.issuer.endpoint.query": "data",
    "schema.registry.ssl.ca.location": "data",
    "schema.registry.ssl.certificate.location": "data",
    "schema.registry.ssl.key.location": "data",
}
_NAMES_SOMETHING = re.compile(
    r"location|path|\bfile|url|\bcmd|librar|engine|provider|keytab|endpoint|authentication|source|store|proxy|servers"
    r"|broker\.list"
)


@pytest.mark.promise("settings-that-send-files-are-refused")
def test_every_setting_that_names_something_of_the_machine_is_decided() -> None:
    registry = (f"schema.registry.{name}" for kind in REGISTRY_SETTINGS.values() for name in kind)
    found = {name for name in (*KNOWN_SETTINGS, *registry) if _NAMES_SOMETHING.search(name)}
    assert found - {"enable.auto.offset.store"} == DECIDED.keys()
    refused = {name for name, decided in DECIDED.items() if decided == "refused"}
    assert refused == {*RUNS_CODE, *SENDS} - {"oauth_cb"}
    assert {name for name, decided in DECIDED.items() if decided == "owned"} <= ENGINE_OWNED.keys()


@pytest.mark.promise("settings-that-send-files-are-refused")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.oauthbearer.assertion.file", "/etc/canary"),
        ("sasl.oauthbearer.assertion.jwt.template.file", "/etc/canary"),
        ("sasl.oauthbearer.assertion.private.key.file", "/etc/canary"),
        (AZURE, "azure_imds"),
        ("sasl.oauthbearer.token.endpoint.url", "http://169.254.169.254/canary"),
        (CLOUD, "OAUTHBEARER_AZURE_IMDS"),
        ("schema.registry.bearer.auth.issuer.endpoint.url", "http://169.254.169.254/canary"),
    ],
)
def test_setting_is_refused_when_the_clients_manual_says_that_it_sends_what_is_the_machines(
    name: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=rf"'{re.escape(name)}' (sends|signs) .* and is refused") as caught:
        check_client_settings({**BROKER, name: value})
    assert "canary" not in str(caught.value)
    assert "[kstreams] allowed_client_settings" in caught.value.fix
    for allowed in (name, json.dumps({name: value})):
        assert check_client_settings({**BROKER, name: value}, allowed=AllowedSettings.parse(allowed))


@pytest.mark.promise("settings-that-send-files-are-refused")
def test_identity_of_the_machine_is_refused_when_a_package_of_the_client_would_send_it() -> None:
    wanted = {**BROKER, AZURE: "aws_iam", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(ConfigError, match="sends a token that this machine's cloud gives it and is refused"):
        check_client_settings(wanted)
    with pytest.raises(ConfigError, match="the Kafka client refuses a setting"):
        check_client_settings(wanted, allowed=AllowedSettings.parse(AZURE))


@pytest.mark.promise("settings-that-send-files-are-refused")
@pytest.mark.parametrize(
    ("name", "value"), [(AZURE, "none"), (CLOUD, "STATIC_TOKEN"), (CLOUD, "OAUTHBEARER")]
)
def test_setting_is_taken_when_its_value_sends_nothing_of_the_machines(name: str, value: str) -> None:
    assert check_client_settings({**BROKER, name: value})[name] == value


@pytest.mark.parametrize("name", RUNS_CODE)
def test_setting_is_refused_with_the_administrators_way_out_when_it_runs_code(name: str) -> None:
    with pytest.raises(ConfigError, match="runs code") as caught:
        check_client_settings({**BROKER, name: "canary"})
    assert "[kstreams] allowed_client_settings" in caught.value.fix
    assert ALLOWED_VARIABLE in caught.value.fix
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "error_cb",
        "stats_cb",
        "throttle_cb",
        "log_cb",
        "ssl.certificate.verify_cb",
        "logger",
        "on_commit",
        "on_delivery",
        "ssl_engine_callback_data",
        "sasl.login.callback.handler.class",
        "sasl.client.callback.handler.class",
        "ssl.engine.factory.class",
        "interceptor.classes",
        "metric.reporters",
        "security.providers",
        "key.serializer",
    ],
)
def test_setting_is_refused_even_if_allowed_when_it_names_a_callback_or_class(name: str) -> None:
    with pytest.raises(ConfigError, match="names code to run") as caught:
        check_client_settings({**BROKER, name: "os.system"})
    assert "os.system" not in str(caught.value)
    with pytest.raises(ConfigError, match="is allowed anyway or cannot be allowed"):
        AllowedSettings.parse(name)


@pytest.mark.parametrize(
    "name", ["sasl.kerberos.principal", "sasl.kerberos.keytab", "sasl.kerberos.service.name"]
)
@pytest.mark.parametrize(
    "value", ["x; touch /tmp/owned", "$(id)", "`id`", "a b", "a\nb", "a|b", "a&b", "a'b"]
)
def test_setting_is_refused_when_it_would_break_out_of_the_clients_shell_command(
    name: str, value: str
) -> None:
    with pytest.raises(ConfigError, match="mean something to a shell") as caught:
        check_client_settings({**BROKER, name: value})
    assert value not in str(caught.value)
    assert check_client_settings({**BROKER, name: "kafka/host.example@REALM"})


def test_setting_is_accepted_when_the_environment_of_the_process_allows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(ALLOWED_VARIABLE, f"ssl.providers, {KINIT}")
    assert check_client_settings({**BROKER, KINIT: "anything"})[KINIT] == "anything"


def test_only_the_pinned_value_is_accepted_when_the_administrator_names_one() -> None:
    allowed = AllowedSettings.parse(json.dumps({KINIT: "kinit -k", "ssl.providers": None}))
    assert check_client_settings({**BROKER, KINIT: "kinit -k"}, allowed=allowed)
    assert check_client_settings({**BROKER, "ssl.providers": "default"}, allowed=allowed)
    with pytest.raises(ConfigError, match="another value of it is allowed"):
        check_client_settings({**BROKER, KINIT: "kinit -k; id"}, allowed=allowed)
    with pytest.raises(ConfigError, match="it is not allowed here"):
        check_client_settings({**BROKER, "plugin.library.paths": "x"}, allowed=allowed)


@pytest.mark.parametrize("text", ["", f"{KINIT},ssl.providers", json.dumps({KINIT: "kinit -k, -t"})])
def test_list_is_the_same_when_it_travels_to_the_executors(text: str) -> None:
    allowed = AllowedSettings.parse(text)
    assert AllowedSettings.parse(allowed.to_text()) == allowed


@pytest.mark.parametrize("text", ["sasl.password", "{not json", "group.id,ssl.providers"])
def test_list_is_refused_when_it_cannot_be_one(text: str) -> None:
    with pytest.raises(ConfigError, match="allowed_client_settings"):
        AllowedSettings.parse(text)


def test_token_callback_is_a_function_when_a_client_is_made() -> None:
    allowed = AllowedSettings.parse("oauth_cb")
    named = {**BROKER, "oauth_cb": f"{__name__}.token"}
    assert KafkaCluster(named, allowed=allowed).bootstrap == "127.0.0.1:1"
    checked = check_client_settings(named, allowed=allowed)
    assert with_callback(checked)["oauth_cb"] is token
    with pytest.raises(ConfigError, match="cannot be imported"):
        with_callback({**BROKER, "oauth_cb": "no_such_module.token"})
