"""The topologies that are simulated, each with what its outputs must be, said again in other words.

Values carry their history: a record enters as ``17`` and every stage that copies it appends a letter, every
fold joins what it has seen by ``|``. So a record that is lost, doubled or out of order shows in the value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow
from airflow_kstreams.streams.serde import serdes

APPLICATION_ID = "sim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A stage that writes, for each record it reads, some records to one topic.

    :param results: (key, value) -> the (key, value) pairs it writes.
    """

    sources: tuple[str, ...]
    sink: str
    results: Callable[[str, str], list[tuple[str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """A stage that joins the values of each key, and writes what it has at its commit points.

    :param changelog: holds the state.
    :param mark: appended to what it writes.
    :param window_ms: size of the windows in which it folds; the key it writes then says which. 0 for none.
    """

    source: str
    sink: str
    changelog: str
    mark: str = ""
    window_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """One topology with its oracle.

    :param inputs: topics that producers write.
    :param through: intermediate topics that are the user's own, so that outsiders may write them, too.
    :param subtopologies: (sources, intermediate topics written) of each.
    """

    name: str
    build: Callable[[], Topology]
    inputs: tuple[str, ...]
    through: tuple[str, ...]
    stages: tuple[Copy | Fold, ...]
    subtopologies: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())


def _group(value: str) -> str:
    return f"g{int(value) % 3}"


def _joined(key: str, value: str, so_far: str) -> str:
    return f"{so_far}|{value}" if so_far else value


def _appended(mark: str) -> Callable[[str], str]:
    return lambda value: value + mark


def _chain() -> Topology:
    builder = _builder()
    builder.stream("a").map_values(lambda v: v + "m").through("b").map_values(lambda v: v + "n").send_to(
        "out"
    )
    return builder.build()


def _long_chain() -> Topology:
    builder = _builder()
    stream = builder.stream("a")
    for topic, append in (("b", _appended("m")), ("c", _appended("n")), ("d", _appended("o"))):
        stream = stream.map_values(append).through(topic)
    stream.send_to("out")
    return builder.build()


def _fold() -> Topology:
    builder = _builder()
    grouped = builder.stream("a").group_by(lambda k, v: _group(v))
    grouped.aggregate(lambda: "", _joined, store="s").to_stream().send_to("out")
    return builder.build()


def _fold_first() -> Topology:
    builder = _builder()
    folded = builder.stream("a").group_by_key().aggregate(lambda: "", _joined, store="s")
    folded.to_stream().through("b").map_values(lambda v: v + "n").send_to("out")
    return builder.build()


def _diamond() -> Topology:
    builder = _builder()
    middle = builder.stream("a").through("b")
    middle.map_values(lambda v: v + "l").send_to("c")
    middle.filter(lambda k, v: not v.endswith("3")).map_values(lambda v: v + "r").send_to("d")
    builder.stream("c", "d").map_values(lambda v: v + "n").send_to("out")
    return builder.build()


def _merged() -> Topology:
    builder = _builder()
    merged = builder.stream("a", "a2").group_by(lambda k, v: _group(v))
    merged.aggregate(lambda: "", _joined, store="s").to_stream().map_values(lambda v: v + "e").send_to("out")
    return builder.build()


def _windows() -> Topology:
    builder = _builder()
    windowed = builder.stream("a").group_by(lambda k, v: _group(v)).windowed_by(TumblingWindow(size_ms=500))
    folded = windowed.aggregate(lambda: "", _joined, store="s", value_serde=serdes.string())
    folded.to_stream().map(lambda w, v: (f"{w.key}@{w.start_ms}", v)).send_to("out")
    return builder.build()


def _copied(mark: str) -> Callable[[str, str], list[tuple[str, str]]]:
    return lambda key, value: [(key, value + mark)]


def _rekeyed(key: str, value: str) -> list[tuple[str, str]]:
    return [("g" + str(int(value) % 3), value)]


_CHANGELOG = f"{APPLICATION_ID}-s-changelog"
_REPARTITION = f"{APPLICATION_ID}-s-repartition"

APPLICATIONS: dict[str, Application] = {
    app.name: app
    for app in (
        Application(
            name="chain",
            build=_chain,
            inputs=("a",),
            through=("b",),
            stages=(
                Copy(sources=("a",), sink="b", results=_copied("m")),
                Copy(sources=("b",), sink="out", results=_copied("n")),
            ),
            subtopologies=((("a",), ("b",)), (("b",), ())),
        ),
        Application(
            name="long_chain",
            build=_long_chain,
            inputs=("a",),
            through=("b", "c", "d"),
            stages=(
                Copy(sources=("a",), sink="b", results=_copied("m")),
                Copy(sources=("b",), sink="c", results=_copied("n")),
                Copy(sources=("c",), sink="d", results=_copied("o")),
                Copy(sources=("d",), sink="out", results=_copied("")),
            ),
            subtopologies=((("a",), ("b",)), (("b",), ("c",)), (("c",), ("d",)), (("d",), ())),
        ),
        Application(
            name="fold",
            build=_fold,
            inputs=("a",),
            through=(),
            stages=(
                Copy(sources=("a",), sink=_REPARTITION, results=_rekeyed),
                Fold(source=_REPARTITION, sink="out", changelog=_CHANGELOG),
            ),
            subtopologies=((("a",), (_REPARTITION,)), ((_REPARTITION,), ())),
        ),
        Application(
            name="windows",
            build=_windows,
            inputs=("a",),
            through=(),
            stages=(
                Copy(sources=("a",), sink=_REPARTITION, results=_rekeyed),
                Fold(source=_REPARTITION, sink="out", changelog=_CHANGELOG, window_ms=500),
            ),
            subtopologies=((("a",), (_REPARTITION,)), ((_REPARTITION,), ())),
        ),
        Application(
            name="fold_first",
            build=_fold_first,
            inputs=("a",),
            through=("b",),
            stages=(
                Fold(source="a", sink="b", changelog=_CHANGELOG),
                Copy(sources=("b",), sink="out", results=_copied("n")),
            ),
            subtopologies=((("a",), ("b",)), (("b",), ())),
        ),
        Application(
            name="diamond",
            build=_diamond,
            inputs=("a",),
            through=("b", "c", "d"),
            stages=(
                Copy(sources=("a",), sink="b", results=_copied("")),
                Copy(sources=("b",), sink="c", results=_copied("l")),
                Copy(
                    sources=("b",),
                    sink="d",
                    results=lambda key, value: [] if value[-1] == "3" else [(key, value + "r")],
                ),
                Copy(sources=("c", "d"), sink="out", results=_copied("n")),
            ),
            subtopologies=((("a",), ("b",)), (("b",), ("c", "d")), (("c", "d"), ())),
        ),
        Application(
            name="merged",
            build=_merged,
            inputs=("a", "a2"),
            through=(),
            stages=(
                Copy(sources=("a", "a2"), sink=_REPARTITION, results=_rekeyed),
                Fold(source=_REPARTITION, sink="out", changelog=_CHANGELOG, mark="e"),
            ),
            subtopologies=((("a", "a2"), (_REPARTITION,)), ((_REPARTITION,), ())),
        ),
    )
}
