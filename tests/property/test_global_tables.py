"""A stream meets a global table as it was when each run began, whatever comes meanwhile, and however often a
driver or a task begins again.

The oracle is a dict that takes what lay in the topic before a run began.
"""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import KStreamBuilder, Topology, partition_of_key, serdes
from airflow_kstreams.testing import InMemoryKafka
from tests.support.examples import examples
from tests.support.kafka.in_process import Application, tasks_of

pytestmark = pytest.mark.promise("global-tables-stand-still-in-a-run")

CODES = ("a", "b", "c")
NAME_PARTITIONS, CODE_PARTITIONS = 3, 2

#: A code and its name, or a code alone that is to be named.
Name = tuple[str, str | None]
NAMES = st.lists(st.tuples(st.sampled_from(CODES), st.sampled_from(["x", "y", None])), max_size=6)
#: What comes before a run begins and while it is under way: names, and codes that are to be named.
ARRIVALS = st.tuples(NAMES, st.lists(st.sampled_from(CODES), max_size=6))
RUNS = st.lists(st.tuples(ARRIVALS, ARRIVALS, st.integers(0, CODE_PARTITIONS)), min_size=1, max_size=3)


def _topology() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    names = builder.global_table("names")
    codes = builder.stream("codes")
    named = codes.left_join(names, lambda code, name: f"{code}:{name}", key=lambda key, code: code)
    named.send_to("out")
    return builder.build()


@settings(max_examples=examples(40), deadline=None)
@given(runs=RUNS)
def test_each_run_sees_the_table_of_its_beginning(
    runs: list[tuple[tuple[list[Name], list[str]], tuple[list[Name], list[str]], int]],
) -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("names", partitions=NAME_PARTITIONS, **{"cleanup.policy": "compact"})
    for topic in ("codes", "out"):
        kafka.create_topic(topic, partitions=CODE_PARTITIONS)
    app = Application(
        application_id="app",
        topology=_topology(),
        on=kafka,
        clock=kafka.clock,
        settings={"settle.ms": 0},
    )
    table: dict[str, str | None] = {}
    waiting: list[str] = []
    expected: list[str] = []

    def arrive(names: list[Name], codes: list[str]) -> None:
        for code, name in names:
            partition = partition_of_key(code.encode(), NAME_PARTITIONS, NAME_PARTITIONS)
            data = None if name is None else name.encode()
            kafka.append("names", data, code.encode(), partition=partition)
            table[code] = name
        for number, code in enumerate(codes):
            kafka.append("codes", code.encode(), b"k", partition=number % CODE_PARTITIONS)
        waiting.extend(codes)

    for number, (before, meanwhile, tasks) in enumerate(runs):
        arrive(*before)
        expected += [f"{code}:{table.get(code)}" for code in waiting]
        waiting.clear()
        slice_ = app.begin(f"run-{number}", (0, number))
        arrive(*meanwhile)
        # The driver dies behind some of the tasks.
        for task_id in tasks_of(slice_)[:tasks]:
            app.task(slice_, task_id.subtopology, task_id.group)
        app.tasks(app.begin(f"run-{number}", (0, number)))
        app.finish(f"run-{number}")
        assert sorted((value or b"").decode() for value in kafka.values("out")) == sorted(expected)
        event(f"{len(expected)} results")
