from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, Processor, ProcessorContext, Topology, serdes
from airflow_kstreams.streams.errors import ConfigError, RecordError, TopologyError
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.outputs import with_outputs
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.remedies import walked

pytestmark = pytest.mark.promise("backfill-outputs-are-named", "loops-through-topics-are-not-backfilled")

TEXT = serdes.string()


class Sender(Processor):
    """Sends what it gets to a topic that no sink names."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Any) -> None:
        self._context.send("audit", record.key, record.value, key_serde=TEXT, value_serde=TEXT)
        self._context.forward(record.key, record.value)


def topology(*, through: str = "") -> Topology:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    stream = builder.stream("in")
    if through:
        stream = stream.through(through)
    sent = stream.process(Sender)
    sent.send_to("out")
    sent.group_by(lambda _, value: value).count(store="n").to_stream().send_to(
        "counts", value_serde=serdes.int64()
    )
    return builder.build()


def settings(outputs: str = "", autostop: str = "eol") -> ApplicationSettings:
    return ApplicationSettings.parse("app", {"output.topics": outputs, "autostop.at": autostop})


def test_topology_stays_as_it_is_when_nothing_is_said() -> None:
    plain = topology()
    assert with_outputs(plain, settings()) is plain


def test_sinks_and_sends_write_the_other_topics_when_they_are_named() -> None:
    named = with_outputs(topology(), settings("out=out-2, counts, audit=audit-2", "interval"))
    plan = named.plan("app")
    assert plan.outputs == ("counts", "out-2")
    assert plan.topology_hash != topology().topology_hash(), "another run than the live one"
    assert plan.repartition_topics == topology().plan("app").repartition_topics
    with TopologyTestDriver(named, application_id="app") as driver:
        driver.pipe_input("in", key="k", value="v", timestamp_ms=1)
        assert [record.value for record in driver.read_output("out-2")] == ["v"]
        assert [record.value for record in driver.read_output("audit-2")] == [b"v"]


def test_send_to_an_unnamed_topic_is_refused_when_outputs_are_named() -> None:
    named = with_outputs(topology(), settings("out,counts"))
    with (
        TopologyTestDriver(named, application_id="app") as driver,
        pytest.raises((RecordError, TopologyError), match=r"'audit', and no topic is named"),
    ):
        driver.pipe_input("in", key="k", value="v", timestamp_ms=1)


@pytest.mark.parametrize(
    ("outputs", "autostop", "said"),
    [
        ("", "interval", "writes 'counts', 'out', and no topic is named"),
        ("out=other", "eol", "writes 'counts', and no topic is named"),
        ("out=in,counts", "eol", "names 'in', which the topology reads"),
        ("in=other,out,counts", "eol", "reads topic 'in'"),
    ],
)
def test_outputs_are_refused_when_they_do_not_fit(outputs: str, autostop: str, said: str) -> None:
    with pytest.raises(TopologyError) as caught:
        with_outputs(topology(), settings(outputs, autostop))
    assert said in caught.value.cause


def test_backfill_is_refused_when_the_topology_reads_a_topic_of_the_users_that_it_writes() -> None:
    with pytest.raises(TopologyError, match="reads topic 'middle', which it also writes"):
        with_outputs(topology(through="middle"), settings("middle=m,out=o,counts=c", "interval"))


def between(*, group: bool) -> Topology:
    """``in``, keyed anew by its values through a topic of the engine's, to ``out``."""
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    stream = builder.stream("in").select_key(lambda _, value: value)
    if group:
        stream.group_by_key(name="by").count(store="n").to_stream().map_values(str).send_to("out")
    else:
        stream.repartition(1, name="by").send_to("out")
    return builder.build()


WALKS = [
    walked(
        "outputs._refuse_missing",
        (topology(), "out=out-2,audit=audit-2", "eol"),
        (topology(), "out=out-2,audit=audit-2,counts=counts-2", "eol"),
        {"out-2": ["v"], "counts-2": [1], "audit-2": [b"v"]},
    ),
    walked(
        "outputs._refuse_missing",
        (topology(), "", "interval"),
        (topology(), "out=backfilled-out,counts=backfilled-counts,audit", "interval"),
        {"backfilled-out": ["v"], "backfilled-counts": [1], "audit": [b"v"]},
    ),
    walked(
        "sending._written_as",
        (topology(), "out,counts", "eol"),
        (topology(), "out,counts,audit", "eol"),
        {"out": ["v"], "counts": [1], "audit": [b"v"]},
    ),
    walked(
        "outputs.with_outputs: name a topic of its own",
        (topology(), "out=in,counts", "eol"),
        (topology(), "out=out-2,counts,audit", "eol"),
        {"out-2": ["v"], "counts": [1]},
    ),
    walked(
        "outputs.with_outputs: let the engine create such topics",
        (topology(through="middle"), "middle=m,out=o,counts=c,audit=a", "interval"),
        (between(group=False), "out=o", "interval"),
        {"o": ["v"]},
    ),
    walked(
        "outputs.with_outputs: let the engine create such topics",
        (topology(through="middle"), "middle=m,out=o,counts=c,audit=a", "interval"),
        (between(group=True), "out=o", "interval"),
        {"o": ["1"]},
    ),
]


def written(made: Topology, outputs: str, autostop: str, *topics: str) -> dict[str, list[Any]]:
    named = with_outputs(made, settings(outputs, autostop))
    with TopologyTestDriver(named, application_id="app") as driver:
        driver.pipe_input("in", key="k", value="v", timestamp_ms=1)
        return {topic: [record.value for record in driver.read_output(topic)] for topic in topics}


@pytest.mark.parametrize(("fault", "told", "wanted"), WALKS)
def test_outputs_are_written_when_they_are_named_as_the_error_says(
    fault: tuple[Topology, str, str], told: tuple[Topology, str, str], wanted: dict[str, list[Any]]
) -> None:
    with pytest.raises((RecordError, TopologyError)):
        written(*fault)
    assert written(*told, *wanted) == wanted


@pytest.mark.parametrize("text", ["=x", "a=", "a,,b", "a=b,a=c", ","])
def test_setting_is_refused_when_it_names_no_topic_or_one_twice(text: str) -> None:
    with pytest.raises(ConfigError, match=r"'output\.topics'"):
        settings(text)
