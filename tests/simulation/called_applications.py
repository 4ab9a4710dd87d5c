"""Topologies for the seeds that call a service: stores above calls and below them, in one task."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from airflow_kstreams.streams import KStreamBuilder, Topology, TopologyBuilder
from airflow_kstreams.streams.serde import serdes
from tests.simulation.stages import (
    APPLICATION_ID,
    CHANGELOG,
    Application,
    Copy,
    Fold,
    FoldsAtOnce,
    store_spec,
)
from tests.simulation.steps import Steps
from tests.simulation.timed_applications import TIMED, by_key

_AGAIN = f"{APPLICATION_ID}-t-changelog"


def _joined(key: str, value: str, so_far: str) -> str:
    return f"{so_far}|{value}" if so_far else value


def _joined_again(key: str, value: str, so_far: str) -> str:
    return f"{so_far}&{value}" if so_far else value


def _fold_twice(steps: Steps) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    first = steps.passed(builder.stream("a"), "above", of="a", keyed=True).group_by_key()
    folded = first.aggregate(lambda: "", _joined, store=store_spec(steps.storage)).to_stream()
    second = steps.passed(folded, "between", keyed=True).group_by_key()
    again = replace(store_spec(steps.storage), name="t")
    twice = second.aggregate(lambda: "", _joined_again, store=again).to_stream()
    middle = steps.passed(twice, "below").through("b")
    steps.copied(middle, lambda value: value + "n", "second", of="b", again=True).send_to("out")
    return builder.build()


def _built(steps: Steps) -> Topology:
    """Chain processors without the DSL."""
    builder, text = TopologyBuilder(), serdes.string()
    for source, step, mark, sink in (("a", "first", "m", "b"), ("b", "second", "n", "out")):
        builder.add_source(source, source, key_serde=text, value_serde=text)
        steps.added(builder, partial(_marked, mark), step, source)
        builder.add_sink(f"to-{sink}", sink, step, key_serde=text, value_serde=text)
    return builder.build()


def _marked(mark: str, value: str) -> str:
    return value + mark


def _folds_at_once(steps: Steps) -> Topology:
    """Fold, call and fold again record by record, in one task."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    at_once = replace(store_spec(steps.storage), cached=False)
    first = steps.passed(builder.stream("a"), "above", of="a", again=True, keyed=True).group_by_key()
    folded = first.aggregate(lambda: "", _joined, store=at_once).to_stream()
    second = steps.passed(folded, "between", of="a", again=True, keyed=True, under=("above",)).group_by_key()
    twice = second.aggregate(lambda: "", _joined_again, store=replace(at_once, name="t")).to_stream()
    below = steps.passed(twice, "below", of="a", again=True, under=("between", "above"))
    steps.copied(below.through("b"), lambda value: value + "n", "second", of="b", again=True).send_to("out")
    return builder.build()


_FOLD_TWICE = Application(
    name="fold_twice",
    build=_fold_twice,
    has_stores=True,
    inputs=("a",),
    through=("b",),
    stages=(
        Fold(source="a", sink="b", changelog=CHANGELOG, again=_AGAIN),
        Copy(sources=("b",), sink="out", results=lambda key, value: [(key, value + "n")], step="second"),
    ),
    subtopologies=((("a",), ("b",)), (("b",), ())),
)

_FOLDS_AT_ONCE = replace(
    _FOLD_TWICE,
    name="folds_at_once",
    build=_folds_at_once,
    stages=(
        FoldsAtOnce(
            source="a", sink="b", changelog=CHANGELOG, again=_AGAIN, steps=("above", "between", "below")
        ),
        _FOLD_TWICE.stages[1],
    ),
)

_BUILT = Application(
    name="built",
    build=_built,
    inputs=("a",),
    through=("b",),
    stages=(
        Copy(sources=("a",), sink="b", results=lambda key, value: [(key, value + "m")], step="first"),
        Copy(sources=("b",), sink="out", results=lambda key, value: [(key, value + "n")], step="second"),
    ),
    subtopologies=((("a",), ("b",)), (("b",), ())),
)

#: Name of an application -> what may stand in its place.
INSTEAD: dict[str, Application] = {
    "fold_first": _FOLD_TWICE,
    "fold": _FOLD_TWICE,
    "chain": _BUILT,
    **{app.name: by_key(app) for app in TIMED if not app.joined},
}

#: The same where steps call again.
INSTEAD_AGAIN: dict[str, Application] = dict.fromkeys(
    ("chain", "long_chain", "fold_first", "fold_twice", "large"), _FOLDS_AT_ONCE
)
