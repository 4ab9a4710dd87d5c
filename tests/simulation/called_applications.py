"""Topologies for the seeds that call a service: stores above calls and below them, in one task."""

from __future__ import annotations

from dataclasses import replace

from airflow_kstreams.streams import KStreamBuilder, Topology
from airflow_kstreams.streams.serde import serdes
from tests.simulation.stages import APPLICATION_ID, CHANGELOG, Application, Copy, Fold, store_spec
from tests.simulation.steps import Steps
from tests.simulation.timed_applications import TIMED, by_key

_AGAIN = f"{APPLICATION_ID}-t-changelog"


def _joined(key: str, value: str, so_far: str) -> str:
    return f"{so_far}|{value}" if so_far else value


def _joined_again(key: str, value: str, so_far: str) -> str:
    return f"{so_far}&{value}" if so_far else value


def _fold_twice(steps: Steps) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    first = steps.passed(builder.stream("a"), "above", of="a").group_by_key()
    folded = first.aggregate(lambda: "", _joined, store=store_spec(steps.storage)).to_stream()
    second = steps.passed(folded, "between").group_by_key()
    again = replace(store_spec(steps.storage), name="t")
    twice = second.aggregate(lambda: "", _joined_again, store=again).to_stream()
    middle = steps.passed(twice, "below").through("b")
    steps.copied(middle, lambda value: value + "n", "second", of="b").send_to("out")
    return builder.build()


_FOLD_TWICE = Application(
    name="fold_twice",
    build=_fold_twice,
    has_stores=True,
    inputs=("a",),
    through=("b",),
    stages=(
        Fold(source="a", sink="b", changelog=CHANGELOG, again=_AGAIN),
        Copy(sources=("b",), sink="out", results=lambda key, value: [(key, value + "n")]),
    ),
    subtopologies=((("a",), ("b",)), (("b",), ())),
)

#: Name of an application -> what may stand in its place.
INSTEAD: dict[str, Application] = {
    "fold_first": _FOLD_TWICE,
    "fold": _FOLD_TWICE,
    **{app.name: by_key(app) for app in TIMED if not app.joined},
}
