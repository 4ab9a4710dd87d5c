"""Settings, serdes, times, windows and groups that were refused are written as the error says, and work."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pydantic
import pytest

from airflow_kstreams.streams import (
    FixedGroups,
    HoppingWindow,
    KStreamBuilder,
    RetryPolicy,
    Serde,
    StoreSpec,
    TumblingWindow,
    serdes,
    timestamps,
)
from airflow_kstreams.streams.errors import KStreamsError, require
from airflow_kstreams.streams.partitioning.linear_hashing import processor_of_partition
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.settings import ApplicationSettings
from tests.support.remedies import ROOT, walked
from tests.support.topology.as_told import JSON, TEXT, built, given

COPIED = [("a", 1), ("b", 2), ("a", 3)]


IN = TopicPartition("in", 0)


@dataclass
class Order:
    item: str
    count: int = 0


class Model(pydantic.BaseModel):
    item: str
    marks: set[str] = set()


class Tupled(pydantic.BaseModel):
    item: str
    marks: tuple[str, ...]


@dataclass
class Marked:
    item: str
    marks: set[str]


class Plain:
    """No type of msgspec's."""


def of_missing() -> Any:
    @dataclass
    class Missing:
        item: NotThere  # type: ignore[name-defined]  # noqa: F821

    return Missing


def wrong(value: object) -> Any:
    """Return a value of another type than a type checker expects."""
    return value


def settings(**named: Any) -> ApplicationSettings:
    return ApplicationSettings.parse("app", {name.replace("_", "."): value for name, value in named.items()})


def there_and_back(serde: Serde[Any], value: Any) -> Any:
    return serde.deserialize(serde.serialize(value))


def timed(extractor: Any) -> Any:
    """Return what a stream gives whose times are read by an extractor."""
    return given(built(lambda b: b.stream("in", timestamps=extractor).send_to("out")))


def grouping(grouper: Any) -> Any:
    """Return what a topology with a grouper gives."""
    builder: Any = KStreamBuilder(default_key_serde=TEXT, default_value_serde=JSON, partition_grouper=grouper)
    builder.stream("in").send_to("out")
    return given(builder.build())


WALKS = [
    # == settings
    walked(
        "settings.ApplicationSettings.parse: give e.g.",
        lambda: ApplicationSettings.parse("app", wrong("x")),
        lambda: ApplicationSettings.parse("app", {"commit.every.records": 1000}).commit_every_records,
        1000,
    ),
    walked(
        "settings.ApplicationSettings.parse: raise num.stream.threads",
        lambda: settings(num_stream_threads=1, num_threads_per_task=2),
        lambda: settings(num_stream_threads=2, num_threads_per_task=2).num_threads_per_task,
        2,
    ),
    walked(
        "settings.check_application_id",
        lambda: ApplicationSettings.parse("a b", {}),
        lambda: ApplicationSettings.parse("a-b", {}).application_id,
        "a-b",
    ),
    walked(
        "settings._outputs",
        lambda: settings(output_topics="a=b,a=c"),
        lambda: settings(output_topics="a=b,c").output_topics,
        "a=b,c",
    ),
    walked(
        "settings._first_counts",
        lambda: settings(initial_partitions="in=0"),
        lambda: settings(initial_partitions="in=1").first_counts,
        {"in": 1},
    ),
    walked(
        "settings._number",
        lambda: settings(commit_interval_ms="soon"),
        lambda: settings(commit_interval_ms="1000").commit_interval_ms,
        1000,
    ),
    walked(
        "settings._checked: choose one of",
        lambda: settings(processing_guarantee="sometimes"),
        lambda: settings(processing_guarantee="exactly_once").exactly_once,
        True,
    ),
    walked(
        "settings._checked: write {}, which is what Kafka Streams calls",
        lambda: settings(processing_guarantee="exactly_once_v2"),
        lambda: settings(processing_guarantee="exactly_once").exactly_once,
        True,
    ),
    walked(
        "settings._checked: give one of",
        lambda: settings(processing_guarantee=Order),
        lambda: settings(processing_guarantee="exactly_once").exactly_once,
        True,
    ),
    walked(
        'settings._checked: write {"{}"',
        lambda: settings(state_dir=True),
        lambda: settings(state_dir="/tmp/state").state_dir,
        "/tmp/state",
    ),
    # == serdes
    walked(
        "base.Serde.__post_init__",
        lambda: Serde(id="mine", serialize=wrong("x"), deserialize=bytes.decode),
        lambda: there_and_back(Serde(id="mine", serialize=str.encode, deserialize=bytes.decode), "a"),
        "a",
    ),
    walked(
        "serde_checks.check_serdes",
        lambda: built(lambda b: b.stream("in", key_serde=str)),
        lambda: given(built(lambda b: b.stream("in", key_serde=serdes.string()).send_to("out"))),
        COPIED,
    ),
    walked(
        "typed.of",
        lambda: serdes.of(wrong(list[int])),
        lambda: there_and_back(serdes.json(list[int]), [1]),
        [1],
    ),
    walked(
        "typed.reading: pass the class",
        lambda: serdes.json(wrong(Order("a"))),
        lambda: there_and_back(serdes.json(Order), Order("a")),
        Order("a"),
    ),
    walked(
        "typed.reading: write serdes.of({})",
        lambda: serdes.json(Model),
        lambda: there_and_back(serdes.of(Model), Model(item="a", marks={"x"})),
        Model(item="a", marks={"x"}),
    ),
    walked(
        "typed.reading: {other}",
        lambda: serdes.json(list[Plain]),
        lambda: there_and_back(serdes.json(list[Order]), [Order("a")]),
        [Order("a")],
    ),
    walked(
        "typed.reading: {other}",
        lambda: serdes.json(list[Model]),
        lambda: there_and_back(serdes.json(), [{"item": "a"}]),
        [{"item": "a"}],
    ),
    walked(
        "typed.reading: pass a type that msgspec knows",
        lambda: serdes.json(wrong("Order")),
        lambda: there_and_back(serdes.json(Order), Order("a")),
        Order("a"),
    ),
    walked(
        "typed._of_fields",
        lambda: serdes.of(of_missing()),
        lambda: there_and_back(serdes.of(Order), Order("a")),
        Order("a"),
    ),
    walked(
        "typed._no_keys.for_topic",
        lambda: serdes.of(Model).bound("in", "key"),
        lambda: there_and_back(serdes.of(Tupled).bound("in", "key"), Tupled(item="a", marks=("x", "y"))),
        Tupled(item="a", marks=("x", "y")),
    ),
    walked(
        "typed._no_keys.for_topic",
        lambda: serdes.of(Model).bound("in", "key"),
        lambda: serdes.of(Marked).bound("in", "key").serialize(Marked("a", {"y", "x"})),
        b'{"item":"a","marks":["x","y"]}',
    ),
    walked(
        "typed._no_keys.for_topic",
        lambda: serdes.json(Marked).bound("in", "key"),
        lambda: serdes.of(Marked).bound("in", "key").serialize(Marked("a", {"y", "x"})),
        b'{"item":"a","marks":["x","y"]}',
    ),
    walked(
        "windowed.time_windowed",
        lambda: serdes.time_windowed(TEXT, wrong(0.5)),
        lambda: serdes.time_windowed(TEXT, 3_600_000).id != "",
        True,
    ),
    # == times
    walked(
        "timestamps.value_field",
        lambda: timestamps.value_field(wrong(7)),
        lambda: timed(timestamps.value_field("placed_ms", invalid="skip")),
        [],
    ),
    walked(
        "timestamps.extract",
        lambda: timestamps.extract(wrong(7)),
        lambda: timed(timestamps.extract(lambda record: record.value)),
        COPIED,
    ),
    walked(
        "timestamps.check_timestamps: pass an extractor",
        lambda: timed(7),
        lambda: timed(timestamps.value_field("placed_ms", invalid="skip")),
        [],
    ),
    walked(
        "timestamps.check_timestamps: call it",
        lambda: timed(timestamps.value_field),
        lambda: timed(timestamps.value_field("placed_ms", invalid="skip")),
        [],
    ),
    walked(
        "timestamps.check_timestamps: wrap it",
        lambda: timed(lambda record: record.value),
        lambda: timed(timestamps.extract(lambda record: record.value)),
        COPIED,
    ),
    # == windows
    walked(
        "windows.HoppingWindow.__post_init__",
        lambda: HoppingWindow(size_ms=10, advance_ms=20),
        lambda: HoppingWindow(size_ms=10, advance_ms=10).advance_ms,
        10,
    ),
    walked(
        "windows._check: give milliseconds",
        lambda: TumblingWindow(size_ms=0),
        lambda: TumblingWindow(size_ms=3_600_000).size_ms,
        3_600_000,
    ),
    walked(
        "windows._check: choose 'hold'",
        lambda: TumblingWindow(size_ms=1, at_run_end=wrong("keep")),
        lambda: TumblingWindow(size_ms=1, at_run_end="hold").at_run_end,
        "hold",
    ),
    # == groups
    walked(
        "partition_groups.FixedGroups.__post_init__",
        lambda: FixedGroups(0),
        lambda: grouping(FixedGroups(1)),
        COPIED,
    ),
    walked(
        "partition_groups.check_partition_grouper: pass {}(...)",
        lambda: grouping(FixedGroups),
        lambda: grouping(FixedGroups(2)),
        COPIED,
    ),
    walked(
        "partition_groups.check_partition_grouper: pass an object",
        lambda: grouping(7),
        lambda: grouping(FixedGroups(4)),
        COPIED,
    ),
    walked(
        "partition_groups.check_partition_grouper: give it an id",
        lambda: grouping(Nameless()),
        lambda: grouping(ByParity()),
        COPIED,
    ),
    walked(
        "partition_groups._ask: return",
        lambda: grouping(ByParity(lambda: 7)),
        lambda: grouping(ByParity()),
        COPIED,
    ),
    walked(
        "partition_groups._ask: correct that line",
        lambda: grouping(ByParity(lambda: 1 // 0)),
        lambda: grouping(ByParity()),
        COPIED,
    ),
    walked(
        "partition_groups._check_cover: leave empty groups",
        lambda: grouping(ByParity(lambda: [{IN}, set()])),
        lambda: grouping(ByParity(lambda: [{IN}])),
        COPIED,
    ),
    walked(
        "partition_groups._check_cover: {}",
        lambda: grouping(ByParity(lambda: [{IN, TopicPartition("in", 7)}])),
        lambda: grouping(ByParity(lambda: [{IN}])),
        COPIED,
    ),
    walked(
        "linear_hashing.processor_of_partition",
        lambda: processor_of_partition(-1, 1, 2),
        lambda: processor_of_partition(0, 1, 2),
        0,
    ),
    walked(
        "linear_hashing.check_counts",
        lambda: processor_of_partition(0, 3, 2),
        lambda: processor_of_partition(0, 2, 3),
        0,
    ),
    # == retries
    walked(
        "calls.RetryPolicy.__post_init__: choose one of",
        lambda: RetryPolicy(then=wrong("forget")),
        lambda: RetryPolicy(then="fail").then,
        "fail",
    ),
    walked(
        "calls.RetryPolicy.__post_init__: give a share",
        lambda: RetryPolicy(jitter=2),
        lambda: RetryPolicy(jitter=0.5).jitter,
        0.5,
    ),
    walked(
        "calls.RetryPolicy.__post_init__: give a tuple",
        lambda: RetryPolicy(errors=wrong(ConnectionError)),
        lambda: RetryPolicy(errors=(ConnectionError,)).errors,
        (ConnectionError,),
    ),
    walked(
        "calls.RetryPolicy.__post_init__: give a whole number",
        lambda: RetryPolicy(attempts=1),
        lambda: RetryPolicy(attempts=2).attempts,
        2,
    ),
    walked(
        "calls.RetryPolicy.__post_init__: give a number from 1",
        lambda: RetryPolicy(multiplier=0.5),
        lambda: RetryPolicy(multiplier=1).multiplier,
        1,
    ),
    walked(
        "calls.RetryPolicy.__post_init__: give backoff_ms=",
        lambda: RetryPolicy(backoff_ms=5_000, backoff_max_ms=1_000),
        lambda: RetryPolicy(backoff_ms=5_000, backoff_max_ms=5_000).backoff_max_ms,
        5_000,
    ),
    walked(
        "settings._checked: {answer}",
        lambda: settings(application_server="here"),
        lambda: settings().application_id,
        "app",
    ),
]


class Nameless:
    def group(self, partitions_per_topic: Any) -> Any:
        return [{IN}]


class ByParity(Nameless):
    id: ClassVar[str] = "by-parity"

    def __init__(self, gives: Callable[[], Any] = lambda: [{IN}]) -> None:
        self._gives = gives

    def group(self, partitions_per_topic: Any) -> Any:
        return self._gives()


@pytest.mark.parametrize(("fault", "told", "wanted"), WALKS)
def test_what_the_error_says_works(
    fault: Callable[[], object], told: Callable[[], object], wanted: object
) -> None:
    with pytest.raises(KStreamsError):
        fault()
    assert told() == wanted


def on_disk() -> object:
    spec = StoreSpec(name="n", key_serde=TEXT, value_serde=serdes.int64(), storage="rocksdb")
    return given(
        built(
            lambda b: (
                b.stream("in").group_by_key().count(store=spec).to_stream().send_to("out", value_serde=JSON)
            )
        )
    )


def in_batches() -> object:
    return given(
        built(
            lambda b: (
                b.stream("in").map_batches(lambda rows: rows).send_to("out", key_serde=TEXT, value_serde=JSON)
            )
        )
    )


def running() -> object:
    require("spark", "pyspark", what="a run")
    return True


@pytest.mark.parametrize(
    ("module", "use"),
    [
        walked("rocksdb_files.require_rocksdict", "rocksdict", on_disk),
        walked("map_batches.OpenBatch.__init__", "pyarrow", in_batches),
        walked("errors.require", "pyspark", running),
    ],
)
def test_extra_that_the_error_names_brings_the_module(
    module: str, use: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as missing, pytest.raises(KStreamsError) as refused:
        missing.setitem(sys.modules, module, None)
        use()
    (extra,) = re.findall(r"airflow-kstreams\[([\w-]+)\]", refused.value.fix)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"\W", each)[0] for each in project["optional-dependencies"][extra]]
    assert module in names
    assert use()
