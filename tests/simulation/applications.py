"""The topologies that are simulated, each with what its outputs must be, said again in other words.

Values carry their history: a record enters as ``17`` and every stage that copies it appends a letter, every
fold joins what it has seen by ``|``. So a record that is lost, doubled or out of order shows in the value.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow
from airflow_kstreams.streams.serde import serdes
from tests.simulation.stages import CHANGELOG, REPARTITION, Application, Copy, Fold, store_spec
from tests.simulation.steps import Steps
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


def _chain(steps: Steps) -> Topology:
    builder = _builder()
    middle = steps.copied(builder.stream("a"), _appended("m"), "first", of="a", again=True).through("b")
    steps.copied(middle, _appended("n"), "second", of="b", again=True).send_to("out")
    return builder.build()


def _long_chain(steps: Steps) -> Topology:
    builder = _builder()
    stream = builder.stream("a")
    for before, topic, append in (("a", "b", "m"), ("b", "c", "n"), ("c", "d", "o")):
        stream = steps.copied(stream, _appended(append), f"to-{topic}", of=before, again=True).through(topic)
    steps.passed(stream, "last", of="d", again=True).send_to("out")
    return builder.build()


def _fold(steps: Steps) -> Topology:
    builder = _builder()
    above = steps.passed(builder.stream("a"), "above", of="a", again=True)
    grouped = above.group_by(lambda k, v: _group(v))
    folded = grouped.aggregate(lambda: "", _joined, store=store_spec(steps.storage)).to_stream()
    steps.passed(folded, "below", again=True).send_to("out")
    return builder.build()


def _fold_first(steps: Steps) -> Topology:
    builder = _builder()
    grouped = steps.passed(builder.stream("a"), "above", of="a", keyed=True).group_by_key()
    folded = grouped.aggregate(lambda: "", _joined, store=store_spec(steps.storage)).to_stream()
    middle = steps.passed(folded, "below", again=True).through("b")
    steps.copied(middle, _appended("n"), "second", of="b", again=True).send_to("out")
    return builder.build()


def _diamond(steps: Steps) -> Topology:
    builder = _builder()
    middle = steps.passed(builder.stream("a"), "first", of="a", again=True).through("b")
    steps.copied(middle, _appended("l"), "left", of="b", again=True).send_to("c")
    kept = middle.filter(lambda k, v: not v.endswith("3"))
    steps.copied(kept, _appended("r"), "right", again=True).send_to("d")
    steps.copied(builder.stream("c", "d"), _appended("n"), "last", of="c d", again=True).send_to("out")
    return builder.build()


def _merged(steps: Steps) -> Topology:
    builder = _builder()
    both = steps.passed(builder.stream("a", "a2"), "above", of="a a2", again=True)
    merged = both.group_by(lambda k, v: _group(v))
    folded = merged.aggregate(lambda: "", _joined, store=store_spec(steps.storage)).to_stream()
    steps.copied(folded, _appended("e"), "below", again=True).send_to("out")
    return builder.build()


def _windows(steps: Steps) -> Topology:
    builder = _builder()
    windowed = builder.stream("a").group_by(lambda k, v: _group(v)).windowed_by(TumblingWindow(size_ms=500))
    folded = windowed.aggregate(lambda: "", _joined, store="s", value_serde=serdes.string())
    named = folded.to_stream().map(lambda w, v: (f"{w.key}@{w.start_ms}", v))
    steps.passed(named, "below", again=True).send_to("out")
    return builder.build()


def _copied(mark: str) -> Callable[[str, str], list[tuple[str, str]]]:
    return lambda key, value: [(key, value + mark)]


def _rekeyed(key: str, value: str) -> list[tuple[str, str]]:
    return [("g" + str(int(value) % 3), value)]


def _large(steps: Steps) -> Topology:
    builder = _builder()
    middle = steps.copied(builder.stream("a"), _padded, "first", of="a", again=True).through("b")
    steps.copied(middle, _appended("n"), "second", of="b").send_to("out")
    return builder.build()


def _padded(value: str) -> str:
    """Let some values take nearly all that clients and topics take."""
    return value.ljust(_NEARLY_ALL_BYTES, "m") if value[-1] == "5" else value + "m"


def _letters(steps: Steps) -> Topology:
    builder = _builder()
    first = steps.copied(builder.stream("a"), _refused, "first", of="a", fails=_fails, again=True)
    steps.copied(first.through("b"), _appended("n"), "second", of="b", again=True).send_to("out")
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
                Copy(
                    sources=("a",), sink="b", results=lambda key, value: [(key, _padded(value))], step="first"
                ),
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
                Copy(sources=("a",), sink="b", results=_copied("m"), fails=_fails, step="first"),
                Copy(sources=("b",), sink="out", results=_copied("n"), step="second"),
            ),
            subtopologies=((("a",), ("b",)), (("b",), ())),
        ),
        Application(
            name="chain",
            build=_chain,
            inputs=("a",),
            through=("b",),
            stages=(
                Copy(sources=("a",), sink="b", results=_copied("m"), step="first"),
                Copy(sources=("b",), sink="out", results=_copied("n"), step="second"),
            ),
            subtopologies=((("a",), ("b",)), (("b",), ())),
        ),
        Application(
            name="long_chain",
            build=_long_chain,
            inputs=("a",),
            through=("b", "c", "d"),
            stages=(
                Copy(sources=("a",), sink="b", results=_copied("m"), step="to-b"),
                Copy(sources=("b",), sink="c", results=_copied("n"), step="to-c"),
                Copy(sources=("c",), sink="d", results=_copied("o"), step="to-d"),
                Copy(sources=("d",), sink="out", results=_copied(""), step="last"),
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
                Copy(sources=("a",), sink=REPARTITION, results=_rekeyed, step="above"),
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
                Copy(sources=("b",), sink="out", results=_copied("n"), step="second"),
            ),
            subtopologies=((("a",), ("b",)), (("b",), ())),
        ),
        Application(
            name="diamond",
            build=_diamond,
            inputs=("a",),
            through=("b", "c", "d"),
            stages=(
                Copy(sources=("a",), sink="b", results=_copied(""), step="first"),
                Copy(sources=("b",), sink="c", results=_copied("l"), step="left"),
                Copy(
                    sources=("b",),
                    sink="d",
                    results=lambda key, value: [] if value[-1] == "3" else [(key, value + "r")],
                    step="right",
                ),
                Copy(sources=("c", "d"), sink="out", results=_copied("n"), step="last"),
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
                Copy(sources=("a", "a2"), sink=REPARTITION, results=_rekeyed, step="above"),
                Fold(source=REPARTITION, sink="out", changelog=CHANGELOG, mark="e"),
            ),
            subtopologies=((("a", "a2"), (REPARTITION,)), ((REPARTITION,), ())),
        ),
    )
}
