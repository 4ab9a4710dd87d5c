"""An exploration that was refused is asked for as its error says, and shows its records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.explore import Sample, SampleRecord, exploration, explore, sampling
from airflow_kstreams.explore.difference import Result
from airflow_kstreams.explore.sampling import take_sample
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.ports import Fetched
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.support.remedies import walked

DOUBLED = [0, 2, 4]


def topology(source: str = "numbers") -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.stream(source).map_values(lambda value: 2 * value, name="double").send_to("out")
    return builder.build()


def numbers(*values: int) -> Sample:
    records = (
        SampleRecord(topic="numbers", offset=n, key=b"k", value=b"%d" % value, timestamp_ms=n)
        for n, value in enumerate(values)
    )
    return Sample(records=tuple(records), partitions={"numbers": 1})


NUMBERS = numbers(0, 1, 2)


def kafka(topic: str = "numbers") -> InMemoryKafka:
    made = InMemoryKafka()
    made.create_topic(topic)
    for n in range(3):
        made.append(topic, b"%d" % n, b"k")
    return made


def sampled(of: Any, last: Any = 10, made: Topology | None = None) -> list[Any]:
    """Take a sample and return what the topology gives of it."""
    made = made or topology()
    sample = take_sample(of, made.plan("explore"), last, lambda *_: None)
    return [one.value for one in explore(made, sample=sample).outputs("out")]


class Silent:
    """A broker that leads no partition until it is up again."""

    def __init__(self) -> None:
        self.up = False

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        return Fetched({}, {}) if name == "reader.poll" and not self.up else effect()


WALKS = [
    walked(
        "exploration.Exploration._known",
        lambda: explore(topology(), sample=NUMBERS)["doubled"],
        lambda: [one.value for one in explore(topology(), sample=NUMBERS)["double"]],
    ),
    walked(
        "exploration.Exploration.outputs",
        lambda: explore(topology(), sample=NUMBERS).outputs("ou"),
        lambda: [one.value for one in explore(topology(), sample=NUMBERS).outputs("out")],
    ),
    walked(
        "exploration._sample",
        lambda: explore(topology()),
        lambda: [one.value for one in explore(topology(), sample=NUMBERS).outputs("out")],
    ),
    walked(
        "exploration._sample",
        lambda: explore(topology()),
        lambda: [one.value for one in explore(topology(), "localhost:9092", progress=False).outputs("out")],
    ),
    walked(
        "sampling._wanted: give 0 or more",
        lambda: sampled(kafka(), -1),
        lambda: sampled(kafka(), 3),
    ),
    walked(
        "sampling._wanted: name one of: {}",
        lambda: sampled(kafka(), {"number": 3}),
        lambda: sampled(kafka(), {"numbers": 3}),
    ),
    walked(
        "sampling._refuse_missing",
        lambda: sampled(kafka("other")),
        lambda: sampled(kafka("numbers")),
    ),
    walked(
        "sampling._refuse_missing",
        lambda: sampled(kafka("other")),
        lambda: sampled(kafka("other"), made=topology("other")),
    ),
]


@pytest.mark.parametrize(("fault", "told"), WALKS)
def test_exploration_shows_its_records_when_it_is_asked_as_the_error_says(
    fault: Callable[[], object], told: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exploration, "_cluster", lambda bootstrap, settings: kafka())
    with pytest.raises(KStreamsError):
        fault()
    assert told() == DOUBLED


@pytest.mark.remedy("sampling._unanswered")
def test_sample_is_taken_when_the_brokers_are_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_SILENCE_SECONDS", 0.0)
    broker = Silent()
    cluster = FaultyCluster(kafka(), broker)
    with pytest.raises(KStreamsError):
        sampled(cluster)
    broker.up = True
    assert sampled(cluster) == DOUBLED


@pytest.mark.remedy("sample.Sample.load")
@pytest.mark.parametrize("way", ["deleted", "another name"])
def test_new_sample_is_taken_when_a_file_is_none(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exploration, "_cluster", lambda bootstrap, settings: kafka())
    file = tmp_path / "sample"
    file.write_bytes(b"no json\n")

    def outputs(named: Path) -> list[Any]:
        seen = explore(topology(), "localhost:9092", sample=named, progress=False)
        return [one.value for one in seen.outputs("out")]

    with pytest.raises(KStreamsError):
        outputs(file)
    if way == "deleted":
        file.unlink()
    else:
        file = tmp_path / "other"
    assert outputs(file) == DOUBLED
    assert len(Sample.load(file).records) == 3


@pytest.mark.remedy("difference.difference")
def test_results_are_compared_when_both_are_of_one_sample() -> None:
    before = explore(topology(), sample=numbers(0, 1))
    with pytest.raises(KStreamsError):
        explore(topology(), sample=NUMBERS).diff(before)
    assert not explore(topology(), sample=NUMBERS).diff(explore(topology(), sample=NUMBERS))


@pytest.mark.remedy("difference.Result.load")
def test_result_is_compared_when_the_one_of_an_earlier_exploration_is_named(tmp_path: Path) -> None:
    file = tmp_path / "result"
    file.write_bytes(b"{}")
    with pytest.raises(KStreamsError):
        Result.load(file)
    explore(topology(), sample=NUMBERS).result().save(file)
    assert not explore(topology(), sample=NUMBERS).diff(Result.load(file))
