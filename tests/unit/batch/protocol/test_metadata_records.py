from __future__ import annotations

import msgspec
import pytest

from airflow_kstreams.batch.protocol.slice.metadata_records import (
    check_keys,
    completed_record,
    done_record,
    finished_record,
    stop_hash,
    tombstone,
)
from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.plan import SubtopologyPlan, TopologyPlan
from tests.support.kafka.metadata_log import APP, INPUTS, a_slice, frozen, records_of, stop_record


def test_keys_and_values_are_the_specs_text_when_a_run_is_written() -> None:
    written = [(r.key, r.value) for r in records_of(a_slice())]
    assert written == [(b"A_0", b"55"), (b"A_1", b"46"), (b"B_0", b"7"), (b"app", b"0")]
    done = done_record(a_slice(), 0, 1)
    assert (done.topic, done.key, done.value) == ("app-metadata", b"app-0_1", b"done")
    stop = stop_record(a_slice(), "I", 0, 60)
    assert (stop.topic, stop.key, stop.value) == ("app-metadata", b"I_0", b"60")
    assert (finished_record(a_slice(), owner="x").key, finished_record(a_slice(), owner="x").value) == (
        b"app",
        b"1",
    )
    assert tombstone(APP, b"A_0")[1:] == (None, b"A_0", None)


def test_both_markers_hold_the_whole_plan_when_compaction_may_keep_one_only() -> None:
    plans = [
        dict(make(a_slice(), owner="x").headers or ())["kstreams.plan"]
        for make in (completed_record, finished_record)
    ]
    assert plans[0] == plans[1] != b""


def test_transactional_ids_follow_from_the_tasks() -> None:
    plan = a_slice().plan
    assert b"app-0_0" not in msgspec.json.encode(plan)
    assert plan.task_ids == ("app-0_0", "app-0_1", "app-1_0", "app-1_1")


def test_hash_does_not_depend_on_order_when_the_set_is_the_same() -> None:
    assert stop_hash(INPUTS) == stop_hash(reversed(INPUTS))
    assert stop_hash(INPUTS) != stop_hash(INPUTS[1:])
    assert stop_hash((frozen("A", 0, 0, 5),)) != stop_hash((frozen("A", 0, 1, 5),))


def plan(application_id: str, *subtopologies: SubtopologyPlan) -> TopologyPlan:
    return TopologyPlan(application_id=application_id, topology_hash="h", subtopologies=subtopologies)


def test_application_id_is_refused_when_it_equals_a_stop_key() -> None:
    topology = plan("flights_1", SubtopologyPlan(id=0, sources=("flights",), sinks=("out",)))
    check_keys(topology, {"flights": 1}, {0: 1})
    with pytest.raises(TopologyError, match=r"'flights_1'.*markers.*flights-1"):
        check_keys(topology, {"flights": 2}, {0: 2})


def test_topics_are_refused_when_a_notification_key_equals_a_stop_key() -> None:
    topology = plan(
        "app",
        SubtopologyPlan(id=0, sources=("A", "A_0-I"), sinks=("I",)),
        SubtopologyPlan(id=1, sources=("I",), sinks=("O",)),
    )
    with pytest.raises(TopologyError, match=r"A_0-I_0.*rename|A_0-I_0"):
        check_keys(topology, {"A": 1, "A_0-I": 1, "I": 1}, {0: 1, 1: 1})


def test_topic_is_refused_when_its_stop_key_equals_a_tasks_notification() -> None:
    topology = plan(
        "app",
        SubtopologyPlan(id=0, sources=("A",), sinks=("app-0",)),
        SubtopologyPlan(id=1, sources=("app-0",), sinks=("O",)),
    )
    with pytest.raises(TopologyError, match=r"'app-0_0'.*stop offset of app-0-0 .*task 0_0"):
        check_keys(topology, {"A": 2, "app-0": 2}, {0: 2, 1: 2})


@pytest.mark.parametrize("application_id", ["A_0-I_1", "A_0"])
def test_application_id_is_refused_when_another_programs_notification_would_have_a_key_of_ours(
    application_id: str,
) -> None:
    topology = plan(
        application_id,
        SubtopologyPlan(id=0, sources=("A",), sinks=("I", "0")),
        SubtopologyPlan(id=1, sources=("I", "0"), sinks=("O",)),
    )
    with pytest.raises(TopologyError, match=r"notification of A_0 for (I_1|0_0)|stop offset of A-0"):
        check_keys(topology, {"A": 1, "I": 2, "0": 1}, {0: 1, 1: 2})


def test_topics_pass_when_names_are_odd_but_keys_differ() -> None:
    topology = plan(
        "app",
        SubtopologyPlan(id=0, sources=("a-1", "a_1"), sinks=("i-1",)),
        SubtopologyPlan(id=1, sources=("i-1",), sinks=("o",)),
    )
    check_keys(topology, {"a-1": 12, "a_1": 12, "i-1": 12}, {0: 12, 1: 12})
