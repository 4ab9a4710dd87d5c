"""The topologies that are simulated, each with what its outputs must be, said again in other words.

Values carry their history: a record enters as ``17`` and every stage that copies it appends a letter, every
fold joins what it has seen by ``|``. So a record that is lost, doubled or out of order shows in the value.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow
from airflow_kstreams.streams.graph.store_specs import Storage
from airflow_kstreams.streams.serde import serdes
from tests.simulation.stages import CHANGELOG, REPARTITION, Application, Copy, Fold, store_spec
from tests.simulation.timed_applications import TIMED

#: Of a value that with its key, what the client adds, and one more letter is just not refused.
_NEARLY_ALL_BYTES = 1_000_000 - 40


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())


def _group(value: str) -> str:
    return f"g{int(value) % 3}"


def _joined(key: str, value: str, so_far: str) -> str:
    return f"{so_far}|{value}" if so_far else value


def _appended(mark: str) -> Callable[[str], str]:
    return lambda value: value + mark


def _chain(storage: Storage) -> Topology:
    builder = _builder()
    builder.stream("a").map_values(lambda v: v + "m").through("b").map_values(lambda v: v + "n").send_to(
        "out"
    )
    return builder.build()


def _long_chain(storage: Storage) -> Topology:
    builder = _builder()
    stream = builder.stream("a")
    for topic, append in (("b", _appended("m")), ("c", _appended("n")), ("d", _appended("o"))):
        stream = stream.map_values(append).through(topic)
    stream.send_to("out")
    return builder.build()


def _fold(storage: Storage) -> Topology:
    builder = _builder()
    grouped = builder.stream("a").group_by(lambda k, v: _group(v))
    grouped.aggregate(lambda: "", _joined, store=store_spec(storage)).to_stream().send_to("out")
    return builder.build()


def _fold_first(storage: Storage) -> Topology:
    builder = _builder()
    folded = builder.stream("a").group_by_key().aggregate(lambda: "", _joined, store=store_spec(storage))
    folded.to_stream().through("b").map_values(lambda v: v + "n").send_to("out")
    return builder.build()


def _diamond(storage: Storage) -> Topology:
    builder = _builder()
    middle = builder.stream("a").through("b")
    middle.map_values(lambda v: v + "l").send_to("c")
    middle.filter(lambda k, v: not v.endswith("3")).map_values(lambda v: v + "r").send_to("d")
    builder.stream("c", "d").map_values(lambda v: v + "n").send_to("out")
    return builder.build()


def _merged(storage: Storage) -> Topology:
    builder = _builder()
    merged = builder.stream("a", "a2").group_by(lambda k, v: _group(v))
    merged.aggregate(lambda: "", _joined, store=store_spec(storage)).to_stream().map_values(
        lambda v: v + "e"
    ).send_to("out")
    return builder.build()


def _windows(storage: Storage) -> Topology:
    builder = _builder()
    windowed = builder.stream("a").group_by(lambda k, v: _group(v)).windowed_by(TumblingWindow(size_ms=500))
    folded = windowed.aggregate(lambda: "", _joined, store="s", value_serde=serdes.string())
    folded.to_stream().map(lambda w, v: (f"{w.key}@{w.start_ms}", v)).send_to("out")
    return builder.build()


def _copied(mark: str) -> Callable[[str, str], list[tuple[str, str]]]:
    return lambda key, value: [(key, value + mark)]


def _rekeyed(key: str, value: str) -> list[tuple[str, str]]:
    return [("g" + str(int(value) % 3), value)]


def _large(storage: Storage) -> Topology:
    builder = _builder()
    middle = builder.stream("a").map_values(_padded).through("b")
    middle.map_values(lambda v: v + "n").send_to("out")
    return builder.build()


def _padded(value: str) -> str:
    """Let some values take nearly all that clients and topics take."""
    return value.ljust(_NEARLY_ALL_BYTES, "m") if value[-1] == "5" else value + "m"


def _letters(storage: Storage) -> Topology:
    builder = _builder()
    middle = builder.stream("a").map_values(_refused).through("b")
    middle.map_values(lambda v: v + "n").send_to("out")
    return builder.build()


def _fails(value: str) -> bool:
    return value[-1] in "37"


def _refused(value: str) -> str:
    if _fails(value):
        raise ValueError("not this one")
    return value + "m"


APPLICATIONS: dict[str, Application] = {
    app.name: app
    for app in (
        *TIMED,
        Application(
            name="large",
            build=_large,
            inputs=("a",),
            through=("b",),
            stages=(
                Copy(sources=("a",), sink="b", results=lambda key, value: [(key, _padded(value))]),
                Copy(sources=("b",), sink="out", results=_copied("n")),
            ),
            subtopologies=((("a",), ("b",)), (("b",), ())),
        ),
        Application(
            name="letters",
            build=_letters,
            inputs=("a",),
            through=("b",),
            stages=(
                Copy(sources=("a",), sink="b", results=_copied("m"), fails=_fails),
                Copy(sources=("b",), sink="out", results=_copied("n")),
            ),
            subtopologies=((("a",), ("b",)), (("b",), ())),
        ),
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
            has_stores=True,
            inputs=("a",),
            through=(),
            stages=(
                Copy(sources=("a",), sink=REPARTITION, results=_rekeyed),
                Fold(source=REPARTITION, sink="out", changelog=CHANGELOG),
            ),
            subtopologies=((("a",), (REPARTITION,)), ((REPARTITION,), ())),
        ),
        Application(
            name="windows",
            build=_windows,
            inputs=("a",),
            through=(),
            stages=(
                Copy(sources=("a",), sink=REPARTITION, results=_rekeyed),
                Fold(source=REPARTITION, sink="out", changelog=CHANGELOG, window_ms=500),
            ),
            subtopologies=((("a",), (REPARTITION,)), ((REPARTITION,), ())),
        ),
        Application(
            name="fold_first",
            build=_fold_first,
            has_stores=True,
            inputs=("a",),
            through=("b",),
            stages=(
                Fold(source="a", sink="b", changelog=CHANGELOG),
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
            has_stores=True,
            inputs=("a", "a2"),
            through=(),
            stages=(
                Copy(sources=("a", "a2"), sink=REPARTITION, results=_rekeyed),
                Fold(source=REPARTITION, sink="out", changelog=CHANGELOG, mark="e"),
            ),
            subtopologies=((("a", "a2"), (REPARTITION,)), ((REPARTITION,), ())),
        ),
    )
}
