"""One run in full, and two compared, on the in-memory Kafka."""

from __future__ import annotations

import pytest

from airflow_kstreams.batch.inspect.runs.audit import BetweenTopic, audit_of
from airflow_kstreams.batch.inspect.runs.run_in_full import compare_runs, read_run
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application
from tests.support.kafka.ledger_history import APP, LedgerHistory
from tests.support.kafka.written_over import leave_out_counts


def scene() -> tuple[InMemoryKafka, Application]:
    """Two subtopologies: every second record is filtered, each other goes through a topic, and is doubled."""
    kafka = InMemoryKafka(clock=ManualClock(now_ms=1_700_000_000_000))
    for topic in ("in", "between", "out"):
        kafka.create_topic(topic)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
    kept = builder.stream("in").filter(lambda key, value: value % 2 == 0)
    kept.through("between").flat_map_values(lambda value: [value, value]).send_to("out")
    for number in range(10):
        kafka.append("in", number.to_bytes(8, "big"), b"k")
    return kafka, Application(on=kafka, clock=kafka.clock, application_id=APP, topology=builder.build())


def test_books_of_a_run_add_up_by_node_and_rule() -> None:
    kafka, ours = scene()
    ours.run("one")

    audit = read_run(kafka, ours.checked, "one", clock=kafka.clock).audit

    assert audit is not None
    assert (audit.read, audit.left_out, audit.written, audit.made) == (15, 5, 15, 5)
    assert audit.read - audit.left_out + audit.made == audit.written
    assert [(row.what, row.records) for row in audit.rows if row.place.startswith("KSTREAM-FILTER")] == [
        ("filtered", 5)
    ]
    assert audit.between == (BetweenTopic(topic="between", written=5, read=5, missing=0),)


def test_topics_of_each_subtopology_are_those_that_it_reads_and_writes() -> None:
    kafka, ours = scene()
    ours.run("one")

    found = read_run(kafka, ours.checked, "one", clock=kafka.clock)

    assert [(sub.id, sub.reads, sub.writes) for sub in found.subtopologies] == [
        (0, ("in",), ("between",)),
        (1, ("between",), ("out",)),
    ]


def test_books_say_what_was_lost_between_subtopologies() -> None:
    _, ours = scene()
    done = ours.run("one")
    assert done.counts is not None
    done.counts.read["between"] = 3
    audit = audit_of(done)
    assert audit is not None
    assert audit.missing == 2


def test_counts_that_are_not_known_are_not_guessed() -> None:
    kafka, ours = scene()
    ours.tasks(ours.begin("one"))
    leave_out_counts(kafka, APP)
    ours.finish("one")
    found = read_run(kafka, ours.checked, "one", clock=kafka.clock)
    assert (found.audit, found.run.records_in) == (None, None)


def test_run_under_way_has_what_its_tasks_have_committed() -> None:
    kafka, ours = scene()
    slice_ = ours.begin("one")
    ours.tasks(slice_, [0])

    found = read_run(kafka, ours.checked, None, clock=kafka.clock)

    assert (found.run.run_id, found.run.state) == ("one", "unfinished")
    assert [(task.task, task.records_in) for task in found.tasks] == [("0_0", 10)]


def test_details_that_have_expired_are_said_to_be() -> None:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=1_700_000_000_000))
    history = LedgerHistory(kafka=kafka, details_kept=1)
    history.finish_many(3)
    found = read_run(kafka, ApplicationSettings.parse(APP), history.finished[0], clock=kafka.clock)
    assert found.tasks == ()
    assert found.not_seen == (
        "tasks and attempts: the ledger keeps them of the last runs only (ledger.details.kept)",
    )
    last = read_run(kafka, ApplicationSettings.parse(APP), None, clock=kafka.clock)
    assert (last.run.run_id, len(last.tasks), last.not_seen) == (history.finished[2], 1, ())


def test_figures_of_two_runs_stand_beside_each_other() -> None:
    kafka, ours = scene()
    ours.run("one")
    kafka.append("in", (1).to_bytes(8, "big"), b"k")
    ours.run("two")

    found = compare_runs(kafka, ours.checked, "one", "two", clock=kafka.clock)

    figures = {each.what: [each.first, each.second] for each in found.figures}
    asked = ("records in", "records out", "between: written")
    assert [figures[what] for what in asked] == [[10, 1], [10, 0], [5, 0]]
    assert [pair for what, pair in figures.items() if what.endswith(": filtered")] == [[5, 1]]
    assert found.other_topology is False


@pytest.mark.remedy("run_in_full._one")
def test_an_application_has_runs_once_it_ran() -> None:
    kafka, ours = scene()
    LedgerHistory(kafka=kafka).renew()
    with pytest.raises(ConfigError) as refused:
        read_run(kafka, ours.checked, None, clock=kafka.clock)
    assert refused.value.fix == "run it, then look again"
