from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import (
    Processor,
    ProcessorRecord,
    StoreSpec,
    TopologyBuilder,
    TopologyError,
    serdes,
)
from airflow_kstreams.streams.hints.function_checks import call_site

pytestmark = pytest.mark.promise("topologies-can-stop")


class Silent(Processor):
    def process(self, record: ProcessorRecord) -> None:
        """Forward nothing."""


STORE = StoreSpec(name="totals", key_serde=serdes.string(), value_serde=serdes.int64())


def _builder() -> TopologyBuilder:
    return TopologyBuilder().add_source("in", "a")


def test_nodes_keep_build_order_when_built() -> None:
    topology = (
        _builder()
        .add_processor("p", Silent, "in", stores=["totals"])
        .add_state_store(STORE)
        .add_sink("out", "b", "p", "in")
        .build()
    )
    assert [node.name for node in topology.nodes] == ["in", "p", "out"]
    assert topology.stores == (STORE,)


def test_store_is_connected_when_processors_are_named_with_it() -> None:
    builder = _builder().add_processor("p", Silent, "in").add_processor("q", Silent, "p")
    builder.add_state_store(STORE, "p", "q").add_state_store(STORE, "q")
    connected = {node.name: getattr(node, "stores", ()) for node in builder.build().nodes}
    assert connected == {"in": (), "p": ("totals",), "q": ("totals",)}


def test_topology_with_logged_store_is_accepted_when_it_has_no_sink() -> None:
    assert _builder().add_processor("p", Silent, "in").add_state_store(STORE, "p").build().stores == (STORE,)


def test_sink_is_connected_to_bytes_when_no_serde_is_given() -> None:
    assert _builder().add_sink("out", "b", "in").build().nodes[1].key_serde == serdes.bytes()  # type: ignore[union-attr]


Mistake = Callable[[TopologyBuilder], Any]
UNLOGGED = dataclasses.replace(STORE, logged=False)
OTHER = dataclasses.replace(STORE, value_serde=serdes.json())

REFUSED: list[tuple[str, Mistake, str]] = [
    ("no source", lambda b: TopologyBuilder().build(), r"no source"),
    ("no sink", lambda b: b.build(), r"topology without sink.*'in'"),
    ("name taken", lambda b: b.add_sink("in", "b", "in"), r"'in' is given to two nodes"),
    ("empty name", lambda b: b.add_sink("", "b", "in"), r"has the name ''"),
    ("number for a name", lambda b: b.add_processor(5, Silent, "in"), r"has the name 5"),  # type: ignore[arg-type]
    ("unknown parent", lambda b: b.add_processor("p", Silent, "inn"), r"unknown parent 'inn'"),
    ("no parent", lambda b: b.add_sink("out", "b"), r"'out' .* has no parent"),
    ("parent twice", lambda b: b.add_sink("out", "b", "in", "in"), r"names a parent twice"),
    ("list of parents", lambda b: b.add_sink("out", "b", ["in"]), r"'out' at .* has list as parent"),  # type: ignore[arg-type]
    (
        "text for stores",
        lambda b: b.add_processor("p", Silent, "in", stores="abc"),  # type: ignore[arg-type]
        r"processor 'p' at .* has stores='abc', expected a list of names",
    ),
    (
        "specs for stores",
        lambda b: b.add_processor("p", Silent, "in", stores=[STORE]),  # type: ignore[list-item]
        r"processor 'p' at .* expected a list of names",
    ),
    ("name for a spec", lambda b: b.add_state_store("s"), r"is given 's', expected a StoreSpec"),  # type: ignore[arg-type]
    ("sink as parent", lambda b: b.add_sink("o", "b", "in").add_sink("o2", "c", "o"), r"has the sink 'o'"),
    ("no topic", lambda b: b.add_source("in2"), r"'in2' .* names no topic"),
    ("topic twice in a source", lambda b: b.add_source("in2", "x", "x"), r"names a topic twice"),
    (
        "illegal topic",
        lambda b: b.add_source("in2", "so bad"),
        r"source 'in2' at .* reads 'so bad', which Kafka does not allow",
    ),
    (
        "topic of dots",
        lambda b: b.add_sink("out", "..", "in"),
        r"sink 'out' at .* writes '\.\.', which Kafka does not allow",
    ),
    ("topic too long", lambda b: b.add_sink("out", "x" * 250, "in"), r"which Kafka does not allow"),
    ("empty topic", lambda b: b.add_sink("out", "", "in"), r"'', which Kafka does not allow"),
    (
        "illegal store",
        lambda b: b.add_state_store(dataclasses.replace(STORE, name="my totals")),
        r"'my totals', which Kafka does not allow",
    ),
    (
        "unknown store",
        lambda b: b.add_processor("p", Silent, "in", stores=["nope"]).add_sink("out", "b", "p").build(),
        r"processor 'p' .*'nope', which no call added",
    ),
    (
        "store of nobody",
        lambda b: b.add_state_store(STORE).add_sink("out", "b", "in").build(),
        r"store 'totals' .* is connected to no processor",
    ),
    ("store of a source", lambda b: b.add_state_store(STORE, "in"), r"'in', which is no processor"),
    (
        "store twice",
        lambda b: b.add_state_store(STORE).add_state_store(OTHER),
        r"store 'totals' has two specs",
    ),
    (
        "topic of two sources",
        lambda b: b.add_source("in2", "b", "a").add_sink("out", "c", "in", "in2").build(),
        r"topic 'a' is read by two sources, 'in' .* and 'in2'",
    ),
    (
        "topic of two sources with other serdes",
        lambda b: b.add_source("in2", "a", key_serde=serdes.string()).add_sink("out", "c", "in").build(),
        r"with the serdes serdes\.bytes, serdes\.bytes and serdes\.string, serdes\.bytes",
    ),
    (
        "self-loop",
        lambda b: b.add_sink("out", "a", "in").build(),
        r"never stop.* subtopology 0 -> topic 'a' -> subtopology 0",
    ),
    (
        "cycle",
        lambda b: b.add_sink("o", "b", "in").add_source("i2", "b").add_sink("o2", "a", "i2").build(),
        r"subtopology (\d) -> topic '(a|b)' -> subtopology (\d) -> topic '(a|b)' -> subtopology \1 ",
    ),
    (
        "repartition topic read by the user",
        lambda b: (
            b.add_repartition("g", "in", key_serde=serdes.bytes(), value_serde=serdes.bytes())
            .add_sink("out", "c", "g-repartition-source")
            .add_sink("out2", "g-repartition", "in")
            .build()
        ),
        r"'out2' .* names the topic 'g-repartition'",
    ),
    ("instance for a definition", lambda b: b.add_processor("p", Silent(), "in"), r"an instance of Silent"),  # type: ignore[arg-type]
    ("no definition", lambda b: b.add_processor("p", None, "in"), r"cannot be called"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(
    ("mistake", "pattern"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_mistake_is_refused_when_made(mistake: Mistake, pattern: str) -> None:
    with pytest.raises(TopologyError, match=pattern) as caught:
        mistake(_builder())
    assert "\n" not in caught.value.cause
    assert caught.value.fix
    assert "\n" not in caught.value.fix


@pytest.mark.parametrize("case", [c for c in REFUSED if c[0] != "no source"], ids=lambda case: case[0])
def test_message_names_this_file_when_a_mistake_is_refused(case: tuple[str, Mistake, str]) -> None:
    with pytest.raises(TopologyError) as caught:
        case[1](_builder())
    assert f"{__file__}:" in caught.value.cause


def test_call_site_is_the_users_line_when_called_through_the_package() -> None:
    here = call_site()
    node = TopologyBuilder().add_source("in", "a")._nodes["in"]
    assert (here.file, node.site) == (__file__, dataclasses.replace(here, line=here.line + 1))
