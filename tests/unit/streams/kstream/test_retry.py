"""Calls that fail are made again, through the retry topic of their node or where their record is."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import (
    CallContext,
    ConfigError,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    RecordError,
    RetryPolicy,
    Topology,
    TopologyError,
    TumblingWindow,
    serdes,
)
from airflow_kstreams.streams.graph.calls import delay_after
from airflow_kstreams.testing import TopologyTestDriver

pytestmark = pytest.mark.promise(
    "retries-keep-order", "parked-records-end-no-run-late", "calls-in-place-are-bounded"
)


class Service:
    """Fails for some values, or so many times for each.

    :ivar down: values for which it fails.
    :ivar failures: value -> how often it fails for it still.
    :ivar seen: values, idempotency keys and times of the calls.
    """

    def __init__(self, *down: Any, error: type[Exception] = ConnectionError) -> None:
        self.down = {*down}
        self.failures: dict[Any, int] = defaultdict(int)
        self.error = error
        self.seen: list[tuple[Any, str, int]] = []

    @property
    def called(self) -> list[Any]:
        return [value for value, _, _ in self.seen]

    async def ask(self, value: Any, *, context: CallContext) -> Any:
        self.seen.append((value, context.idempotency_key, context.timestamp_ms))
        await asyncio.sleep(0.001)
        self.failures[value] -= 1
        if value in self.down or self.failures[value] >= 0:
            raise self.error("away")
        return f"{value}!"


def topology(service: Service, *, order: Any = "key", **policy: Any) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    retry = RetryPolicy(**{"backoff_ms": 1_000, "jitter": 0, **policy})
    stream = builder.stream("in").map_values_async(service.ask, order=order, retry=retry, name="ask")
    stream.send_to("out")
    return builder.build()


def driver_of(made: Topology, *, seed: int = 0, **settings: Any) -> TopologyTestDriver:
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    return TopologyTestDriver(made, application_id="app", settings=dotted, async_seed=seed)


def values(driver: TopologyTestDriver, topic: str = "out") -> list[Any]:
    return [record.value for record in driver.read_output(topic)]


@pytest.mark.parametrize("order", ["key", "unordered"])
@pytest.mark.parametrize("seed", range(5))
def test_a_key_waits_and_the_others_go_on_when_a_call_fails(order: str, seed: int) -> None:
    service = Service("a1")
    with driver_of(topology(service, order=order), seed=seed) as driver:
        driver.pipe_records("in", [("a", "a1", 1), ("b", "b1", 2), ("a", "a2", 3), ("b", "b2", 4)])
        assert sorted(values(driver)) == ["b1!", "b2!"]
        service.down.clear()
        driver.pipe_input("in", key="a", value="a3", timestamp_ms=5)
        assert values(driver) == []
        driver.advance_wall_clock(1_000)
        found = driver.read_output("out")
        assert [(record.value, record.timestamp_ms) for record in found] == [
            ("a1!", 1),
            ("a2!", 3),
            ("a3!", 5),
        ]
        assert driver.store("ask-retry").approximate_count() == 0
        driver.read_output("app-ask-retry")
        driver.pipe_input("in", key="a", value="a4", timestamp_ms=6)
        assert values(driver) == ["a4!"]
        assert driver.read_output("app-ask-retry") == [], "the key is free, and its record was parked"


@pytest.mark.parametrize("seed", range(5))
def test_what_is_behind_a_failed_call_of_its_key_is_not_called_when_order_is_key(seed: int) -> None:
    service = Service("a1")
    with driver_of(topology(service), seed=seed) as driver:
        driver.pipe_records("in", [("a", "a1", 1), ("a", "a2", 2), ("a", "a3", 3)])
        assert service.called == ["a1"]
        driver.advance_wall_clock(1_000)
        assert service.called == ["a1", "a1"]
        service.down.clear()
        driver.advance_wall_clock(2_000)
        assert service.called == ["a1", "a1", "a1", "a2", "a3"]


def test_a_call_is_made_again_with_its_key_and_time_when_it_was_parked() -> None:
    service = Service("x")
    with driver_of(topology(service)) as driver:
        driver.pipe_input("in", key="a", value="x", timestamp_ms=7, headers=[("h", b"1")])
        driver.restart()
        service.down.clear()
        driver.advance_wall_clock(1_000)
        assert service.seen == [("x", "app/in-0@0/test/ask/0", 7)] * 2
        (found,) = driver.read_output("out")
        assert (found.key, found.timestamp_ms, found.headers) == ("a", 7, [("h", b"1")])


class Marking(Processor):
    """Forwards each record later, and with headers of its own."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, record.value, timestamp_ms=100, headers=[("own", b"2")])


def test_a_parked_record_has_what_a_processor_gave_it_and_its_letter_what_was_consumed() -> None:
    service = Service("x", "y")
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    known: dict[str, Any] = {"key_serde": serdes.string(), "value_serde": serdes.json()}
    retry = RetryPolicy(attempts=2, backoff_ms=1_000, jitter=0, **known)
    marked = builder.stream("in").process(Marking)
    marked.map_values_async(service.ask, order="key", retry=retry, name="ask").send_to("out", **known)
    with driver_of(builder.build()) as driver:
        driver.pipe_input("in", key="a", value="x", timestamp_ms=7, headers=[("h", b"1")])
        driver.pipe_input("in", key="b", value="y", timestamp_ms=8, headers=[("h", b"1")])
        driver.restart()
        service.down.discard("x")
        driver.advance_wall_clock(1_000)
        (found,) = driver.read_output("out")
        assert (found.value, found.timestamp_ms, found.headers) == ("x!", 100, [("own", b"2")])
        (letter,) = driver.read_output("app-dead-letter")
        assert (letter.value, letter.timestamp_ms, letter.headers[0]) == (b'"y"', 8, ("h", b"1"))


def test_back_off_doubles_up_to_its_limit_when_calls_go_on_failing() -> None:
    service = Service("x")
    made = topology(service, attempts=6, backoff_ms=1_000, backoff_max_ms=5_000)
    called_at: list[int] = []
    with driver_of(made) as driver:
        driver.pipe_input("in", key="a", value="x", timestamp_ms=0)
        for now_ms in range(500, 30_000, 500):
            before = len(service.seen)
            driver.advance_wall_clock(500)
            called_at += [now_ms] * (len(service.seen) - before)
    assert called_at == [1_000, 3_000, 7_000, 12_000, 17_000]


def test_jitter_is_the_same_for_a_record_and_attempt_and_differs_among_them() -> None:
    policy = RetryPolicy(backoff_ms=1_000, jitter=0.5)
    drawn = {delay_after(policy, 1, f"in-0@{at}") for at in range(50)}
    assert all(500 <= delay_ms <= 1_000 for delay_ms in drawn)
    assert len(drawn) > 30
    assert delay_after(policy, 3, "in-0@1") == delay_after(policy, 3, "in-0@1")
    assert delay_after(policy, 3, "in-0@1") != 4 * delay_after(policy, 1, "in-0@1")


def test_records_that_fail_together_are_not_called_again_at_the_same_time() -> None:
    service = Service(*range(6))
    with driver_of(topology(service, jitter=1)) as driver:
        driver.pipe_records("in", [(f"k{n}", n, n) for n in range(6)])
        due_ms = {parked.value.not_before_ms for parked in driver.read_output("app-ask-retry")}
    assert len(due_ms) == 6


@pytest.mark.parametrize("handler", ["fail", "skip", "dead-letter"])
def test_the_record_is_a_dead_letter_and_its_key_goes_on_when_the_last_call_failed(handler: str) -> None:
    service = Service("x")
    with driver_of(topology(service, attempts=3), processing_exception_handler=handler) as driver:
        driver.pipe_input("in", key="a", value="x", timestamp_ms=7, headers=[("h", b"1")])
        driver.pipe_input("in", key="a", value="y", timestamp_ms=8)
        driver.advance_wall_clock(1_000)
        assert values(driver) == []
        driver.advance_wall_clock(2_000)
        assert service.called == ["x", "x", "x", "y"]
        assert values(driver) == ["y!"]
        (letter,) = driver.read_output("app-dead-letter")
        assert (letter.key, letter.value, letter.headers[0]) == (b"a", b'"x"', ("h", b"1"))
        facts = dict(letter.headers)
        assert facts["__streams.errors.exception"] == b"builtins.ConnectionError"
        assert (facts["__streams.errors.topic"], facts["__streams.errors.offset"]) == (b"in", b"0")
        assert facts["__streams.errors.node"] == b"ask"
        assert driver.store("ask-retry").approximate_count() == 0
        assert driver.counts.by("dead-lettered") == 1


def test_the_dead_letter_has_the_consumed_bytes_when_the_node_got_others() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    rekeyed = builder.stream("in").map(lambda key, value: (value["to"], value["n"]))
    retry = RetryPolicy(attempts=2, key_serde=serdes.string(), value_serde=serdes.int64())
    rekeyed.map_values_async(Service(5).ask, order="key", retry=retry, name="ask").send_to("out")
    with driver_of(builder.build()) as driver:
        driver.pipe_input("in", key="k", value={"to": "b", "n": 5}, timestamp_ms=7)
        (parked,) = driver.read_output("app-ask-retry")
        assert (parked.key.key, parked.value.original) == (b"b", (b"k", b'{"to":"b","n":5}'))
        driver.advance_wall_clock(1_000)
        (letter,) = driver.read_output("app-dead-letter")
        assert (letter.key, letter.value, letter.timestamp_ms) == (b"k", b'{"to":"b","n":5}', 7)


def test_the_task_fails_at_the_record_when_it_is_to_fail_after_the_last_call() -> None:
    service = Service("x")
    driver = driver_of(topology(service, attempts=2, then="fail"))
    driver.pipe_input("in", key="a", value="x", timestamp_ms=7)
    with pytest.raises(RecordError, match=r"in-0@0 at node 'ask'.*ConnectionError: away") as caught:
        driver.advance_wall_clock(1_000)
    assert (caught.value.node, caught.value.offset) == ("ask", 0)
    driver.close()


@pytest.mark.parametrize("order", ["key", "unordered", "partition"])
def test_an_error_of_another_class_is_not_tried_again(order: str) -> None:
    service = Service("x", error=ValueError)
    made = topology(service, order=order, errors=(ConnectionError,))
    with driver_of(made, processing_exception_handler="dead-letter") as driver:
        driver.pipe_records("in", [("a", "x", 1), ("a", "y", 2)])
        assert sorted(service.called) == ["x", "y"]
        assert values(driver) == ["y!"]
        assert len(driver.read_output("app-dead-letter")) == 1


def test_an_error_of_another_class_ends_a_parked_record() -> None:
    service = Service("x")
    made = topology(service, errors=(ConnectionError,))
    with driver_of(made, processing_exception_handler="skip") as driver:
        driver.pipe_records("in", [("a", "x", 1), ("a", "y", 2)])
        service.error = ValueError
        driver.advance_wall_clock(1_000)
        assert service.called == ["x", "x", "y"]
        assert (values(driver), driver.counts.by("skipped")) == (["y!"], 1)


def test_parked_records_come_before_new_ones_of_their_key_in_the_next_run() -> None:
    service = Service("a1")
    with driver_of(topology(service)) as driver:
        with driver.run():
            driver.pipe_records("in", [("a", "a1", 1), ("b", "b1", 2)])
        assert values(driver) == ["b1!"]
        service.down.clear()
        with driver.run():  # not due yet
            driver.pipe_records("in", [("a", "a2", 3), ("b", "b2", 4)])
        assert values(driver) == ["b2!"]
        driver.advance_wall_clock(1_000)
        with driver.run():
            driver.pipe_records("in", [("a", "a3", 5), ("b", "b3", 6)])
        found = values(driver)
        assert [value for value in found if value[0] == "a"] == ["a1!", "a2!", "a3!"]
        assert sorted(found) == ["a1!", "a2!", "a3!", "b3!"]


def test_parked_records_are_called_in_a_run_without_new_ones() -> None:
    service = Service("x")
    with driver_of(topology(service)) as driver:
        with driver.run():
            driver.pipe_input("in", key="a", value="x", timestamp_ms=1)
        service.down.clear()
        driver.advance_wall_clock(1_000)
        with driver.run():
            pass
        assert values(driver) == ["x!"]


def test_no_record_is_passed_and_none_lost_when_so_much_is_parked_as_may_be() -> None:
    service = Service("x1", "x2")
    keys = ["a", "b", *"cdefgh"]
    with driver_of(topology(service, max_parked=2, attempts=4), max_waiting_results=1) as driver:
        driver.pipe_records("in", [(key, f"x{at}", at) for at, key in enumerate(keys, 1)])
        # The task chose no more until the two had failed four times, for which time had to pass.
        assert service.called[:2] == ["x1", "x2"]
        assert service.called[2:8].count("x3") == 0
        assert values(driver) == ["x3!", "x4!", "x5!", "x6!", "x7!", "x8!"]
        assert len(driver.read_output("app-dead-letter")) == 2


def test_state_below_sees_the_order_of_each_key_when_records_were_parked() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    service = Service("a1")
    asked = builder.stream("in").map_values_async(
        service.ask, order="key", retry=RetryPolicy(jitter=0), name="ask"
    )
    lists = asked.group_by_key(value_serde=serdes.json()).aggregate(
        list, lambda key, value, seen: [*seen, value], store="lists", value_serde=serdes.json()
    )
    lists.to_stream().send_to("out")
    with driver_of(builder.build()) as driver:
        driver.pipe_records("in", [("a", "a1", 1), ("b", "b1", 2), ("a", "a2", 3)])
        service.down.clear()
        driver.pipe_records("in", [("a", "a3", 4), ("b", "b2", 5)])
        driver.advance_wall_clock(1_000)
        assert dict(driver.store("lists").all()) == {"a": ["a1!", "a2!", "a3!"], "b": ["b1!", "b2!"]}


def test_a_window_below_counts_a_parked_record_by_its_own_time() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    service = Service("soon", "late")
    asked = builder.stream("in").map_values_async(
        service.ask, order="key", retry=RetryPolicy(jitter=0), name="ask"
    )
    grouped = asked.group_by_key(value_serde=serdes.json())
    grouped.windowed_by(TumblingWindow(size_ms=10, grace_ms=10)).count(store="windows")
    with driver_of(builder.build()) as driver:
        driver.pipe_input("in", key="a", value="late", timestamp_ms=5)
        driver.pipe_input("in", key="b", value="soon", timestamp_ms=25)
        driver.pipe_input("in", key="c", value="c", timestamp_ms=35)
        service.down.clear()
        driver.advance_wall_clock(1_000)
        windows = dict(driver.store("windows").all())
        assert windows == {("b", 20): 1, ("c", 30): 1}
        assert driver.counts.by("late") == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_record_passes_each_node_once_when_it_is_parked_above_another_one_that_calls_again(
    seed: int,
) -> None:
    above, below = Service("a1"), Service("a1!")
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    retry = RetryPolicy(backoff_ms=1_000, multiplier=1, jitter=0)
    stream = builder.stream("in").map_values_async(above.ask, order="key", retry=retry, name="above")
    counts = stream.map_values_async(below.ask, order="key", retry=retry, name="below").group_by_key().count()
    counts.to_stream().send_to("out", value_serde=serdes.int64())
    with driver_of(builder.build(), seed=seed) as driver:
        driver.pipe_records("in", [("a", "a1", 1), ("a", "a2", 2)])
        above.down.clear()
        driver.advance_wall_clock(1_000)
        assert (above.called, below.called) == (["a1", "a1", "a2"], ["a1!"])
        below.down.clear()
        driver.advance_wall_clock(1_000)
        driver.pipe_input("in", key="a", value="a3", timestamp_ms=3)
        assert below.called == ["a1!", "a1!", "a2!", "a3!"]
        assert values(driver)[-1] == 3


def test_the_end_of_a_run_closes_no_window_of_a_parked_record() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    service = Service("first")
    asked = builder.stream("in").map_values_async(
        service.ask, order="key", retry=RetryPolicy(jitter=0), name="ask"
    )
    grouped = asked.group_by_key(value_serde=serdes.json())
    grouped.windowed_by(TumblingWindow(size_ms=10, grace_ms=0)).count(store="windows")
    with driver_of(builder.build(), retry_run_budget_ms=0) as driver:
        with driver.run():
            driver.pipe_records("in", [("a", "first", 5), ("b", "second", 6)])
        with driver.run():
            driver.pipe_records("in", [("b", "third", 9)])
        service.down.clear()
        driver.advance_wall_clock(60_000)
        with driver.run():
            """Only what is parked."""
        assert dict(driver.store("windows").all()) == {("a", 0): 1, ("b", 0): 2}


def test_what_a_commit_point_brought_about_is_parked_and_called_again_without_a_record() -> None:
    seen: list[Any] = []

    async def ask(count: int, *, context: CallContext) -> int:
        seen.append((count, context.topic, context.partition, context.offset, context.headers))
        if len(seen) == 1:
            raise ConnectionError
        return count

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    counts = builder.stream("in").group_by_key().count(store="counts").to_stream()
    retry = RetryPolicy(jitter=0, value_serde=serdes.int64())
    counts.map_values_async(ask, order="key", retry=retry, name="ask").send_to("out")
    with driver_of(builder.build()) as driver:
        driver.pipe_records("in", [("a", "x", 7), ("a", "y", 8)])
        (parked,) = driver.read_output("app-ask-retry")
        assert (parked.value.topic, parked.value.original, parked.value.timestamp_ms) == (None, None, 8)
        driver.restart()
        driver.advance_wall_clock(1_000)
        found = [(record.key, record.value, record.timestamp_ms) for record in driver.read_output("out")]
        assert found == [("a", 2, 8)]
    assert seen == [(2, None, -1, -1, [])] * 2


def test_calls_below_keep_their_idempotency_keys_when_a_record_was_parked_above() -> None:
    def keys(fails: int) -> set[tuple[str, str]]:
        seen: set[tuple[str, str]] = set()
        first = Service()
        first.failures["x"] = fails

        async def note(value: str, *, context: CallContext) -> str:
            seen.add((value, context.idempotency_key))
            return value

        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        both = builder.stream("in").flat_map_values(lambda value: [value, "y"])
        retry = RetryPolicy(jitter=0, value_serde=serdes.string())
        asked = both.map_values_async(first.ask, order="key", retry=retry, name="ask")
        asked.flat_map_values(lambda value: [f"{value}1", f"{value}2"]).map_values_async(
            note, name="note"
        ).send_to("out", value_serde=serdes.string())
        with driver_of(builder.build()) as driver:
            driver.pipe_input("in", key="a", value="x", timestamp_ms=0)
            driver.advance_wall_clock(1_000)
            assert values(driver) == ["x!1", "x!2", "y!1", "y!2"]
        return seen

    assert len(keys(0)) == len({key for _, key in keys(0)}) == 4
    assert keys(0) == keys(1)


@pytest.mark.parametrize("seed", range(5))
def test_calls_are_repeated_where_their_record_is_when_order_is_partition(seed: int) -> None:
    service = Service()
    service.failures["x"] = 2
    with driver_of(topology(service, order="partition"), seed=seed) as driver:
        driver.pipe_records("in", [("a", "x", 1), ("b", "y", 2), ("a", "z", 3)])
        assert values(driver) == ["x!", "y!", "z!"]
        assert sorted(service.called) == ["x", "x", "x", "y", "z"]


@pytest.mark.parametrize(("budget_ms", "calls"), [(30_000, 4), (2_999, 2), (3_000, 3), (0, 1)])
def test_a_call_in_place_is_given_up_when_its_attempts_or_the_budget_are_used_up(
    budget_ms: int, calls: int
) -> None:
    service = Service("x")
    made = topology(service, order="partition", attempts=4)
    with driver_of(made, retry_run_budget_ms=budget_ms) as driver:
        driver.pipe_records("in", [("a", "x", 1), ("b", "y", 2)])
        assert service.called.count("x") == calls
        assert values(driver) == ["y!"]
        assert len(driver.read_output("app-dead-letter")) == 1


@pytest.mark.promise("calls-see-the-value-as-it-was")
def test_each_call_in_place_sees_key_and_value_as_they_were_when_functions_edit_them() -> None:
    seen: list[Any] = []

    async def edit(key: Any, value: Any) -> tuple[Any, Any]:
        seen.append(([*key], [*value]))
        key.append("edited")
        value.append("edited")
        if len(seen) < 4:
            raise ConnectionError
        return key, value

    builder = KStreamBuilder(default_key_serde=serdes.json(), default_value_serde=serdes.json())
    retry = RetryPolicy(attempts=5, jitter=0)
    builder.stream("in").map_async(edit, retry=retry, name="edit").send_to("out")
    with driver_of(builder.build()) as driver:
        driver.pipe_input("in", key=["a"], value=[1], timestamp_ms=1)
        assert seen == [(["a"], [1])] * 4
        assert values(driver) == [[1, "edited"]]


def test_a_call_in_place_fails_the_task_when_it_is_to() -> None:
    made = topology(Service("x"), order="partition", attempts=2, then="fail")
    driver = driver_of(made)
    with pytest.raises(RecordError, match="in-0@0 at node 'ask'"):
        driver.pipe_input("in", key="a", value="x", timestamp_ms=1)
    driver.close()


def test_functions_see_what_the_serdes_give_in_the_first_call_too() -> None:
    seen: list[Any] = []

    async def note(value: Any) -> Any:
        seen.append(value)
        value.append("changed in place")
        if len(seen) == 1:
            raise ConnectionError
        return value

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    tuples = builder.stream("in").map_values(lambda value: (value,))
    retry = RetryPolicy(jitter=0, value_serde=serdes.json())
    tuples.map_values_async(note, order="key", retry=retry, name="note").send_to("out")
    with driver_of(builder.build()) as driver:
        driver.pipe_input("in", key="a", value=1, timestamp_ms=1)
        driver.advance_wall_clock(1_000)
        assert values(driver) == [[1, "changed in place"]]


def test_a_value_that_cannot_be_parked_fails_at_its_record_before_it_is_called() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    service = Service()
    retry = RetryPolicy(value_serde=serdes.int64())
    builder.stream("in").map_values_async(service.ask, order="key", retry=retry, name="ask").send_to("out")
    driver = driver_of(builder.build())
    with pytest.raises(RecordError, match=r"in-0@0 at node 'ask'.*cannot be kept by serdes.int64"):
        driver.pipe_input("in", key="a", value="x", timestamp_ms=1)
    assert service.called == []
    driver.close()


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({"attempts": 1}, "attempts=1"),
        ({"attempts": True}, "attempts=True"),
        ({"backoff_ms": -1}, "backoff_ms=-1"),
        ({"backoff_ms": 2, "backoff_max_ms": 1}, "backoff_max_ms=1"),
        ({"multiplier": 0.5}, "multiplier=0.5"),
        ({"jitter": 1.5}, "jitter=1.5"),
        ({"errors": ()}, "errors="),
        ({"errors": (KeyboardInterrupt,)}, "errors="),
        ({"errors": ValueError}, "errors="),
        ({"then": "skip"}, "then='skip'"),
        ({"max_parked": 0}, "max_parked=0"),
        ({"key_serde": "json"}, "key_serde"),
    ],
)
def test_a_policy_is_refused_that_cannot_be(policy: dict[str, Any], text: str) -> None:
    with pytest.raises(TopologyError, match=text):
        RetryPolicy(**policy)


def refused(build: Callable[[Any], Any]) -> str:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    with pytest.raises(TopologyError) as caught:
        build(builder.stream("in"))
    return str(caught.value)


def test_retry_is_refused_without_name_or_serde() -> None:
    ask, policy = Service().ask, RetryPolicy()
    assert "has retry= and no name=" in refused(lambda s: s.map_values_async(ask, retry=policy))
    assert "is given int as retry" in refused(lambda s: s.map_values_async(ask, retry=3, name="ask"))
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=None)
    stream = builder.stream("in", value_serde=serdes.string()).map_values(len)
    with pytest.raises(TopologyError, match="needs a value serde, and none is known after map_values"):
        stream.map_values_async(ask, retry=policy, order="key", name="ask")


@pytest.mark.parametrize(
    ("settings", "policy", "text"),
    [
        ({"run_stall_timeout_ms": 31_000, "retry_run_budget_ms": 31_000}, {}, "run.stall.timeout.ms"),
        ({"run_stall_timeout_ms": 60_000}, {"backoff_max_ms": 60_000}, "backoff_max_ms=60000"),
    ],
)
def test_waiting_is_refused_that_would_look_like_a_standstill(
    settings: dict[str, Any], policy: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        driver_of(topology(Service(), **policy), **settings)


def test_the_retry_topic_is_a_changelog_of_its_own_name() -> None:
    plan = topology(Service()).plan("app")
    assert plan.changelogs == {"app-ask-retry": 0}
    assert plan.gives_up
    assert not topology(Service(), then="fail").plan("app").gives_up
    assert topology(Service(), order="partition").plan("app").changelogs == {}
