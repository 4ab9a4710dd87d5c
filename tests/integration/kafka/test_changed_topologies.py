"""A topology that changed between two runs: state it would lose or misread is refused, the way out works."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_kstreams.streams import KStreamBuilder, StoreSpec, Topology, TumblingWindow, serdes
from airflow_kstreams.streams.errors import TopologyError
from tests.conftest import Row
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept


@pytest.fixture
def source(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> str:
    return create_topic(topic_name("in"), 1)


@pytest.fixture
def target(topic_name: Callable[..., str], create_topic: Callable[..., str]) -> str:
    return create_topic(topic_name("out"), 1)


def counted(source: str, target: str, *, filtered: bool = False, store: str | None = None) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = builder.stream(source)
    if filtered:
        stream = stream.filter(lambda key, value: True)
    stream.group_by_key().count(store=store).to_stream().send_to(target, value_serde=serdes.int64())
    return builder.build()


def windowed(source: str, target: str, window: TumblingWindow) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    counts = builder.stream(source).group_by_key().windowed_by(window).count(store="counts")
    counts.to_stream().send_to(target, value_serde=serdes.int64())
    return builder.build()


def counts_in(rows: list[Row]) -> list[int]:
    return [int.from_bytes(row.value, "big") for row in rows]


def test_store_goes_on_when_a_filter_comes_before_it(
    kafka: str,
    application_id: str,
    source: str,
    target: str,
    produce: Callable[..., None],
    consume_all: Callable[..., list[Row]],
) -> None:
    for number, filtered in enumerate((False, True, False)):
        produce(source, [("a", 1)])
        topology = counted(source, target, filtered=filtered)
        Application(bootstrap=kafka, application_id=application_id, topology=topology).run(f"run-{number}")
    assert counts_in(consume_all(target)) == [1, 2, 3]


def test_store_that_got_a_name_is_refused_and_goes_on_with_the_one_it_has(
    kafka: str,
    application_id: str,
    source: str,
    target: str,
    produce: Callable[..., None],
    consume_all: Callable[..., list[Row]],
) -> None:
    def application(topology: Topology) -> Application:
        return Application(bootstrap=kafka, application_id=application_id, topology=topology)

    produce(source, [("a", 1)])
    application(counted(source, target)).run("run-1")
    produce(source, [("a", 1)])
    with pytest.raises(TopologyError, match=r"would begin empty with 'totals'") as refused:
        application(counted(source, target, store="totals")).begin("run-2")
    name = refused.value.fix.partition('store="')[2].partition('"')[0]
    application(counted(source, target, store=name)).run("run-2")
    assert counts_in(consume_all(target)) == [1, 2]


def test_state_is_given_up_by_the_printed_command(
    kafka: str,
    application_id: str,
    source: str,
    target: str,
    produce: Callable[..., None],
    consume_all: Callable[..., list[Row]],
) -> None:
    def application(topology: Topology) -> Application:
        return Application(bootstrap=kafka, application_id=application_id, topology=topology)

    produce(source, [("a", 1)])
    application(counted(source, target)).run("run-1")
    produce(source, [("a", 1)])
    with pytest.raises(TopologyError) as refused:
        application(counted(source, target, store="totals")).begin("run-2")
    accept(refused.value, kafka)
    application(counted(source, target, store="totals")).run("run-2")
    assert counts_in(consume_all(target)) == [1, 1]


def test_named_store_may_be_dropped_when_the_user_wants_so(
    kafka: str,
    application_id: str,
    source: str,
    target: str,
    produce: Callable[..., None],
    consume_all: Callable[..., list[Row]],
) -> None:
    produce(source, [("a", 1)])
    first = counted(source, target, store="one")
    Application(bootstrap=kafka, application_id=application_id, topology=first).run("run-1")
    produce(source, [("a", 1)])
    second = counted(source, target, store="two")
    Application(bootstrap=kafka, application_id=application_id, topology=second).run("run-2")
    assert counts_in(consume_all(target)) == [1, 1]


@pytest.mark.parametrize("change", ["size", "kind"])
def test_state_of_another_kind_is_refused_when_its_store_keeps_the_name(
    kafka: str,
    application_id: str,
    source: str,
    target: str,
    produce: Callable[..., None],
    change: str,
) -> None:
    produce(source, [("a", 1)])
    before = windowed(source, target, TumblingWindow(size_ms=10))
    Application(bootstrap=kafka, application_id=application_id, topology=before).run("run-1")
    produce(source, [("a", 1)])
    after = windowed(source, target, TumblingWindow(size_ms=25))
    if change == "kind":
        after = counted(source, target, store="counts")
    with pytest.raises(TopologyError, match=r"made by window size_ms=10, and .* read it as"):
        Application(bootstrap=kafka, application_id=application_id, topology=after).begin("run-2")


def test_grace_and_caching_may_change_when_the_windows_stay(
    kafka: str,
    application_id: str,
    source: str,
    target: str,
    produce: Callable[..., None],
    consume_all: Callable[..., list[Row]],
) -> None:
    for number, grace_ms in enumerate((0, 5_000), start=1):
        produce(source, [Row(key="a", value=1, timestamp_ms=1_000 + number)])
        topology = windowed(source, target, TumblingWindow(size_ms=10, grace_ms=grace_ms))
        Application(bootstrap=kafka, application_id=application_id, topology=topology).run(f"run-{number}")
    assert counts_in(consume_all(target)) == [1, 2]


def test_key_value_store_may_move_to_another_storage_when_its_name_stays(
    kafka: str,
    application_id: str,
    source: str,
    target: str,
    produce: Callable[..., None],
    consume_all: Callable[..., list[Row]],
) -> None:
    for number, storage in enumerate(("memory", "rocksdb"), start=1):
        produce(source, [("a", 1)])
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        spec = StoreSpec(
            name="counts",
            key_serde=serdes.string(),
            value_serde=serdes.int64(),
            storage=storage,  # type: ignore[arg-type]
        )
        builder.stream(source).group_by_key().count(store=spec).to_stream().send_to(target)
        Application(bootstrap=kafka, application_id=application_id, topology=builder.build()).run(
            f"run-{number}"
        )
    assert counts_in(consume_all(target)) == [1, 2]
