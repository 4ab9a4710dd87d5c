from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import NoReturn

import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_kstreams.kafka.client_errors import guarded, kafka_error_of
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError


def raising(error: BaseException) -> KafkaClientError:
    def call() -> NoReturn:
        raise error

    with pytest.raises(KafkaClientError) as caught:
        guarded("reading", "broker:9092", call)
    return caught.value


def client_error(code: int, text: str = "some\n text") -> KafkaException:
    return KafkaException(KafkaError(code, text))


@pytest.mark.parametrize(
    "code", [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE]
)
def test_error_says_unreachable_and_retriable_when_no_broker_answers(code: int) -> None:
    error = raising(client_error(code))
    assert error.cause == "broker unreachable at broker:9092: reading: some text"
    assert error.is_retriable
    assert "bootstrap.servers" in error.fix


@pytest.mark.promise("wrong-logins-are-final")
@pytest.mark.parametrize(
    "code", [KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL]
)
def test_error_says_wrong_credentials_and_is_final_when_the_broker_refuses_them(code: int) -> None:
    error = raising(client_error(code))
    assert "refused the credentials" in error.cause
    assert not error.is_retriable


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "no such topic"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "not authorized"),
        (KafkaError._AUTO_OFFSET_RESET, "not in the log"),
        (KafkaError.OFFSET_OUT_OF_RANGE, "not in the log"),
        (KafkaError._FENCED, "fenced"),
        (KafkaError.INVALID_PRODUCER_EPOCH, "fenced"),
    ],
)
def test_error_says_what_happened_when_a_retry_cannot_help(code: int, text: str) -> None:
    error = raising(client_error(code))
    assert text in error.cause
    assert "\n" not in error.cause
    assert error.fix
    assert not error.is_retriable


@pytest.mark.parametrize("code", [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS])
def test_error_is_retriable_when_the_broker_is_only_busy(code: int) -> None:
    assert raising(client_error(code)).is_retriable


def test_error_of_any_other_kind_is_converted_when_the_client_raises_it() -> None:
    assert raising(RuntimeError("Consumer closed")).kafka_code == "RuntimeError"


class Client:
    """A client that was closed meanwhile, as the first try finds it."""

    tries = 0

    def read(self) -> str:
        Client.tries += 1
        if Client.tries == 1:
            raise RuntimeError("Consumer closed")
        return "read"


@pytest.mark.remedy("client_errors.convert")
def test_call_succeeds_when_it_is_made_again_as_the_error_says() -> None:
    with pytest.raises(KafkaClientError, match="Consumer closed"):
        guarded("reading", "broker:9092", Client().read)
    assert guarded("reading", "broker:9092", Client().read) == "read"


def log_in(settings: Mapping[str, str]) -> str:
    """Log in at a broker that takes tokens alone."""
    if settings.get("sasl.mechanism") != "OAUTHBEARER" or "oauth_cb" not in settings:
        raise client_error(KafkaError.SASL_AUTHENTICATION_FAILED, '{"status":"invalid_token"}')
    return "welcome"


@pytest.mark.remedy("client_errors.wrong_credentials: correct")
def test_login_succeeds_when_what_its_mechanism_takes_is_corrected() -> None:
    settings = {"security.protocol": "SASL_SSL"}
    with pytest.raises(KafkaClientError, match="invalid_token"):
        guarded("connecting", "broker:9092", log_in, settings)
    told = settings | {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": "package.module.token"}
    assert guarded("connecting", "broker:9092", log_in, told) == "welcome"


def test_error_survives_pickling_when_it_crosses_processes() -> None:
    error = raising(client_error(KafkaError._TRANSPORT))
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.kafka_code, copy.is_retriable) == (str(error), "_TRANSPORT", True)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), ConfigError("ours")])
def test_error_passes_unharmed_when_it_is_not_the_clients(error: BaseException) -> None:
    def call() -> NoReturn:
        raise error

    with pytest.raises(type(error)) as caught:
        guarded("reading", "broker:9092", call)
    assert caught.value is error


def test_error_object_is_found_when_it_comes_bare_or_wrapped() -> None:
    bare = KafkaError(KafkaError._FENCED, "x")
    assert not isinstance(bare, BaseException)
    assert kafka_error_of(bare) is bare
    assert kafka_error_of(KafkaException(bare)) is bare
    assert kafka_error_of(ValueError("x")) is None
