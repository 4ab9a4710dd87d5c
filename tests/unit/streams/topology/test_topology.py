from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import msgspec
import pytest

from airflow_kstreams.streams import (
    ConfigError,
    KStreamBuilder,
    Processor,
    ProcessorRecord,
    StoreSpec,
    Topology,
    TopologyBuilder,
    TopologyError,
    serdes,
)
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.remedies import walked
from tests.support.topology import drawn_topologies as drawn


class Silent(Processor):
    def process(self, record: ProcessorRecord) -> None:
        """Forward nothing."""


STORE = StoreSpec(name="totals", key_serde=serdes.string(), value_serde=serdes.int64())


def _word_counts(*, store: str = "counts", out: str = "word-counts") -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    counts = builder.stream("lines").flat_map(lambda _, line: [(word, word) for word in line.split()])
    counts.group_by_key().count(store=store).to_stream().send_to(out)
    return builder.build()


def test_subtopologies_follow_topics_when_a_stream_is_repartitioned() -> None:
    first, second = _word_counts().subtopologies()
    assert (first.id, first.source_topics, first.sink_topics) == (0, ("lines",), ("counts-repartition",))
    assert (second.id, second.source_topics, second.sink_topics) == (
        1,
        ("counts-repartition",),
        ("word-counts",),
    )
    assert [store.name for store in first.stores] == []
    assert [store.name for store in second.stores] == ["counts"]


def test_subtopologies_are_one_when_processors_share_a_store() -> None:
    builder = TopologyBuilder().add_source("a", "a").add_source("b", "b")
    builder.add_processor("pa", Silent, "a").add_processor("pb", Silent, "b")
    assert len(builder.add_sink("out", "c", "a").build().subtopologies()) == 2
    (only,) = builder.add_state_store(STORE, "pa", "pb").build().subtopologies()
    assert only.source_topics == ("a", "b")


def test_nodes_stand_in_topological_order_when_components_interleave() -> None:
    builder = TopologyBuilder().add_source("b", "b").add_source("a", "a")
    builder.add_sink("a-out", "x", "a").add_sink("b-out", "y", "b")
    first, second = builder.build().subtopologies()
    assert [node.name for node in first.nodes] == ["b", "b-out"]
    assert [node.name for node in second.nodes] == ["a", "a-out"]


def test_writers_run_before_readers_when_built_the_other_way_round() -> None:
    builder = TopologyBuilder()
    builder.add_source("last", "b").add_sink("end", "c", "last")
    builder.add_source("middle", "m").add_sink("to-b", "b", "middle")
    builder.add_source("first", "a").add_sink("to-m", "m", "first").add_sink("also-b", "b", "first")
    topology = builder.build()
    assert [sub.id for sub in topology.subtopologies()] == [0, 1, 2]
    assert [sub.id for sub in topology.ordered_subtopologies()] == [2, 1, 0]
    assert [sub.id for sub in topology.plan("app").subtopologies] == [2, 1, 0]


def test_cycle_names_its_members_only_when_something_hangs_on_it() -> None:
    builder = TopologyBuilder()
    builder.add_source("s0", "c").add_sink("t0", "end", "s0")
    builder.add_source("s1", "a", "b").add_sink("t1", "c", "s1").add_sink("t1b", "d", "s1")
    builder.add_source("s2", "d").add_sink("t2", "b", "s2")
    with pytest.raises(TopologyError) as caught:
        builder.build()
    assert "subtopology 0" not in caught.value.cause
    for topic in ("'b'", "'d'"):
        assert topic in caught.value.cause


def test_plan_uses_real_names_when_topics_are_internal() -> None:
    plan = _word_counts().plan("app")
    assert plan.repartition_topics == {"app-counts-repartition": None}
    assert plan.inputs == ("lines",)
    assert plan.intermediates == ("app-counts-repartition",)
    assert plan.outputs == ("word-counts",)
    assert plan.changelogs == {"app-counts-changelog": 1}
    assert plan.subtopology(1).stores == ("counts",)


def test_plan_survives_json_when_sent_to_another_process() -> None:
    plan = _word_counts().plan("app")
    assert msgspec.json.decode(msgspec.json.encode(plan), type=TopologyPlan) == plan


def test_plan_has_no_changelog_when_the_store_is_not_logged() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    spec = dataclasses.replace(STORE, logged=False)
    builder.stream("a").group_by_key().count(store=spec).to_stream().send_to("b", value_serde=serdes.int64())
    (sub,) = builder.build().plan("app").subtopologies
    assert (sub.stores, sub.changelogs) == (("totals",), {})


def test_sources_are_copartitioned_when_the_subtopology_has_a_store() -> None:
    builder = TopologyBuilder().add_source("a", "a", "c").add_source("b", "b")
    builder.add_processor("p", Silent, "a", "b")
    assert builder.add_sink("out", "x", "p").build().plan("app").subtopologies[0].copartitioned == ()
    plan = builder.add_state_store(STORE, "p").build().plan("app")
    assert plan.subtopologies[0].copartitioned == (("a", "b", "c"),)


def test_repartition_topic_is_copartitioned_when_it_meets_an_input() -> None:
    builder = TopologyBuilder().add_source("a", "a").add_source("b", "b").add_source("c", "c")
    builder.add_repartition("r", "a", key_serde=serdes.bytes(), value_serde=serdes.bytes())
    builder.add_processor("p", Silent, "r-repartition-source", "b").add_sink("out", "x", "p", "c")
    sub = builder.build().plan("app").subtopologies[1]
    assert sub.sources == ("app-r-repartition", "b", "c")
    assert sub.copartitioned == (("app-r-repartition", "b"),)


def test_plan_is_refused_when_a_user_topic_has_an_engine_topics_name() -> None:
    topology = _word_counts(out="app-counts-changelog")
    assert topology.plan("other-app").outputs == ("app-counts-changelog",)
    with pytest.raises(TopologyError, match="app-counts-changelog"):
        topology.plan("app")
    with pytest.raises(TopologyError, match="app-metadata"):
        _word_counts(out="app-metadata").plan("app")
    with pytest.raises(TopologyError, match="app-counts-repartition"):
        _word_counts(out="app-counts-repartition").plan("app")


def test_plan_is_refused_when_an_engine_topics_name_is_too_long() -> None:
    with pytest.raises(TopologyError, match="too long"):
        _word_counts(store="s" * 200).plan("a" * 60)


def _counted(out: str, *, store: str = "counts", application_id: str = "app") -> list[object]:
    with TopologyTestDriver(_word_counts(store=store, out=out), application_id=application_id) as driver:
        for _ in range(2):
            driver.pipe_input("lines", key="k", value="word", timestamp_ms=1)
        return [record.value for record in driver.read_output(out, value_serde=serdes.int64())]


CHANGELOG, LONG = "app-counts-changelog", "s" * 200


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        walked(
            "topology._check_engine_topics: rename the topic",
            lambda: _counted(CHANGELOG),
            lambda: _counted("counts-of-words"),
        ),
        walked(
            "topology._check_engine_topics: rename the topic",
            lambda: _counted(CHANGELOG),
            lambda: _counted(CHANGELOG, store="words"),
        ),
        walked(
            "topology._check_engine_topics: rename the topic",
            lambda: _counted(CHANGELOG),
            lambda: _counted(CHANGELOG, application_id="words"),
        ),
        walked(
            "topology._check_engine_topics: shorten the name",
            lambda: _counted("out", store=LONG, application_id="a" * 60),
            lambda: _counted("out", application_id="a" * 60),
        ),
        walked(
            "topology._check_engine_topics: shorten the name",
            lambda: _counted("out", store=LONG, application_id="a" * 60),
            lambda: _counted("out", store=LONG, application_id="a"),
        ),
    ],
)
def test_words_are_counted_when_names_are_as_the_error_says(
    fault: Callable[[], object], told: Callable[[], object]
) -> None:
    with pytest.raises(TopologyError):
        fault()
    assert told() == [1, 2]


@pytest.mark.remedy("topology.refuse_dead_letter_topic")
def test_letters_go_to_a_topic_of_their_own_as_the_error_says() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").map_values(lambda value: 12 / value).send_to("out")
    topology, dead = builder.build(), "errors.dead.letter.queue.topic.name"
    settings = {"processing.exception.handler": "dead-letter"}
    with pytest.raises(ConfigError) as refused:
        TopologyTestDriver(topology, application_id="app", settings={**settings, dead: "in"})
    assert dead in refused.value.fix
    with TopologyTestDriver(topology, application_id="app", settings={**settings, dead: "letters"}) as driver:
        for value in (0, 4):
            driver.pipe_input("in", key="k", value=value, timestamp_ms=1)
        assert [record.value for record in driver.read_output("letters")] == [b"0"]
        assert [record.value for record in driver.read_output("out")] == [3]


def test_plan_is_refused_when_the_application_id_cannot_name_topics() -> None:
    with pytest.raises(ConfigError, match="my app"):
        _word_counts().plan("my app")


def test_hash_is_the_same_when_only_function_bodies_differ() -> None:
    def topology(constant: int) -> Topology:
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        builder.stream("a").map_values(lambda value: value + constant).send_to("b")
        return builder.build()

    assert topology(1).topology_hash() == topology(2).topology_hash()


@pytest.mark.promise("lines-are-outside-the-hash")
def test_hash_is_the_same_when_lines_have_moved() -> None:
    def topology(source: str) -> Topology:
        known: dict[str, Topology] = {}
        exec(compile(source, "orders.py", "exec"), known)
        return known["built"]

    source = (
        "from airflow_kstreams.streams import KStreamBuilder, serdes\n"
        "builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())\n"
        "builder.stream('a').filter(lambda key, value: value).send_to('b')\n"
        "built = builder.build()\n"
    )
    before, after = topology(source), topology(f"# one more line\n{source}")

    assert [node.site for node in before.nodes] != [node.site for node in after.nodes]
    assert before.topology_hash() == after.topology_hash()


def test_hash_differs_when_anything_stored_or_sent_differs() -> None:
    def topology(
        *,
        topic: str = "a",
        out: str = "b",
        node: str = "p",
        parent: str = "in",
        store: StoreSpec = STORE,
        partitions: int | None = None,
        string_key: bool = False,
    ) -> Topology:
        key_serde = serdes.string() if string_key else serdes.bytes()
        builder = TopologyBuilder().add_source("in", topic, key_serde=key_serde)
        builder.add_processor("q", Silent, "in").add_processor(node, Silent, parent)
        builder.add_state_store(store, node).add_sink("out", out, node)
        builder.add_repartition(
            "r", "in", key_serde=serdes.bytes(), value_serde=serdes.bytes(), partitions=partitions
        )
        return builder.build()

    variants = [
        topology(),
        topology(topic="c"),
        topology(out="c"),
        topology(node="o"),
        topology(parent="q"),
        topology(partitions=3),
        topology(string_key=True),
        topology(store=dataclasses.replace(STORE, name="other")),
        topology(store=dataclasses.replace(STORE, value_serde=serdes.json())),
        topology(store=dataclasses.replace(STORE, logged=False)),
        topology(store=dataclasses.replace(STORE, cached=False)),
    ]
    assert len({variant.topology_hash() for variant in variants}) == len(variants)
    assert topology().topology_hash() == topology().topology_hash()


def test_description_is_in_kafka_streams_shape_when_printed() -> None:
    assert _word_counts().describe() == (
        "Topologies:\n"
        "   Sub-topology: 0\n"
        "    Source: KSTREAM-SOURCE-0000000000 (topics: [lines])\n"
        "      --> KSTREAM-FLATMAP-0000000001\n"
        "    Processor: KSTREAM-FLATMAP-0000000001 (stores: [])\n"
        "      --> counts-repartition-filter\n"
        "      <-- KSTREAM-SOURCE-0000000000\n"
        "    Processor: counts-repartition-filter (stores: [])\n"
        "      --> counts-repartition-sink\n"
        "      <-- KSTREAM-FLATMAP-0000000001\n"
        "    Sink: counts-repartition-sink (topic: counts-repartition)\n"
        "      <-- counts-repartition-filter\n"
        "\n"
        "  Sub-topology: 1\n"
        "    Source: counts-repartition-source (topics: [counts-repartition])\n"
        "      --> KSTREAM-AGGREGATE-0000000002\n"
        "    Processor: KSTREAM-AGGREGATE-0000000002 (stores: [counts])\n"
        "      --> KTABLE-TOSTREAM-0000000003\n"
        "      <-- counts-repartition-source\n"
        "    Processor: KTABLE-TOSTREAM-0000000003 (stores: [])\n"
        "      --> KSTREAM-SINK-0000000004\n"
        "      <-- KSTREAM-AGGREGATE-0000000002\n"
        "    Sink: KSTREAM-SINK-0000000004 (topic: word-counts)\n"
        "      <-- KTABLE-TOSTREAM-0000000003\n"
        "\n"
    )


def test_description_says_none_when_a_node_has_no_child() -> None:
    text = TopologyBuilder().add_source("in", "a", "b").add_source("i2", "c").add_sink("o", "d", "i2").build()
    assert "Source: in (topics: [a, b])\n      --> none\n" in text.describe()


def test_description_has_real_names_when_an_application_id_is_given() -> None:
    text = _word_counts().describe(application_id="app")
    assert "Sink: counts-repartition-sink (topic: app-counts-repartition)\n" in text
    assert "Source: counts-repartition-source (topics: [app-counts-repartition])\n" in text
    with pytest.raises(ConfigError, match="no such id!"):
        _word_counts().describe(application_id="no such id!")


def test_description_keeps_its_lines_when_a_name_has_a_line_feed() -> None:
    builder = TopologyBuilder().add_source("in\nout", "a").add_sink("sink", "b", "in\nout")
    assert builder.build().describe() == (
        "Topologies:\n"
        "   Sub-topology: 0\n"
        "    Source: in\\nout (topics: [a])\n"
        "      --> sink\n"
        "    Sink: sink (topic: b)\n"
        "      <-- in\\nout\n"
        "\n"
    )


def test_description_gives_the_graph_back_when_a_viewer_reads_it() -> None:
    # Viewers go line by line: a heading, an entity with its topics or stores, then the arrows from it.
    entity = re.compile(r"(Source|Processor|Sink):\s+(\S+)\s+\((topics|topic|stores):(.*)\)")
    edges: set[tuple[str, str]] = set()
    outside: set[tuple[str, str, str]] = set()
    groups: list[list[str]] = []
    for line in drawn.diamond().describe().split("\n"):
        if re.search(r"Sub-topology: ([0-9]+)", line):
            groups.append([])
        elif found := entity.search(line):
            groups[-1].append(found[2])
            linked = [name.strip() for name in re.sub(r"[\[\]]", "", found[4]).split(",")]
            outside |= {(found[3], found[2], name) for name in linked if name}
        elif found := re.search(r"-->\s+(.*)$", line):
            edges |= {
                (groups[-1][-1], name.strip()) for name in found[1].split(",") if name.strip() != "none"
            }
    topology = drawn.diamond()
    assert groups == [[node.name for node in sub.nodes] for sub in topology.subtopologies()]
    assert edges == {
        (parent, node.name) for node in topology.nodes for parent in getattr(node, "parents", ())
    }
    assert ("topics", "orders-in", "orders") in outside
    assert ("topic", "to-enriched", "enriched-orders") in outside
    assert ("stores", "enrich", "customers") in outside
    assert ("stores", "enrich", "seen-orders") in outside
