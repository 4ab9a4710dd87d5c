"""A registry's answers over HTTP, and none: what becomes of each, through the real client."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import threading
import traceback
from collections.abc import Iterator
from resource import RUSAGE_SELF, getrusage
from typing import Any

import pytest

from airflow_kstreams.kafka import schema_registry
from airflow_kstreams.kafka.schema_registry import SchemaRegistry
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import (
    ConfigError,
    KStreamsError,
    RecordError,
    SchemaRegistryUnavailableError,
)
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.kafka.registries import FLIGHT, avro_string, framed, zigzag
from tests.support.kafka.registry_server import Answers, endless_server, registry_server
from tests.support.remedies import walked

USER, PASSWORD = "alice", "canary-password"
UA_12 = avro_string("UA") + zigzag(12)


@pytest.fixture
def answers() -> Iterator[Answers]:
    with registry_server() as told:
        schema_registry.configure(
            {
                "schema.registry.url": told.url,
                "schema.registry.basic.auth.user.info": f"{USER}:{PASSWORD}",
                "schema.registry.max.retries": "0",
            }
        )
        yield told
        schema_registry.configure({})


def flights() -> Serde:
    return SchemaRegistry().avro(FLIGHT).bound("flights", "value")


REGISTER = ("POST", "/subjects/flights-value/versions")
SCHEMA_5 = ("GET", "/schemas/ids/5")


def test_registry_is_asked_once_with_the_credentials_when_many_records_are_written_and_read(
    answers: Answers,
) -> None:
    answers.by_request[REGISTER] = (200, {"id": 5, "version": 1, "schema": FLIGHT})
    answers.by_request[SCHEMA_5] = (200, {"schema": FLIGHT})
    serde = flights()

    assert {serde.serialize({"carrier": "UA", "delay": 12}) for _ in range(10)} == {framed(5, UA_12)}
    read = flights()
    assert [read.deserialize(framed(5, UA_12)) for _ in range(10)] == [{"carrier": "UA", "delay": 12}] * 10

    credentials = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    assert answers.asked[0] == (*REGISTER, credentials)
    assert len(answers.asked) <= 2


@pytest.mark.parametrize("how", ["closed", "left"])
def test_other_users_of_a_client_work_on_when_one_of_them_has_closed_it(answers: Answers, how: str) -> None:
    answers.by_request[REGISTER] = (200, {"id": 5, "version": 1, "schema": FLIGHT})
    answers.by_request["GET", "/schemas/ids/6"] = (200, {"schema": FLIGHT})
    read = flights()
    assert flights().serialize({"carrier": "UA", "delay": 12}) == framed(5, UA_12)
    client: Any = SchemaRegistry().client()
    if how == "closed":
        client.close()
    else:
        with client as entered:
            assert entered is client
    assert read.deserialize(framed(6, UA_12)) == {"carrier": "UA", "delay": 12}


def test_credentials_stay_here_when_the_topology_names_another_registry(answers: Answers) -> None:
    schema_registry.configure(
        {
            "schema.registry.url": "https://registry.invalid",
            "schema.registry.basic.auth.user.info": f"{USER}:{PASSWORD}",
        }
    )
    answers.by_request[REGISTER] = (200, {"id": 5, "version": 1, "schema": FLIGHT})
    registry = SchemaRegistry(answers.url)
    registry.avro(FLIGHT).bound("flights", "value").serialize({"carrier": "UA"})
    assert answers.asked == [(*REGISTER, "")]


REFUSALS: list[Any] = [
    (401, {"error_code": 401, "message": "Unauthorized"}, ConfigError, "basic.auth.user.info"),
    (403, {"error_code": 40301, "message": "Forbidden"}, ConfigError, "read and write access"),
    (409, {"error_code": 409, "message": "incompatible"}, ConfigError, "so that it is compatible"),
    (422, {"error_code": 42201, "message": "Invalid schema"}, ConfigError, "mend the schema"),
    (404, "<html>Not Found</html>", ConfigError, "correct schema.registry.url"),
    pytest.param(
        500,
        {"error_code": 50001, "message": "backend"},
        SchemaRegistryUnavailableError,
        "then retry",
        marks=pytest.mark.error_example("KS-KAFKA-004"),
    ),
    (503, "<html>Unavailable</html>", SchemaRegistryUnavailableError, "then retry"),
    (429, {"error_code": 42901, "message": "slow down"}, SchemaRegistryUnavailableError, "then retry"),
]


@pytest.mark.parametrize(("status", "body", "error", "fix"), REFUSALS)
def test_no_record_is_at_fault_when_the_registry_refuses_a_schema(
    answers: Answers, status: int, body: Any, error: type[KStreamsError], fix: str
) -> None:
    answers.by_request[REGISTER] = (status, body)
    with pytest.raises(error) as caught:
        flights().serialize({"carrier": "UA"})
    assert fix in caught.value.fix
    assert "for the values of topic 'flights'" in caught.value.cause
    assert caught.value.is_retriable == (error is SchemaRegistryUnavailableError)
    assert PASSWORD not in str(caught.value)
    assert "\n" not in caught.value.cause


CREDENTIALS = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
REGISTERED = (200, {"id": 5, "version": 1, "schema": FLIGHT})


def careful(authorization: str, request: str) -> tuple[int, Any]:
    """Answer as a registry does that knows its users and takes flights with a carrier."""
    if authorization != CREDENTIALS:
        return 401, {"error_code": 401, "message": "Unauthorized"}
    if "carrier" not in request:
        return 409, {"error_code": 409, "message": "incompatible"}
    if "late" in request:  # by a rule of its own
        return 422, {"error_code": 42201, "message": "Invalid schema"}
    return REGISTERED


def nowhere(_: str, __: str) -> tuple[int, Any]:
    """Answer as a web server that is no registry."""
    return 404, "<html>Not Found</html>"


ANYWHERE = "http://registry"
HERE = {"url": ANYWHERE, "basic.auth.user.info": f"{USER}:{PASSWORD}"}
ANOTHER = json.dumps({"type": "record", "name": "Flight", "fields": []})
AUTO_OFF = {"auto_register_schemas": False}

#: Settings, schema and options of the fault, what the remedy says, and those that it says.
TOLD: list[Any] = [
    walked(
        "binding.registry_fault: set {}basic", {"url": ANYWHERE}, FLIGHT, {}, "basic.auth.user.info", HERE
    ),
    walked(
        "binding.registry_fault: check", {**HERE, "url": "closed"}, FLIGHT, {}, "schema.registry.url", HERE
    ),
    walked("binding.registry_fault: {_remedy}", HERE, ANOTHER, {}, "change the schema so that it is", HERE),
    *(
        pytest.param(*case, HERE, marks=pytest.mark.remedy("binding.registry_fault: {_remedy}"))
        for case in (
            ({**HERE, "url": "elsewhere"}, FLIGHT, {}, "correct schema.registry.url"),
            (
                HERE,
                FLIGHT.replace("delay", "late"),
                {},
                "mend the schema; the registry says",
            ),
            (HERE, FLIGHT, AUTO_OFF, "or leave auto_register_schemas on"),
        )
    ),
]


@pytest.mark.parametrize(("settings", "schema", "options", "fix", "told"), TOLD)
def test_value_is_written_when_the_registry_is_asked_as_the_error_says(
    settings: dict[str, str], schema: str, options: dict[str, Any], fix: str, told: dict[str, str]
) -> None:
    with registry_server() as registry, registry_server() as elsewhere:
        registry.by_request[REGISTER] = careful
        elsewhere.by_request[REGISTER] = nowhere
        urls = {
            ANYWHERE: registry.url,
            "elsewhere": elsewhere.url,
            "closed": f"http://127.0.0.1:{closed_port()}",
        }

        def write(given: dict[str, str], serde: Serde) -> bytes:
            named = {f"schema.registry.{name}": value for name, value in given.items()}
            url = {"schema.registry.url": urls[given["url"]], "schema.registry.max.retries": "0"}
            schema_registry.configure({**named, **url})
            return serde.bound("flights", "value").serialize({"carrier": "UA", "delay": 12})

        with pytest.raises(KStreamsError) as refused:
            write(settings, SchemaRegistry().avro(schema, **options))
        assert fix in refused.value.fix
        assert write(told, SchemaRegistry().avro(FLIGHT)) == framed(5, UA_12)
    schema_registry.configure({})


@pytest.mark.parametrize(
    ("status", "body", "error"), [row[:3] for row in REFUSALS if row[0] not in (409, 422)]
)
def test_no_record_is_at_fault_when_the_registry_does_not_show_a_schema(
    answers: Answers, status: int, body: Any, error: type[KStreamsError]
) -> None:
    answers.by_request[SCHEMA_5] = (status, body)
    with pytest.raises(error, match="for the values of topic 'flights'"):
        flights().deserialize(framed(5, UA_12))


DEEP = "[" * 100_000 + "]" * 100_000
#: What is no answer of a registry, asked for a schema or for the id of one.
NO_ANSWERS: dict[str, Any] = {
    "login page": "<html><form action='/login'></form></html>",
    "nothing": "",
    "list": [],
    "text": '"ok"',
    "number": 7,
    "null": "null",
    "too deep": DEEP,
    "bad text": b"\xff\xfe",
    "another shape": {"status": "ok"},
    "wrong types": {"schema": {"type": "string"}, "id": "5", "version": []},
    "wrong references": {"schema": FLIGHT, "id": True, "references": ["carrier"]},
    "references without subject": {"schema": FLIGHT, "id": -1, "references": [{"name": "carrier"}]},
}
POLICIES = ("skip", "dead-letter")


def _piping(answers: Answers, policy: str) -> TopologyTestDriver:
    """Return a driver whose topology reads flights from one topic and writes them to another."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.bytes())
    flights = SchemaRegistry().avro(FLIGHT)
    builder.stream("in").send_to("raw")
    builder.stream("raw", value_serde=flights).send_to("flights", value_serde=flights)
    names = ("deserialization.exception.handler", "processing.exception.handler")
    return TopologyTestDriver(builder.build(), application_id="app", settings=dict.fromkeys(names, policy))


@pytest.mark.promise("registry-faults-skip-no-record")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("answer", NO_ANSWERS)
@pytest.mark.parametrize("request_", [SCHEMA_5, REGISTER], ids=["read", "write"])
def test_run_may_be_retried_and_no_record_is_passed_when_no_registry_answers(
    answers: Answers, request_: tuple[str, str], answer: str, policy: str
) -> None:
    answers.by_request[SCHEMA_5] = (200, {"schema": FLIGHT})
    answers.by_request[REGISTER] = REGISTERED
    answers.by_request[request_] = (200, NO_ANSWERS[answer])
    driver = _piping(answers, policy)
    with pytest.raises(SchemaRegistryUnavailableError, match="is no schema registry, asked for avro"):
        driver.pipe_input("in", key="1", value=framed(5, UA_12), timestamp_ms=1)
    assert not driver.read_output("flights")

    answers.by_request[SCHEMA_5] = (200, {"schema": FLIGHT})
    answers.by_request[REGISTER] = REGISTERED
    with _piping(answers, policy) as retried:
        retried.pipe_input("in", key="1", value=framed(5, UA_12), timestamp_ms=1)
        [written] = retried.read_output("flights", value_serde=serdes.bytes())
        assert written.value == framed(5, UA_12)


OK = b"HTTP/1.1 200 OK\r\n"
#: Beginning of an answer, what follows without an end, pause before each in seconds, and what the error says.
ENDLESS: dict[str, tuple[bytes, bytes, float, str]] = {
    "slow headers": (OK, b"X: y\r\n", 0.2, "no whole answer within 1 s"),
    "slow body": (OK + b"\r\n", b" ", 0.2, "no whole answer within 1 s"),
    "large body": (OK + b"\r\n", b" " * 100_000, 0.0, "larger than 8 MiB"),
    "announced body": (OK + b"Content-Length: 99999999999\r\n\r\n", b"", 0.2, "larger than 8 MiB"),
    "packed body": (
        OK + b"Content-Encoding: gzip\r\n\r\n",
        gzip.compress(bytes(10_000_000)),
        0.2,
        "in the encoding 'gzip'",
    ),
}


@pytest.mark.promise("registry-answers-are-bounded")
@pytest.mark.parametrize("answer", ENDLESS)
def test_run_may_be_retried_when_an_answer_has_no_end(answer: str) -> None:
    beginning, again, pause_seconds, said = ENDLESS[answer]
    threads = threading.active_count()
    with endless_server(beginning, again, pause_seconds=pause_seconds) as url:
        limits = {"schema.registry.timeout": "1", "schema.registry.max.retries": "0"}
        schema_registry.configure({"schema.registry.url": url, **limits})
        held = getrusage(RUSAGE_SELF).ru_maxrss
        with pytest.raises(SchemaRegistryUnavailableError, match=said) as caught:
            flights().deserialize(framed(5, UA_12))
        assert getrusage(RUSAGE_SELF).ru_maxrss - held < 100_000
    assert caught.value.is_retriable
    assert threading.active_count() == threads
    schema_registry.configure({})


@pytest.mark.remedy("binding.registry_fault: see")
def test_value_is_written_when_the_url_is_the_registrys_own(answers: Answers) -> None:
    answers.by_request[REGISTER] = REGISTERED
    with registry_server() as portal:
        portal.by_request[REGISTER] = (200, NO_ANSWERS["login page"])
        registry = SchemaRegistry(portal.url)
        with pytest.raises(SchemaRegistryUnavailableError) as caught:
            registry.avro(FLIGHT).bound("flights", "value").serialize({"carrier": "UA", "delay": 12})
        registry.client().close()
    assert "see to it that schema.registry.url is the registry's own" in caught.value.fix
    assert flights().serialize({"carrier": "UA", "delay": 12}) == framed(5, UA_12)


def _referring(to: str) -> dict[str, Any]:
    return {"schema": FLIGHT, "references": [{"name": to, "subject": to, "version": 1}]}


def _version(of: str, schema: Any) -> dict[tuple[str, str], tuple[int, Any]]:
    return {("GET", f"/subjects/{of}/versions/1"): (200, {"id": 6, "version": 1, "subject": of, **schema})}


#: Schemas that no record can be read with, and what else the registry has.
BROKEN: dict[str, tuple[dict[str, Any], dict[tuple[str, str], tuple[int, Any]]]] = {
    "no JSON": ({"schema": "{"}, {}),
    "too deep": ({"schema": DEEP}, {}),
    "no schema": ({"schema": '{"type": "nothing"}'}, {}),
    "references in a loop": (
        _referring("a"),
        _version("a", _referring("b")) | _version("b", _referring("a")),
    ),
    "reference to itself": (_referring("a"), _version("a", _referring("a"))),
}


@pytest.mark.promise("registry-faults-skip-no-record")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("broken", BROKEN)
def test_no_record_is_passed_when_its_schema_is_broken(answers: Answers, broken: str, policy: str) -> None:
    schema, others = BROKEN[broken]
    answers.by_request.update({SCHEMA_5: (200, schema), REGISTER: REGISTERED, **others})
    with pytest.raises(ConfigError, match=r"a schema of avro.* for the values of topic 'raw' cannot be used"):
        _piping(answers, policy).pipe_input("in", key="1", value=framed(5, UA_12), timestamp_ms=1)


@pytest.mark.promise("no-secret-is-seen")
@pytest.mark.parametrize("request_", [SCHEMA_5, REGISTER], ids=["read", "write"])
@pytest.mark.parametrize("status", [200, 401, 409, 422, 500])
def test_registrys_words_hold_no_credentials_when_it_repeats_the_request(
    answers: Answers, status: int, request_: tuple[str, str]
) -> None:
    def repeating(authorization: str, _: str) -> tuple[int, Any]:
        secret = authorization.removeprefix("Basic ")
        said = f"{'x' * 280} {authorization} {base64.b64decode(secret).decode()} {secret.rstrip('=')}"
        return status, {"error_code": 42201, "message": said, "schema": json.dumps({"type": said})}

    answers.by_request[request_] = repeating
    with pytest.raises(KStreamsError) as caught:
        if request_ == SCHEMA_5:
            flights().deserialize(framed(5, UA_12))
        else:
            flights().serialize({"carrier": "UA"})
    shown = "".join(traceback.format_exception(caught.value))
    encoded = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    for secret in (PASSWORD, encoded, encoded.rstrip("="), encoded[:12]):
        assert secret not in shown


def test_record_is_at_fault_when_the_registry_does_not_know_its_schema(answers: Answers) -> None:
    with pytest.raises(ValueError, match="the registry has no schema 5, found in the bytes"):
        flights().deserialize(framed(5, UA_12))


def closed_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def test_run_may_be_retried_when_the_registry_is_unreachable() -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    schema_registry.configure({"schema.registry.url": url, "schema.registry.max.retries": "0"})
    try:
        builder = KStreamBuilder(default_key_serde=serdes.string())
        builder.stream("in", value_serde=serdes.json()).send_to(
            "flights", value_serde=SchemaRegistry().avro(FLIGHT)
        )
        with TopologyTestDriver(builder.build(), application_id="app") as driver:
            with pytest.raises(SchemaRegistryUnavailableError, match=f"{url} did not answer") as caught:
                driver.pipe_input("in", key="1", value={"carrier": "UA"}, timestamp_ms=1)
            assert not isinstance(caught.value, RecordError)
            assert caught.value.is_retriable
    finally:
        schema_registry.configure({})
