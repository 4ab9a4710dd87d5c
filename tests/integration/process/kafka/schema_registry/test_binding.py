"""Serdes of a schema registry where a library of theirs is not installed."""

from __future__ import annotations

import pytest

from tests.support.fresh_python import Answers, ask

LIBRARIES = ("httpx2", "attrs", "fastavro", "cachetools")

#: Blocks a library, then binds a serde as a task does.
_WITHOUT = """
import sys
sys.modules[{library!r}] = None
if {library!r} == "httpx2":  # whose predecessor would do
    sys.modules["httpx"] = None
from airflow_kstreams.kafka.schema_registry import SchemaRegistry
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.testing import TopologyTestDriver
builder = KStreamBuilder()
value_serde = SchemaRegistry("mock://demo").avro('"string"')
builder.stream("in", key_serde=serdes.string(), value_serde=value_serde).send_to("out")
topology = builder.build()
topology.plan("demo")
try:
    TopologyTestDriver(topology, application_id="demo")
except ConfigError as error:
    answer = {{"text": str(error), "quiet": error.__suppress_context__ and error.__cause__ is None}}
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    questions = {library: _WITHOUT.format(library=library) for library in LIBRARIES}
    return ask(questions, home=tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize("library", LIBRARIES)
def test_extra_is_named_when_a_library_is_missing(library: str, answers: Answers) -> None:
    found = answers.to(library)
    first, fix = found["text"].splitlines()
    assert first.startswith("serdes of a schema registry need a library that is not installed here")
    assert library.removesuffix("2") in first
    assert "pip install 'airflow-kstreams[schema-registry]'" in fix
    assert found["quiet"]
