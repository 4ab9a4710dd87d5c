"""Secret values in reprs, in tracebacks with local variables, and in the words of the client library."""

from __future__ import annotations

import base64
import io
import json
import logging
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from airflow.sdk import Connection
from rich.console import Console
from rich.traceback import Traceback

from airflow_kstreams.hooks.kafka import checked_settings, secrets_of, settings_in
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.kafka.configuration.client_settings import check_client_settings
from airflow_kstreams.kafka.configuration.config_file import read_client_config
from airflow_kstreams.kafka.configuration.secrets import is_secret, redact, sealed, without_secrets
from airflow_kstreams.kafka.events import ClientEvents
from airflow_kstreams.spark.executor.machine_files import ClientSettings
from airflow_kstreams.streams.errors import ConfigError, KStreamsError
from airflow_kstreams.streams.secret_texts import Secret
from airflow_kstreams.streams.settings import ApplicationSettings

pytestmark = pytest.mark.promise("no-secret-is-seen")

SECRET_SETTINGS = (
    "sasl.password",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
    "ssl.truststore.password",
    "ssl.keystore.key",
    "sasl.jaas.config",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "basic.auth.user.info",
    "schema.registry.basic.auth.user.info",
    "schema.registry.bearer.auth.token",
    "schema.registry.bearer.auth.client.secret",
    "schema.registry.ssl.key.password",
    "schema.registry.proxy",
    "aws.secret.access.key",
    "aws_access_key_id",
    "api.key",
)
LONG = "canary" * 100


@pytest.mark.parametrize("name", SECRET_SETTINGS)
def test_value_has_no_repr_when_the_setting_is_secret(name: str) -> None:
    assert is_secret(name)
    config = sealed({name: LONG, "client.id": "shown"})
    assert "canary" not in repr(config)
    assert "shown" in repr(config)
    assert config[name] == LONG
    assert json.loads(json.dumps(config))[name] == LONG
    assert "canary" not in repr(pickle.loads(pickle.dumps(config)))


@pytest.mark.parametrize("name", ["sasl.oauthbearer.token.endpoint.url", "sasl.username", "ssl.ca.location"])
def test_value_is_shown_when_the_setting_is_no_secret(name: str) -> None:
    assert not is_secret(name)


URL_SETTINGS = (
    "sasl.oauthbearer.token.endpoint.url",
    "schema.registry.bearer.auth.issuer.endpoint.url",
    "schema.registry.proxy",
    "bootstrap.servers",
    "client.id",
)
HIDING_URLS = (
    "https://canary-user:canary-word@login.example:8443/token?key=canary-key&x=1",
    "https://canary-user@login.example/token",
    "https://login.example/token?canary-query",
    "https://canary:canary/canary?canary@login.example/token",
    "https://a.example, https://canary-user:canary-word@b.example",
)


@pytest.mark.parametrize("url", HIDING_URLS)
@pytest.mark.parametrize("name", URL_SETTINGS)
def test_user_password_and_query_are_hidden_when_a_setting_is_a_url(name: str, url: str) -> None:
    config = sealed({name: url})
    shown = f"{config!r} {redact(config)!r} {KafkaCluster.__name__}"
    said = without_secrets(f"cannot resolve {url}: canary-word, key=canary-key, user canary-user", config)
    assert "canary" not in shown
    assert "https://" in redact({"x.url": url})["x.url"]
    for part in ("canary-user", "canary-word", "canary-key", "canary-query"):
        assert part not in said or part not in url
    assert any("canary" in secret for secret in secrets_of(config))


def test_url_is_shown_when_it_hides_nothing() -> None:
    plain = {"sasl.oauthbearer.token.endpoint.url": "https://login.example/token"}
    assert redact(sealed(plain)) == plain
    assert "https://login.example/token" in repr(sealed(plain))
    assert without_secrets("https://login.example/token", plain) == "https://login.example/token"


@pytest.mark.parametrize("around", ["", "alice:", "x", "ab"])
@pytest.mark.parametrize("secret", ["canary", "c@n/ry+w?rd", "pässwort"])
def test_text_holds_no_secret_when_a_server_repeats_it_in_another_form(secret: str, around: str) -> None:
    config = {"sasl.password": secret}
    encoded = base64.b64encode(f"{around}{secret}".encode()).decode()
    beside = base64.b64encode(f"{around}{secret}:more".encode()).decode()
    url_safe = base64.urlsafe_b64encode(f"{around}{secret}".encode()).decode()
    for form in (
        secret,
        encoded,
        encoded.rstrip("="),
        beside,
        url_safe,
        quote_plus(secret),
        json.dumps(secret),
    ):
        said = without_secrets(f"refused: {form}", config)
        assert "***" in said
        assert form not in said


def test_password_is_hidden_alone_when_the_setting_holds_name_and_password() -> None:
    config = {"basic.auth.user.info": "alice:canary"}
    assert without_secrets("no user alice with canary", config) == "no user alice with ***"
    header = "Basic " + base64.b64encode(b"alice:canary").decode()
    assert without_secrets(header, config) == "Basic ***"


def test_text_is_itself_when_a_secret_is_used() -> None:
    secret = Secret("canary")
    assert (str(secret), f"{secret}", secret.encode()) == ("canary", "canary", b"canary")
    assert (repr(secret), repr(secret[:3]), f"{secret!r}") == ("***", "***", "***")


BROKER = {"bootstrap.servers": "127.0.0.1:1"}
QUICK = ApplicationSettings.parse("app", {"client.timeout.ms": 1_000})


def _written(folder: Path, text: str) -> str:
    path = folder / "client.json"
    path.write_text(text)
    return str(path)


def _connection(extra: str) -> Connection:
    return Connection(conn_id="k", conn_type="kafka", extra=extra, password="canary-of-form")


def _hook(extra: str) -> object:
    return checked_settings(settings_in(_connection(extra)), conn_id="k")


WITH_SECRET = {**BROKER, "sasl.password": LONG}
FAILURES: dict[str, Callable[[Path], object]] = {
    "misspelt name": lambda _: KafkaCluster(sealed({**WITH_SECRET, "lingr.ms": "1"})),
    "refused value": lambda _: KafkaCluster(sealed({**WITH_SECRET, "security.protocol": "x"})),
    "bad key": lambda _: KafkaCluster(
        sealed({**BROKER, "security.protocol": "ssl", "ssl.key.pem": LONG})
    ).reader(group_id="g"),
    "nobody listens": lambda _: (
        KafkaCluster(sealed(WITH_SECRET), settings=QUICK).writer(transactional_id=None).flush()
    ),
    "Java's setting": lambda _: check_client_settings(sealed({**BROKER, "sasl.jaas.config": LONG})),
    "runs code": lambda _: check_client_settings(sealed({**WITH_SECRET, "ssl.providers": "x"})),
    "extra is no JSON": lambda _: _hook('{"sasl.password": "' + LONG),
    "extra is no object": lambda _: _hook(json.dumps([LONG])),
    "extra is wrong": lambda _: _hook(json.dumps({**WITH_SECRET, "group.id": "g"})),
    "file of an executor is no JSON": lambda folder: ClientSettings(
        path=_written(folder, '{"a": "' + LONG)
    ).read(),
    "file is no JSON": lambda folder: read_client_config(_written(folder, '{"a": "' + LONG)),
    "properties are Java's": lambda folder: read_client_config(
        _written(folder, f"ssl.truststore.password={LONG}\n")
    ),
    "properties have no value": lambda folder: read_client_config(_written(folder, f"sasl.password{LONG}\n")),
}


@pytest.mark.parametrize("failing", FAILURES)
def test_no_secret_is_in_a_traceback_with_all_local_variables_when_something_fails(
    failing: str, tmp_path: Path
) -> None:
    with pytest.raises(KStreamsError) as caught:
        FAILURES[failing](tmp_path)
    error = caught.value
    # This test's own frame shows the table of cases.
    assert error.__traceback__ is not None
    frames: Any = error.__traceback__.tb_next
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    shown = io.StringIO()
    Console(file=shown, width=10_000).print(
        Traceback.from_exception(
            type(error),
            error.with_traceback(frames),
            frames,
            show_locals=True,
            locals_max_string=10_000,
            locals_max_length=10_000,
        )
    )
    text = shown.getvalue() + "".join(traceback.format_exception(error)) + repr(error) + repr(error.__dict__)
    assert "locals" in text
    assert "canary" not in text
    assert "canary" not in str(pickle.dumps(error))


def test_client_librarys_words_are_cleaned_when_they_repeat_a_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "airflow_kstreams.kafka.client")
    events = ClientEvents(sealed({"sasl.password": "canary"}))
    events.log(logging.DEBUG, "%s [%s] %s", "CONF", "rdkafka#1", "sasl.password = canary")
    events.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#1", "no luck with canary")
    assert "canary" not in caplog.text + events.last_error
    assert "sasl.password = ***" in caplog.text


@pytest.mark.promise("java-settings-are-named")
def test_settings_of_java_are_refused_with_the_name_to_use_when_given_by_mistake() -> None:
    for name, fix in {
        "sasl.jaas.config": "sasl.username",
        "ssl.truststore.location": "ssl.ca.location",
        "ssl.keystore.type": "PKCS#12",
        "basic.auth.user.info": "schema.registry.basic.auth.user.info",
        "schema.registry.ssl.truststore.location": "schema.registry.ssl.ca.location",
    }.items():
        with pytest.raises(ConfigError, match="only Java's clients know") as caught:
            check_client_settings({**BROKER, name: "canary"})
        assert fix in caught.value.fix
        assert "canary" not in str(caught.value)
