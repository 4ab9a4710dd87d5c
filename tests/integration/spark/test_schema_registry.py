"""A whole run on registry serdes; only the client settings say where the registry is and how to log in."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.kafka.registries import FLIGHT, avro_string, framed, zigzag
from tests.support.kafka.registry_server import Answers, registry_server
from tests.support.spark.driver_process import DriverProcess, driver

APPLICATION = Path(__file__).parents[2] / "applications" / "united_flights.py"
PASSWORD = "canary-password"


def prepared(
    folder: Path, answers: Answers, *, bootstrap: str, application_id: str, topics: tuple[str, str]
) -> DriverProcess:
    made = driver(APPLICATION, folder, bootstrap=bootstrap, application_id=application_id, run_id="run-1")
    made.environment = dict(zip(("KSTREAMS_TEST_IN", "KSTREAMS_TEST_OUT"), topics, strict=True))
    settings = {
        "bootstrap.servers": bootstrap,
        "schema.registry.url": answers.url,
        "schema.registry.basic.auth.user.info": f"alice:{PASSWORD}",
        "schema.registry.max.retries": "0",
    }
    made.client_config.write_text(json.dumps(settings))
    return made


def test_avro_is_read_and_written_when_the_client_settings_name_the_registry(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    consume_all: Callable[..., Any],
    tmp_path: Path,
) -> None:
    source, sink = create_topic(topic_name("flights")), create_topic(topic_name("united"))
    produce(
        source,
        [
            {"key": carrier, "value": framed(7, avro_string(carrier) + zigzag(delay))}
            for carrier, delay in [("UA", 12), ("B6", 3), ("UA", -4)]
        ],
    )
    register = ("POST", f"/subjects/{sink}-value/versions")
    with registry_server() as answers:
        made = prepared(
            tmp_path, answers, bootstrap=kafka, application_id=application_id, topics=(source, sink)
        )
        try:
            # Nobody's record is at fault, so the run ends, its slice kept, and Spark does not try again.
            answers.by_request[register] = (403, {"error_code": 40301, "message": "may not write"})
            answers.by_request["GET", "/schemas/ids/7"] = (200, {"schema": FLIGHT})
            assert made.start().wait() == 2, made.output()[-6000:]
            assert "refuses the credentials" in made.output()
            assert consume_all(sink) == []

            answers.by_request[register] = (200, {"id": 9, "version": 1, "schema": FLIGHT})
            assert made.start().wait() == 0, made.output()[-6000:]
        finally:
            made.stop()
    assert [row.value for row in consume_all(sink)] == [
        framed(9, avro_string("UA") + zigzag(12)),
        framed(9, avro_string("UA") + zigzag(-4)),
    ]
    login = "Basic " + base64.b64encode(f"alice:{PASSWORD}".encode()).decode()
    assert {authorization for _, _, authorization in answers.asked} == {login}
    assert PASSWORD not in made.output()
