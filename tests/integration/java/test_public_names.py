"""No public name of Kafka Streams' DSL is missing from ``hints/java_names.json``, and none is made up."""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from airflow_kstreams.streams.hints.java_names import ALL, CLASSES, NEIGHBOURS
from dev.servers import embedded
from tests.integration.java.peer import java

DSL = "org/apache/kafka/streams/kstream/"
#: Beside those of the DSL's package.
BUILDERS = ("org/apache/kafka/streams/StreamsBuilder", "org/apache/kafka/streams/Topology")
#: Every object has them.
OF_OBJECTS = {"equals", "hashCode", "toString"}
METHOD = re.compile(r"^  public [^=(]*?(\w+)\(")


def jar() -> Path:
    (found,) = embedded.kafka_streams_libraries().glob("kafka-streams-[0-9]*.jar")
    return found


def public_names() -> dict[str, set[str]]:
    """Return the public methods of every public class, by its name, an inner one's behind a dot."""
    with zipfile.ZipFile(jar()) as content:
        entries = [name.removesuffix(".class") for name in content.namelist() if name.endswith(".class")]
    wanted = [name for name in entries if name in BUILDERS or re.fullmatch(rf"{DSL}[A-Za-z$]+", name)]
    javap = Path(java()).with_name("javap")
    path = f"{embedded.kafka_streams_libraries()}/*"
    names = [name.replace("/", ".") for name in wanted]
    text = subprocess.run(
        [str(javap), "-public", "-cp", path, *names], check=True, capture_output=True, text=True
    ).stdout
    found: dict[str, set[str]] = {}
    for part in text.split("Compiled from")[1:]:
        head = re.search(
            r"^public .*?(?:class|interface|enum) org\.apache\.kafka\.streams\.(?:kstream\.)?([\w$]+)",
            part,
            re.M,
        )
        if head is None:
            continue  # not public
        name = head[1].replace("$", ".")
        methods = {match[1] for line in part.splitlines() if (match := METHOD.match(line))}
        found[name] = methods - OF_OBJECTS - {name.rpartition(".")[2]}
    return found


@pytest.fixture(scope="module")
def names() -> dict[str, set[str]]:
    return public_names()


def test_every_public_class_is_answered_and_no_other(names: dict[str, set[str]]) -> None:
    assert {*CLASSES} == {*names}


def test_every_class_beside_the_dsl_is_one_of_kafka() -> None:
    found: set[str] = set()
    for library in embedded.kafka_streams_libraries().glob("kafka-*.jar"):
        with zipfile.ZipFile(library) as content:
            found |= {re.split(r"[/$]", name.removesuffix(".class"))[-1] for name in content.namelist()}
    assert {*NEIGHBOURS} <= found
    assert {*NEIGHBOURS}.isdisjoint(CLASSES)


@pytest.mark.parametrize("java_class", [*CLASSES])
def test_every_public_method_is_answered_and_no_other(java_class: str, names: dict[str, set[str]]) -> None:
    found = CLASSES[java_class]
    answered = {*found.looked_up.split(), *found.methods} - {ALL}
    if ALL in found.methods:
        assert answered <= names[java_class]
    else:
        assert answered == names[java_class]
