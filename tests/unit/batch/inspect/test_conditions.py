"""What sensors wait for, told from the topics of a cluster in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.inspect.cluster_view import ClusterView
from airflow_kstreams.batch.inspect.conditions import (
    CaughtUp,
    Condition,
    NewData,
    RunFinished,
    StopOffsetsReached,
    condition_from_json,
    condition_to_json,
    why_not,
)
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.testing import InMemoryKafka
from airflow_kstreams.testing.faults import FaultyCluster
from tests.support.kafka.in_process import Application


class Counting:
    """Counts port calls by name."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        self.calls[name] += 1
        return effect()


def _topology() -> Topology:
    builder = KStreamBuilder()
    source = builder.stream("orders", key_serde=serdes.string(), value_serde=serdes.string())
    through = source.through("cleaned", key_serde=serdes.string(), value_serde=serdes.string())
    through.send_to("stored", key_serde=serdes.string(), value_serde=serdes.string())
    return builder.build()


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    for topic in ("orders", "cleaned", "stored"):
        kafka.create_topic(topic, partitions=2)
    return kafka


@pytest.fixture
def application(kafka: InMemoryKafka) -> Application:
    return Application(on=kafka, clock=kafka.clock, application_id="app", topology=_topology())


@pytest.fixture
def publish(kafka: InMemoryKafka) -> Callable[..., None]:
    """``publish(3, timestamp_ms=5, commit=True)`` writes records in one transaction."""

    def publish(count: int, *, timestamp_ms: int = 1_000, commit: bool = True) -> None:
        writer = kafka.writer(transactional_id="publisher")
        writer.init_transactions()
        writer.begin()
        for number in range(count):
            writer.produce("orders", b"v", b"k", number % 2, timestamp_ms + number, None)
        writer.flush()
        writer.commit() if commit else writer.abort()
        writer.close()

    return publish


def _seen(kafka: InMemoryKafka, condition: Condition) -> Any:
    with ClusterView(kafka, clock=kafka.clock) as view:
        return condition.evaluate(view)


def test_run_is_finished_when_the_ledger_has_it(
    kafka: InMemoryKafka, application: Application, publish: Callable[..., None]
) -> None:
    assert _seen(kafka, RunFinished(application_id="app", run_id="one")) is None, "it never ran"
    publish(4)
    slice_ = application.begin("one")
    assert _seen(kafka, RunFinished(application_id="app", run_id="one")) is None
    application.tasks(slice_)
    assert _seen(kafka, RunFinished(application_id="app", run_id="one")) is None, "no marker yet"
    application.finish("one")

    seen = _seen(kafka, RunFinished(application_id="app", run_id="one"))

    assert (seen["run_id"], seen["finished"], seen["records_in"]) == ("one", True, 4)
    assert _seen(kafka, RunFinished(application_id="app"))["run_id"] == "one"
    assert _seen(kafka, RunFinished(application_id="app", run_id="two")) is None


def test_run_stays_finished_when_the_next_one_has_wiped_its_marker(
    kafka: InMemoryKafka, application: Application, publish: Callable[..., None]
) -> None:
    publish(2)
    application.run("one")
    publish(2)
    application.begin("two")
    kafka.compact(ProtocolTopics("app").metadata)

    assert _seen(kafka, RunFinished(application_id="app", run_id="one"))["run_id"] == "one"
    assert _seen(kafka, RunFinished(application_id="app"))["run_id"] == "one"


def test_run_of_a_data_interval_is_found_whatever_its_id(
    kafka: InMemoryKafka, application: Application, publish: Callable[..., None]
) -> None:
    hour = 3_600_000
    wanted = RunFinished(application_id="app", interval_ms=(hour, 2 * hour))
    for number in range(3):
        publish(2)
        coordinator = Coordinator(kafka, application.checked, clock=kafka.clock)
        begun = coordinator.begin(
            f"run-{number}",
            application.topology.plan("app"),
            hold_lease=False,
            interval_ms=(number * hour, (number + 1) * hour),
        )
        coordinator.close()
        assert begun.slice is not None
        assert (_seen(kafka, wanted) is not None) is (number == 2), "begun, not finished"
        # The driver takes over what capture began.
        application.run(f"run-{number}")

    assert _seen(kafka, wanted)["run_id"] == "run-1"
    assert _seen(kafka, RunFinished(application_id="app", interval_ms=(hour, 3 * hour))) is None


def test_new_records_are_counted_as_a_reader_sees_them_when_transactions_commit_and_abort(
    kafka: InMemoryKafka, application: Application, publish: Callable[..., None]
) -> None:
    publish(6)
    application.run("one")
    wanted = NewData(application_id="app", min_records=3)
    publish(5, commit=False)
    assert _seen(kafka, wanted) is None, "aborted records and markers are nothing"
    publish(2)
    assert _seen(kafka, wanted) is None

    publish(1)

    seen = _seen(kafka, wanted)
    assert seen["records"] == 3
    assert seen["records_per_topic"] == {"orders": 3}


@pytest.mark.promise("looks-are-bounded")
def test_no_record_is_fetched_when_offsets_alone_decide(
    kafka: InMemoryKafka, application: Application, publish: Callable[..., None]
) -> None:
    publish(6)
    application.run("one")
    publish(4)
    counting = Counting()
    with ClusterView(FaultyCluster(kafka, counting)) as view:
        RunFinished(application_id="app").evaluate(view)
        view.facts("app")
        logs = counting.calls["reader.assign"]
        assert NewData(application_id="app", min_records=7).evaluate(view) is None
        assert counting.calls["reader.assign"] == logs
        assert NewData(application_id="app", min_records=4).evaluate(view) is not None
        assert counting.calls["reader.assign"] > logs


def test_one_old_record_is_enough_when_it_has_waited_long_enough(
    kafka: InMemoryKafka, application: Application, publish: Callable[..., None]
) -> None:
    publish(1)
    application.run("one")
    old = NewData(application_id="app", min_records=100, older_than_ms=60_000)
    assert _seen(kafka, old) is None, "nothing new has no age"
    publish(1, timestamp_ms=kafka.clock.now_ms() - 1_000)
    assert _seen(kafka, old) is None

    kafka.clock.sleep(60.0)

    assert _seen(kafka, old)["records"] == 1


def test_nothing_is_new_when_a_run_under_way_holds_it(
    kafka: InMemoryKafka, application: Application, publish: Callable[..., None]
) -> None:
    publish(4)
    application.begin("one")
    assert _seen(kafka, NewData(application_id="app")) is None

    publish(1)

    assert _seen(kafka, NewData(application_id="app"))["records"] == 1


def test_topics_must_be_named_when_the_application_never_ran(
    kafka: InMemoryKafka, publish: Callable[..., None]
) -> None:
    publish(3)
    with pytest.raises(ConfigError, match="has not run yet"):
        _seen(kafka, NewData(application_id="app"))
    with pytest.raises(ConfigError, match="no such topic: 'order'"):
        _seen(kafka, NewData(application_id="app", topics=("order",)))

    assert _seen(kafka, NewData(application_id="app", topics=("orders",), min_records=3))["records"] == 3


@pytest.mark.promise("misspelt-applications-are-refused")
@pytest.mark.remedy("conditions._inputs_of_last_run")
@pytest.mark.parametrize("kind", [NewData, CaughtUp])
def test_inputs_of_a_misspelt_application_are_found_when_its_id_is_corrected(
    kind: type[NewData | CaughtUp], kafka: InMemoryKafka, application: Application
) -> None:
    application.run("one")
    with pytest.raises(ConfigError, match="'apq' has not run yet") as refused:
        _seen(kafka, kind(application_id="apq"))
    assert refused.value.fix == "name them: topics=[...]; or correct application_id (did you mean 'app'?)"

    assert _seen(kafka, CaughtUp(application_id="app"))["records"] == 0
    assert _seen(kafka, CaughtUp(application_id="apq", topics=("orders",)))["records"] == 0


@pytest.mark.promise("misspelt-applications-are-refused")
def test_wait_says_that_no_run_has_begun_and_which_ids_are_spelt_alike(
    kafka: InMemoryKafka, application: Application
) -> None:
    application.run("one")
    with ClusterView(kafka, clock=kafka.clock) as view:
        misspelt = RunFinished(application_id="apq", run_id="two")
        assert why_not(misspelt, view) == (
            "no run of application 'apq' has begun on this cluster (did you mean 'app'?)"
        )
        unlike = RunFinished(application_id="orders", run_id="two")
        assert why_not(unlike, view) == "no run of application 'orders' has begun on this cluster"
        assert why_not(RunFinished(application_id="app", run_id="two"), view) == ""


def test_counting_goes_on_where_it_stopped_when_a_view_is_used_again(
    kafka: InMemoryKafka, application: Application, publish: Callable[..., None]
) -> None:
    publish(2)
    application.run("one")
    wanted = NewData(application_id="app", min_records=5)
    with ClusterView(kafka) as view:
        publish(3)
        assert wanted.evaluate(view) is None
        publish(2)
        assert wanted.evaluate(view) is None, "a round sees one moment"
        view.refresh()
        seen = wanted.evaluate(view)
        assert seen is not None
        assert seen["records"] == 5
        application.run("two")
        view.refresh()
        assert wanted.evaluate(view) is None, "the run has processed them"
        publish(5)
        view.refresh()
        again = wanted.evaluate(view)
        assert again is not None
        assert again["records"] == 5


def test_nothing_is_counted_twice_when_a_topic_is_made_anew(
    kafka: InMemoryKafka, publish: Callable[..., None]
) -> None:
    wanted = NewData(application_id="app", topics=("orders",), min_records=5, older_than_ms=10**15)
    with ClusterView(kafka) as view:
        publish(4)
        assert wanted.evaluate(view) is None
        kafka.admin().delete_topics(["orders"])
        kafka.create_topic("orders", partitions=2)
        publish(2)
        view.refresh()
        assert wanted.evaluate(view) is None


def test_topics_are_read_again_only_when_their_ends_moved(
    kafka: InMemoryKafka, application: Application, publish: Callable[..., None]
) -> None:
    publish(2)
    application.run("one")
    counting = Counting()
    with ClusterView(FaultyCluster(kafka, counting)) as view:
        for number in range(50):
            RunFinished(application_id="app", run_id=f"run-{number}").evaluate(view)
        first = counting.calls["reader.poll"]
        for _ in range(20):
            view.refresh()
            assert RunFinished(application_id="app", run_id="two").evaluate(view) is None
        assert counting.calls["reader.poll"] == first
        application.run("two")
        view.refresh()
        assert RunFinished(application_id="app", run_id="two").evaluate(view) is not None
    assert counting.calls["cluster.reader"] == counting.calls["reader.close"] == 1
    assert counting.calls["cluster.admin"] == counting.calls["admin.close"] == 1


def test_topics_are_asked_for_no_more_when_a_round_did_not_look_at_them(
    kafka: InMemoryKafka, application: Application, publish: Callable[..., None]
) -> None:
    publish(2)
    application.run("one")
    asked: list[set[str]] = []

    class Noting(Counting):
        def call(
            self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]
        ) -> Any:
            if name == "admin.end_offsets":
                asked.append({tp.topic for tp in arguments[0]})
            return super().call(name, client, effect, arguments)

    new, finished = NewData(application_id="app", topics=("orders",)), RunFinished(application_id="app")
    with ClusterView(FaultyCluster(kafka, Noting())) as view:
        new.evaluate(view)
        for _ in range(2):
            view.refresh()
            finished.evaluate(view)
        asked.clear()
        view.refresh()
        finished.evaluate(view)

    assert asked == [{"app-runs"}]


def test_topic_that_is_not_there_is_asked_for_once_in_a_round_however_many_wait_for_it(
    kafka: InMemoryKafka, application: Application
) -> None:
    counting = Counting()
    with ClusterView(FaultyCluster(kafka, counting)) as view:
        for rounds in (1, 2, 3):
            for number in range(50):
                assert RunFinished(application_id="app", run_id=f"run-{number}").evaluate(view) is None
            assert counting.calls["admin.describe_topics"] == rounds
            view.refresh()
        application.run("run-7")
        view.refresh()
        assert RunFinished(application_id="app", run_id="run-7").evaluate(view) is not None


def test_view_is_of_use_again_when_it_was_closed(
    kafka: InMemoryKafka, application: Application, publish: Callable[..., None]
) -> None:
    publish(2)
    application.run("one")
    counting = Counting()
    view = ClusterView(FaultyCluster(kafka, counting))
    for made in (1, 2):
        assert RunFinished(application_id="app", run_id="one").evaluate(view) is not None
        view.refresh()
        view.close()
        assert counting.calls["cluster.admin"] == counting.calls["admin.close"] == made


def test_subtopology_is_done_when_its_tasks_are_at_their_stops_and_have_told_so(
    kafka: InMemoryKafka, application: Application, publish: Callable[..., None]
) -> None:
    first, second = (StopOffsetsReached(application_id="app", run_id="one", subtopology=n) for n in (0, 1))
    assert _seen(kafka, first) is None
    publish(4)
    slice_ = application.begin("one")
    application.task(slice_, 0, 0)
    assert _seen(kafka, first) is None, "one task of two"
    application.task(slice_, 0, 1)
    assert set(_seen(kafka, first)["stop_offsets"]) == {"orders-0", "orders-1"}
    assert _seen(kafka, second) is None
    for group in range(2):
        application.task(slice_, 1, group)
    assert _seen(kafka, second) is not None
    application.finish("one")
    assert _seen(kafka, first) is not None
    publish(1)
    application.begin("two")
    assert _seen(kafka, first) is not None, "the ledger remembers"


def test_subtopology_is_named_when_there_is_no_such(
    kafka: InMemoryKafka, application: Application, publish: Callable[..., None]
) -> None:
    publish(1)
    application.begin("one")

    wanted = StopOffsetsReached(application_id="app", run_id="one", subtopology=7)
    with pytest.raises(ConfigError, match="no subtopology 7"):
        _seen(kafka, wanted)
    slice_ = application.begin("one", order=(0, 2))
    application.tasks(slice_)
    application.finish("one")
    with pytest.raises(ConfigError, match="no subtopology 7") as refused:
        _seen(kafka, wanted)
    assert "use one of 0, 1" in str(refused.value), "as before it was finished"


def test_nothing_is_written_when_a_cluster_is_looked_at(
    kafka: InMemoryKafka, application: Application, publish: Callable[..., None]
) -> None:
    publish(3)
    application.begin("one")
    counting = Counting()
    with ClusterView(FaultyCluster(kafka, counting)) as view:
        for condition in (
            RunFinished(application_id="app", run_id="one"),
            NewData(application_id="app"),
            CaughtUp(application_id="app"),
            StopOffsetsReached(application_id="app", run_id="one", subtopology=0),
        ):
            condition.evaluate(view)
    assert not [name for name in counting.calls if name.startswith("writer.") or name == "reader.commit"]
    assert not {"admin.create_topics", "admin.delete_topics", "admin.delete_records"} & set(counting.calls)
    assert ProtocolTopics("app").ledger == "app-runs"


@pytest.mark.parametrize(
    "condition",
    [
        RunFinished(application_id="a", run_id="r"),
        RunFinished(application_id="a", interval_ms=(0, 3_600_000)),
        NewData(application_id="a", topics=("t",), min_records=5, older_than_ms=7),
        CaughtUp(application_id="a", topics=("t",), max_records=5),
        StopOffsetsReached(application_id="a", run_id="r", subtopology=1),
    ],
)
def test_condition_is_the_same_when_a_trigger_has_carried_it(condition: Condition) -> None:
    assert condition_from_json(condition_to_json(condition)) == condition
    assert "application a" in str(condition)


def test_other_version_is_blamed_when_a_trigger_carries_what_is_not_known() -> None:
    with pytest.raises(ConfigError, match="cannot read what the deferred sensor waits for"):
        condition_from_json({"type": "no-such", "application_id": "a"})
