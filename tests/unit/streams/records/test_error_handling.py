from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStream,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    SlidingWindow,
    StoreSpec,
    TumblingWindow,
    serdes,
    timestamps,
)
from airflow_kstreams.streams.errors import ConfigError, RecordError, StateStoreError, TopologyError
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import TopologyTestDriver

pytestmark = pytest.mark.promise("handlers-act-at-the-node", "dead-letters-are-as-consumed")

SKIP = {"processing.exception.handler": "skip", "deserialization.exception.handler": "skip"}
DEAD = {
    "processing.exception.handler": "dead-letter",
    "deserialization.exception.handler": "dead-letter",
}


def driver_of(shape: Any, settings: dict[str, str]) -> TopologyTestDriver:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(int))
    shape(builder.stream("in"))
    return TopologyTestDriver(builder.build(), application_id="app", settings=settings)


def inverse(stream: KStream) -> None:
    stream.map_values(lambda value: 12 // value).send_to("out", value_serde=serdes.json())
    stream.send_to("copy")


def values(driver: TopologyTestDriver, topic: str = "out") -> list[Any]:
    return [record.value for record in driver.read_output(topic)]


def test_record_keeps_its_time_on_its_other_paths_when_a_joiner_fails() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    window = SlidingWindow(size_ms=100)
    right = builder.stream("right")
    pairs = (
        builder.stream("left").with_window(window).join(right.with_window(window), lambda one, two: one / two)
    )
    pairs.send_to("out")
    right.send_to("copy")
    with TopologyTestDriver(builder.build(), application_id="app", settings=SKIP) as driver:
        driver.pipe_input("left", key="a", value=1, timestamp_ms=50)
        driver.pipe_input("right", key="a", value=0, timestamp_ms=10)
        assert [record.timestamp_ms for record in driver.read_output("copy")] == [10]


def test_other_elements_are_joined_with_none_when_the_joiner_fails_for_one_at_the_windows_close() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    window = SlidingWindow(size_ms=10, grace_ms=0)
    left, right = builder.stream("left"), builder.stream("right")
    left.with_window(window).left_join(right.with_window(window), lambda one, other: 12 // one).send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app", settings=DEAD) as driver:
        for key, value in (("a", 3), ("b", 0), ("c", 4)):
            driver.pipe_input("left", key=key, value=value, timestamp_ms=10)
        driver.pipe_input("right", key="z", value=0, timestamp_ms=1_000)
        assert values(driver) == [4, 3]
        (dead,) = driver.read_output("app-dead-letter")
    assert (dead.key, dead.value) == (None, None), "it belongs to no consumed record"


@pytest.mark.parametrize("clock", ["stream_time", "wall_clock"])
def test_punctuation_goes_on_when_it_failed_once_and_the_handler_says_so(clock: Any) -> None:
    class Ticking(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context = context
            context.schedule(10, clock=clock)

        def process(self, record: ProcessorRecord) -> None:
            self.context.forward(record.key, record.value)

        def punctuate(self, stream_time_ms: int) -> None:
            self.context.forward("tick", 12 // (stream_time_ms - 20))

    with driver_of(lambda stream: stream.process(Ticking).send_to("out"), SKIP) as driver:
        for now_ms in (10, 20, 30):
            driver.advance_wall_clock(10)
            driver.pipe_input("in", key="a", value=now_ms, timestamp_ms=now_ms)
        ticks = [record.value for record in driver.read_output("out") if record.key == "tick"]
    assert ticks == [-2, 1]


def test_run_fails_when_no_handler_is_set() -> None:
    driver = driver_of(inverse, {})
    with pytest.raises(RecordError, match="in-0@0"):
        driver.pipe_input("in", key="a", value=0, timestamp_ms=5)


@pytest.mark.parametrize("extractor", [None, timestamps.record_time()])
def test_record_is_a_dead_letter_as_it_was_consumed_when_it_has_no_timestamp(
    extractor: timestamps.TimestampExtractor | None,
) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in", timestamps=extractor).send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app", settings=DEAD) as driver:
        driver.pipe_input("in", key="a", value=1, timestamp_ms=-1)
        driver.pipe_input("in", key="b", value=2, timestamp_ms=5)
        assert [(r.key, r.value) for r in driver.read_output("app-dead-letter")] == [(b"a", b"1")]
        assert values(driver) == [2]


def test_dead_letter_has_the_consumed_records_time_when_an_extractor_gave_another() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(int))
    stream = builder.stream("in", timestamps=timestamps.extract(lambda record: record.value))
    stream.map_values(lambda value: 1 // (value - 42)).send_to("out", value_serde=serdes.json())
    with TopologyTestDriver(builder.build(), application_id="app", settings=DEAD) as driver:
        driver.pipe_input("in", key="a", value=42, timestamp_ms=7)
        assert [record.timestamp_ms for record in driver.read_output("app-dead-letter")] == [7]


def test_record_is_skipped_at_its_node_and_logged_when_the_handler_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = driver_of(inverse, SKIP)
    with caplog.at_level(logging.WARNING):
        for value in (3, 0, 4):
            driver.pipe_input("in", key="a", value=value, timestamp_ms=5)
    assert values(driver) == [4, 3]
    assert values(driver, "copy") == [3, 0, 4], "its other path through the topology is not touched"
    assert "in-0@1 at node 'KSTREAM-MAPVALUES-0000000001'" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_record_goes_to_the_dead_letter_topic_with_its_bytes_when_the_handler_says_so() -> None:
    driver = driver_of(inverse, DEAD)
    driver.pipe_input("in", key="a", value=0, timestamp_ms=5, headers=[("own", b"1")])
    (letter,) = driver.read_output("app-dead-letter")
    line = inverse.__code__.co_firstlineno + 1
    assert (letter.key, letter.value, letter.timestamp_ms) == (b"a", b"0", 5)
    headers = dict(letter.headers)
    stacktrace = headers.pop("__streams.errors.stacktrace")
    assert stacktrace is not None
    assert b"ZeroDivisionError" in stacktrace
    assert headers == {
        "own": b"1",
        "__streams.errors.exception": b"builtins.ZeroDivisionError",
        "__streams.errors.message": b"integer division or modulo by zero",
        "__streams.errors.topic": b"in",
        "__streams.errors.partition": b"0",
        "__streams.errors.offset": b"0",
        "__streams.errors.node": b"KSTREAM-MAPVALUES-0000000001",
        "__streams.errors.first.place": b"in-0@0/test",
        "__streams.errors.topic.id": b"test",
        "__streams.errors.timestamp": b"5",
        "__streams.errors.purpose": b"map values at test_error_handling.py:%d" % line,
    }


def test_stack_trace_of_a_letter_leaves_out_the_lines_of_generated_loops() -> None:
    def shape(stream: KStream) -> None:
        stream.map_values(_inverse_of_inverse).send_to("out", value_serde=serdes.json())

    driver = driver_of(shape, DEAD)
    driver.pipe_input("in", key="a", value=0, timestamp_ms=5)
    (letter,) = driver.read_output("app-dead-letter")
    trace = dict(letter.headers)["__streams.errors.stacktrace"] or b""
    assert trace.count(b"in _inverse_of_inverse") == 2, "of the error that it raises, and of that one's cause"
    assert b"modulo by zero" in trace
    assert b"ValueError: no inverse" in trace
    assert b"<source loop>" not in trace


def _inverse_of_inverse(value: int) -> int:
    try:
        return 1 // value
    except ZeroDivisionError as error:
        raise ValueError("no inverse") from error


def test_dead_letter_topic_has_the_users_name_when_given() -> None:
    driver = driver_of(inverse, {**DEAD, "errors.dead.letter.queue.topic.name": "letters"})
    driver.pipe_input("in", key="a", value=0, timestamp_ms=5)
    assert len(driver.read_output("letters")) == 1


def test_result_is_handled_when_its_sink_cannot_encode_it() -> None:
    def shape(stream: KStream) -> None:
        stream.map_values(str).send_to("out", value_serde=serdes.int64())  # type: ignore[arg-type]
        stream.send_to("copy")

    driver = driver_of(shape, DEAD)
    driver.pipe_input("in", key="a", value=1, timestamp_ms=5)
    assert (values(driver), values(driver, "copy")) == ([], [1])
    (letter,) = driver.read_output("app-dead-letter")
    assert dict(letter.headers)["__streams.errors.node"] == b"KSTREAM-SINK-0000000002"


def test_innermost_node_is_blamed_when_several_lie_on_the_way() -> None:
    def shape(stream: KStream) -> None:
        stream.filter(lambda k, v: True).map_values(lambda v: 1 // v).filter(lambda k, v: True).send_to(
            "out", value_serde=serdes.json()
        )

    driver = driver_of(shape, DEAD)
    driver.pipe_input("in", key="a", value=0, timestamp_ms=5)
    (letter,) = driver.read_output("app-dead-letter")
    assert dict(letter.headers)["__streams.errors.node"] == b"KSTREAM-MAPVALUES-0000000002"


@pytest.mark.parametrize(("settings", "letters"), [(SKIP, 0), (DEAD, 1)])
def test_undecodable_record_is_handled_when_it_is_read(settings: dict[str, str], letters: int) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string())
    builder.stream("raw", value_serde=serdes.bytes()).send_to("in")
    builder.stream("in", value_serde=serdes.json(int)).send_to("out")
    driver = TopologyTestDriver(builder.build(), application_id="app", settings=settings)
    for value in (b"1", b"no number", b"2"):
        driver.pipe_input("raw", key="a", value=value, timestamp_ms=5)
    assert values(driver) == [1, 2]
    found = driver.read_output("app-dead-letter") if letters else []
    assert [letter.value for letter in found] == [b"no number"] * letters


def test_dead_letter_has_no_record_when_a_result_fails_at_a_commit_point() -> None:
    def shape(stream: KStream) -> None:
        counts = stream.group_by_key().count(store="counts").to_stream()
        counts.map_values(lambda count: 1 // (count - 2)).send_to("out", value_serde=serdes.json())

    driver = driver_of(shape, DEAD)
    for _ in range(3):
        driver.pipe_input("in", key="a", value=1, timestamp_ms=5)
    assert values(driver) == [-1, 1]
    (letter,) = driver.read_output("app-dead-letter")
    assert (letter.key, letter.value) == (None, None)
    assert dict(letter.headers)["__streams.errors.offset"] == b"-1"


def test_engine_errors_end_the_task_when_a_handler_is_set() -> None:
    class Breaking(Processor):
        def init(self, context: ProcessorContext) -> None:
            """Do nothing."""

        def process(self, record: ProcessorRecord) -> None:
            raise StateStoreError("broken", fix="none")

    driver = driver_of(lambda s: s.process(Breaking).send_to("out", value_serde=serdes.json()), SKIP)
    with pytest.raises(StateStoreError, match="broken"):
        driver.pipe_input("in", key="a", value=1, timestamp_ms=5)


def test_setting_is_refused_when_the_policy_is_unknown() -> None:
    with pytest.raises(ConfigError, match="fail, skip, dead-letter"):
        ApplicationSettings.parse("app", {"processing.exception.handler": "ignore"})


def _parsed(value: Any) -> int:
    return int(value)


@pytest.mark.parametrize("settings", [SKIP, DEAD])
def test_values_stay_out_of_the_log_when_pythons_error_repeats_them(
    settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").map_values(_parsed).send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app", settings=settings) as driver:
        driver.pipe_input("in", key="a", value="canary", timestamp_ms=0)
    assert "invalid literal for int() with base 10: '***'" in caplog.text
    assert "canary" not in caplog.text


@pytest.mark.promise("errors-hold-no-values")
@pytest.mark.parametrize("settings", [SKIP, DEAD])
@pytest.mark.parametrize("value", ["canary " * 100, "C:\\canary\\" * 100, "canary 'x' \" canary " * 50])
def test_values_stay_out_of_the_log_when_pythons_error_cuts_its_quotation(
    value: str, settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").map_values(_parsed).send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app", settings=settings) as driver:
        driver.pipe_input("in", key="a", value=value, timestamp_ms=0)
    assert "invalid literal for int() with base 10: " in caplog.text
    assert "canary" not in caplog.text


@pytest.mark.promise("errors-hold-no-values")
@pytest.mark.parametrize(
    ("value", "function", "said"),
    [
        ({"card": "canary"}, lambda value: {}[value["card"]], "KeyError: '***'"),
        ({"card": "canary"}, lambda value: value["amount"], "KeyError: 'amount'"),
        ({"card": 987654}, lambda value: [][value["card"]], "IndexError: list index out of range"),
        ("canary", lambda value: value.amount, "'str' object has no attribute 'amount'"),
    ],
)
def test_values_stay_out_of_errors_and_names_in_when_a_function_fails(
    value: Any, function: Any, said: str
) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").map_values(function).send_to("out")
    with (
        TopologyTestDriver(builder.build(), application_id="app") as driver,
        pytest.raises(RecordError) as caught,
    ):
        driver.pipe_input("in", key="a", value=value, timestamp_ms=0)
    assert said in caught.value.cause
    assert "canary" not in caught.value.cause
    assert "987654" not in caught.value.cause


@pytest.mark.promise("errors-hold-no-values")
def test_keys_stay_out_of_errors_when_a_function_fails() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    known: dict[str, str] = {}
    builder.stream("in").select_key(lambda key, _: known[key]).send_to("out", key_serde=serdes.string())
    with (
        TopologyTestDriver(builder.build(), application_id="app") as driver,
        pytest.raises(RecordError, match=r"KeyError: '\*\*\*'") as caught,
    ):
        driver.pipe_input("in", key="canary", value={}, timestamp_ms=0)
    assert "canary" not in caught.value.cause


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (serdes.int64(), 4_929_123_412_341_234),
        (serdes.bytes(), b"canary"),
        (serdes.json(), "Andr\u00e9 M\u00fcller"),
        (serdes.json(), 'O\'Neil "canary" \\ y'),
    ],
)
def test_values_stay_out_of_errors_in_whatever_form_their_serde_gives_them(serde: Any, value: Any) -> None:
    known: dict[Any, str] = {}
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serde)
    builder.stream("in").map_values(lambda found: known[found]).send_to("out")
    with (
        TopologyTestDriver(builder.build(), application_id="app") as driver,
        pytest.raises(RecordError, match=r"KeyError: b?['\"]?\*\*\*['\"]? \[KS-TASK-001\]\n") as caught,
    ):
        # As other producers write it: with what is not ASCII escaped.
        data = json.dumps(value).encode() if isinstance(value, str) else value
        driver.pipe_input("in", key="a", value=data, timestamp_ms=0)
    assert "canary" not in caught.value.cause


def test_values_of_the_other_side_stay_out_of_errors_when_a_joiner_fails() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").join(builder.table("accounts"), lambda value, account: int(account)).send_to("out")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("accounts", key="a", value="canary", timestamp_ms=0)
        with pytest.raises(RecordError, match=r"invalid literal for int\(\) with base 10: '\*\*\*'"):
            driver.pipe_input("in", key="a", value=1, timestamp_ms=1)


@pytest.mark.parametrize(
    ("joiner", "said"),
    [
        (lambda left, right: left + right["x"], "'NoneType' object is not subscriptable"),
        (lambda left, right: left + right, "unsupported operand type(s) for +: 'int' and 'NoneType'"),
        (lambda left, right: right.amount, "'NoneType' object has no attribute 'amount'"),
        (
            lambda left, right: str.encode(left),
            "descriptor 'encode' for 'str' objects doesn't apply to a 'int'",
        ),
    ],
)
def test_words_of_the_program_and_of_python_stay_in_errors_below_a_cached_table(
    joiner: Any, said: str
) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    left, right = builder.table("left", store="left"), builder.table("right", store="right")
    left.left_join(right, joiner).to_stream().send_to("out")
    with (
        pytest.raises(RecordError) as caught,
        TopologyTestDriver(builder.build(), application_id="a") as driver,
    ):
        driver.pipe_input("left", key="a", value=1, timestamp_ms=0)
    assert said in caught.value.cause


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda self, value: self.context, "'Holding' object has no attribute 'context'"),
        (lambda self, value: self.store["a"], "'InMemoryKeyValueStore' object is not subscriptable"),
        (lambda self, value: value < 3, "'<' not supported between instances of 'str' and 'int'"),
        (lambda self, value: {}[value], "KeyError: '***'"),
        (lambda self, value: [][value], "list indices must be integers or slices, not str"),
    ],
)
@pytest.mark.parametrize("value", ["canary", "<", "NotThere"])
def test_classes_of_the_program_and_pythons_operators_stay_in_errors(act: Any, said: str, value: str) -> None:
    class Holding(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.store = context.state_store("seen")

        def process(self, record: ProcessorRecord) -> None:
            act(self, record.value)

    seen = StoreSpec(name="seen", key_serde=serdes.string(), value_serde=serdes.json())
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream("in").process(Holding, seen)
    with (
        TopologyTestDriver(builder.build(), application_id="app") as driver,
        pytest.raises(RecordError) as caught,
    ):
        driver.pipe_input("in", key="a", value=value, timestamp_ms=0)
    assert said in caught.value.cause
    assert "canary" not in str(caught.value)
    assert "NotThere" not in str(caught.value)


def test_what_to_write_is_told_when_a_processor_forwards_as_in_java() -> None:
    class Passing(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context: Any = context

        def process(self, record: ProcessorRecord) -> None:
            self.context.forward(record)

    with (
        driver_of(lambda stream: stream.process(Passing).send_to("out"), {}) as driver,
        pytest.raises(RecordError, match="missing 1 required positional argument: 'value'") as caught,
    ):
        driver.pipe_input("in", key="a", value=1, timestamp_ms=0)
    assert caught.value.fix.startswith("write forward(record.key, record.value), with what")


def test_what_to_write_is_told_when_a_processor_schedules_as_in_java() -> None:
    class Ticking(Processor):
        def init(self, context: Any) -> None:
            context.schedule(10, "wall_clock", print)

        def process(self, record: ProcessorRecord) -> None: ...

    with pytest.raises(TopologyError, match=r"schedule at .*: too many positional arguments") as caught:
        driver_of(lambda stream: stream.process(Ticking).send_to("out"), {})
    assert caught.value.fix.startswith("write schedule(interval_ms, clock='stream_time' or 'wall_clock', c")


@pytest.mark.parametrize(
    ("given", "found"), [(-987_654, "below 0"), (-5, "below 0"), (2**70, "beyond 64 bits")]
)
def test_limit_is_named_and_the_number_is_not_when_a_function_dates_a_record(given: int, found: str) -> None:
    def shape(stream: KStream) -> None:
        stream.set_timestamp(lambda key, value: value).send_to("out")

    with driver_of(shape, {}) as driver, pytest.raises(RecordError) as caught:
        driver.pipe_input("in", key="a", value=given, timestamp_ms=0)
    assert f"returned a number {found}, expected epoch milliseconds from 0 to {2**63 - 1}" in str(
        caught.value
    )
    assert str(given) not in str(caught.value)


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("settings", [{}, SKIP, DEAD])
def test_error_is_handled_when_it_cannot_say_what_it_is(
    settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(value: int) -> int:
        raise Mute

    driver = driver_of(lambda stream: stream.map_values(fail).send_to("out"), settings)
    said = "Mute: (no text: its __str__ raises ValueError)"
    if not settings:
        with pytest.raises(RecordError, match=re.escape(said)):
            driver.pipe_input("in", key="a", value=1, timestamp_ms=0)
        return
    driver.pipe_input("in", key="a", value=1, timestamp_ms=0)
    assert said in caplog.text
    if settings is DEAD:
        (letter,) = driver.read_output("app-dead-letter")
        assert dict(letter.headers)["__streams.errors.message"] == b"(no text: its __str__ raises ValueError)"


def failing_below_a_table(store: Any) -> Any:
    """Return a shape whose function fails for the count 2, below a table."""

    def shape(stream: KStream) -> None:
        counts = stream.group_by_key().count(store=store).to_stream()
        counts.map_values(lambda count: 1 // (count - 2)).send_to("out", value_serde=serdes.json())

    return shape


def test_store_is_named_when_a_function_fails_for_a_cached_entry() -> None:
    driver = driver_of(failing_below_a_table("counts"), {})
    driver.pipe_input("in", key="canary", value=1, timestamp_ms=5)
    with pytest.raises(RecordError) as caught:
        driver.pipe_input("in", key="canary", value=1, timestamp_ms=5)
    error = caught.value
    assert "processing failed for a cached entry of store 'counts' at node 'KSTREAM-MAPVALUES" in error.cause
    assert "with cached=False for store 'counts', errors name the record" in error.fix
    assert "canary" not in str(error)
    assert (error.topic, error.offset) == ("", -1)


def test_record_is_named_when_a_function_fails_below_a_table_without_cache() -> None:
    spec = StoreSpec(name="counts", key_serde=serdes.string(), value_serde=serdes.json(int), cached=False)
    driver = driver_of(failing_below_a_table(spec), {})
    driver.pipe_input("in", key="a", value=1, timestamp_ms=5)
    with pytest.raises(RecordError) as caught:
        driver.pipe_input("in", key="a", value=1, timestamp_ms=5)
    assert "processing failed for in-0@1 at node" in caught.value.cause
    assert "cached" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "end"),
    [
        (SKIP, "it is left out; with cached=False for store 'counts', errors name the record"),
        (
            DEAD,
            "a dead letter without key and value goes to app-dead-letter; with cached=False for store "
            "'counts', errors name the record",
        ),
    ],
)
def test_log_says_what_is_left_of_a_cached_entry_when_a_function_fails_for_it(
    settings: dict[str, str], end: str, caplog: pytest.LogCaptureFixture
) -> None:
    driver = driver_of(failing_below_a_table("counts"), settings)
    for _ in range(2):
        driver.pipe_input("in", key="a", value=1, timestamp_ms=5)
    (line,) = [record.getMessage() for record in caplog.records if "processing failed" in record.message]
    assert "for a cached entry of store 'counts' at node" in line
    assert line.endswith(end)


def test_store_is_named_when_a_result_of_a_call_on_a_cached_entry_cannot_be_written() -> None:
    async def as_text(count: int) -> str:
        return str(count)

    def shape(stream: KStream) -> None:
        counts = stream.group_by_key().count(store="counts").to_stream()
        counts.map_values_async(as_text).send_to("out", value_serde=serdes.int64())  # type: ignore[arg-type]

    with driver_of(shape, {}) as driver, pytest.raises(RecordError, match="a cached entry of store 'counts'"):
        driver.pipe_input("in", key="a", value=1, timestamp_ms=5)


@pytest.mark.parametrize("settings", [SKIP, DEAD])
def test_log_tells_of_no_record_when_a_timer_fails(
    settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    class Ticking(Processor):
        def init(self, context: ProcessorContext) -> None:
            context.schedule(10)

        def process(self, record: ProcessorRecord) -> None:
            """Take it."""

        def punctuate(self, stream_time_ms: int) -> None:
            raise ValueError("late")

    driver = driver_of(lambda stream: stream.process(Ticking).send_to("out"), settings)
    driver.pipe_input("in", key="a", value=1, timestamp_ms=10)
    assert "for no record (start, punctuation" in caplog.text
    assert "the record goes to" not in caplog.text
    assert "the record is skipped" not in caplog.text


@pytest.mark.parametrize("stepping", [False, True])
@pytest.mark.parametrize(
    ("sink", "said"),
    [
        (
            {"value_serde": serdes.int64()},
            "the value for topic 'out', of type str, does not fit serdes.int64: ",
        ),
        (
            {"key_serde": serdes.int64(), "value_serde": serdes.string()},
            "the key for topic 'out', of type str, does not fit serdes.int64: ",
        ),
        (
            {"key_serde": serdes.time_windowed(serdes.string(), 10), "value_serde": serdes.string()},
            "the key for topic 'out', of type str, does not fit serdes.",
        ),
    ],
)
def test_side_type_serde_and_topic_are_named_when_a_result_cannot_be_encoded(
    sink: dict[str, Any], said: str, stepping: bool
) -> None:
    class Passing(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context = context

        def process(self, record: ProcessorRecord) -> None:
            self.context.forward(record.key, record.value)

    def shape(stream: KStream) -> None:
        texts = stream.map_values(lambda value: f"canary {value}")
        (texts.process(Passing) if stepping else texts).send_to("out", **sink)

    with driver_of(shape, {}) as driver, pytest.raises(RecordError) as caught:
        driver.pipe_input("in", key="canary", value=1, timestamp_ms=5)
    error = caught.value
    assert "cannot encode the result for topic 'out' of in-0@0 at node 'KSTREAM-SINK-" in error.cause
    assert said in error.cause
    assert "canary" not in str(error)
    assert (error.topic, error.partition, error.offset) == ("in", 0, 0)


def test_repartition_topic_is_named_when_a_new_key_does_not_fit_its_serde() -> None:
    def shape(stream: KStream) -> None:
        stream.group_by(lambda key, value: value, name="by-value").count(store="counts")

    with (
        driver_of(shape, {}) as driver,
        pytest.raises(
            RecordError, match="the key for topic 'app-by-value-repartition', of type int, does"
        ) as caught,
    ):
        driver.pipe_input("in", key="a", value=1, timestamp_ms=5)
    assert caught.value.fix.startswith("pass key_serde= to what repartitions there (group_by, repartition, ")


@pytest.mark.parametrize("settings", [SKIP, DEAD])
def test_log_names_what_did_not_fit_when_the_handler_goes_on(
    settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    driver = driver_of(
        lambda stream: stream.map_values(str).send_to("out", value_serde=serdes.int64()), settings
    )
    for value in (1, 2):
        driver.pipe_input("in", key="a", value=value, timestamp_ms=5)
    assert caplog.text.count("the value for topic 'out', of type str, does not fit serdes.int64: ") == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "the value for topic 'side', of type int, does not fit serdes.bytes: "),
        ({"value_serde": serdes.string()}, "the value for topic 'side', of type int, does not fit serdes."),
        (
            {"value_serde": serdes.json(), "key_serde": serdes.int64()},
            "the key for topic 'side', of type str, does not fit serdes.int64: ",
        ),
    ],
)
def test_topic_and_type_are_named_when_what_a_processor_sends_cannot_be_encoded(
    options: dict[str, Any], said: str
) -> None:
    class Sending(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context = context

        def process(self, record: ProcessorRecord) -> None:
            given = {"key_serde": serdes.string(), **options}
            self.context.send("side", record.key, record.value, **given)

    with (
        driver_of(lambda s: s.process(Sending).send_to("out"), {}) as driver,
        pytest.raises(RecordError) as caught,
    ):
        driver.pipe_input("in", key="a", value=1, timestamp_ms=5)
    assert said in caught.value.cause
    assert "give send() the serdes" in caught.value.fix


@pytest.mark.parametrize("how", ["fused", "stepping", "read ahead"])
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (b"\xff", b"1", "the key, 1 byte, is not of serdes.string: "),
        (b"a", b"canary", "the value, 6 bytes, is not of serdes.json"),
    ],
)
def test_side_and_serde_are_named_when_a_record_cannot_be_decoded(
    how: str, key: bytes, value: bytes, said: str
) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(int))
    extractor = timestamps.extract(lambda record: record.timestamp_ms) if how == "read ahead" else None
    stream = builder.stream("in", timestamps=extractor)
    if how == "stepping":
        stream.group_by_key().windowed_by(TumblingWindow(size_ms=10)).count()
    stream.send_to("out")
    with (
        TopologyTestDriver(builder.build(), application_id="app") as driver,
        pytest.raises(RecordError, match="cannot decode in-0@0 at node") as caught,
    ):
        driver.pipe_bytes("in", key=key, value=value, timestamp_ms=5)
    assert said in caught.value.cause
    assert "canary" not in str(caught.value)


def test_serdes_of_windows_are_named_when_a_windowed_key_does_not_fit() -> None:
    def shape(stream: KStream) -> None:
        windows: Any = stream.group_by_key().windowed_by(TumblingWindow(size_ms=10)).count(store="counts")
        windows.to_stream().send_to("out", key_serde=serdes.string())

    with driver_of(shape, {}) as driver, pytest.raises(RecordError) as caught:
        driver.pipe_input("in", key="a", value=1, timestamp_ms=5)
    error = caught.value
    assert "the key for topic 'out', of type Windowed, does not fit serdes.string: " in error.cause
    assert "doesn't apply to a 'Windowed' object" in error.cause
    assert error.fix.startswith("give windowed keys serdes.time_windowed(...)")


def test_names_of_parameters_stay_in_errors_when_a_call_lacks_them() -> None:
    class Rate:
        def __call__(self, *given: Any) -> Any:
            return self.of(*given)

        def of(self, value: int, currency: str) -> int:
            return value

    rate: Any = Rate()
    with (
        driver_of(lambda s: s.map_values(rate).send_to("out"), {}) as driver,
        pytest.raises(RecordError, match="missing 1 required positional argument: 'currency'"),
    ):
        driver.pipe_input("in", key="a", value=1, timestamp_ms=5)
