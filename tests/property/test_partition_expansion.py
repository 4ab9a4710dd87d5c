"""However a topic of keyed state and its application grow, and whenever runs come between: each key's values
are processed once, in the order in which they were produced, by the task that has its state; and keys that
lie where no kind of growth puts them are refused, not taken in by a task that has not their state.

The oracle is the producer's own memory: what it sent, by key. It places keys by the rule of one kind of
growth, and acknowledges before it uses a new count, so nothing that it sends goes back to an older one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams.errors import ConfigError, KStreamsError, TopologyError
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.partitioning.topic_growth import GrowthKind
from airflow_kstreams.streams.serde import serdes
from tests.support.examples import examples
from tests.unit.batch.expand.test_processor_expansion import abort, expand
from tests.unit.batch.growing.test_partition_growth import KEYS, Scene

pytestmark = pytest.mark.promise("keys-stay-when-topics-grow", "new-partitions-wait-for-their-ancestors")


@dataclass(frozen=True)
class Send:
    """Records of some keys."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class Grow:
    """More partitions; producers use them only from the next :class:`Switch` on."""

    by: int


@dataclass(frozen=True)
class Copy:
    """A catch-up to more processors, as far as it comes now."""

    by: int


@dataclass(frozen=True)
class Stray:
    """A record of a producer that has its own opinion of where keys belong."""

    key: str
    rule: Literal["linear", "modulo", "other count", "anywhere"]
    number: int


Switch, Run, Abort = "switch", "run", "abort"
Step = Send | Grow | Copy | Stray | str

_KEYS = st.sampled_from(KEYS[:12])
SENDS = st.builds(Send, st.lists(_KEYS, min_size=1, max_size=8).map(tuple))
GROWTHS = st.one_of(SENDS, st.builds(Grow, st.integers(1, 4)), st.sampled_from([Switch, Run, Run]))
COPIES = st.builds(Copy, st.integers(1, 4))
EXPANSIONS = st.one_of(GROWTHS, COPIES, COPIES, st.sampled_from([Run, Run, Run, Abort]))
FIRST, KIND = st.integers(1, 3), st.sampled_from(["linear", "modulo"])
STRAYS = st.builds(
    Stray,
    _KEYS,
    st.sampled_from(["linear", "modulo", "other count", "anywhere"]),
    st.integers(0, 59),
)


def grown(kind: GrowthKind, count: int, by: int) -> int:
    """Return the count that comes next."""
    return count + by if kind == "linear" else count * (by + 1)


def begun(first: int, kind: GrowthKind, *, grow: bool) -> Scene:
    """An application whose topic has been read, perhaps with partitions that it has gained."""
    scene = Scene(first, settings={"initial.partitions": f"in={first}"})
    if grow:
        for step in (Send(tuple(KEYS[:12])), Run, Grow(3), Switch, Send(tuple(KEYS[:12])), Run, Run):
            play(scene, step, 100, kind)
    return scene


@settings(max_examples=examples(40), deadline=None)
@given(first=FIRST, kind=KIND, steps=st.lists(GROWTHS, max_size=14))
def test_keys_keep_state_and_order_however_a_topic_grows(
    first: int, kind: GrowthKind, steps: list[Step]
) -> None:
    scene = begun(first, kind, grow=False)
    for number, step in enumerate(steps):
        play(scene, step, number, kind)
        check_order(scene)
    drain(scene, steps)
    assert scene.listed == scene.sent


@settings(max_examples=examples(40), deadline=None)
@given(first=FIRST, kind=KIND, steps=st.lists(EXPANSIONS, max_size=12))
def test_keys_keep_state_and_order_however_an_application_grows_with_its_topic(
    first: int, kind: GrowthKind, steps: list[Step]
) -> None:
    scene = begun(first, kind, grow=True)
    for number, step in enumerate(steps):
        play(scene, step, number, kind)
        check_order(scene)
    drain(scene, steps)
    assert scene.listed == scene.sent
    event(f"{len(scene.recorded.by_group) - first} more processors")


@settings(max_examples=examples(40), deadline=None)
@given(first=FIRST, kind=KIND, steps=st.lists(st.one_of(EXPANSIONS, STRAYS), max_size=12))
def test_state_is_never_parted_from_its_keys_when_producers_disagree(
    first: int, kind: GrowthKind, steps: list[Step]
) -> None:
    """Each value joins what there was of its key, or the run that meets it fails by name."""
    scene = begun(first, kind, grow=True)
    refused = ""
    try:
        for number, step in enumerate(steps):
            play(scene, step, number, kind)
        drain(scene, steps)
    except KStreamsError as error:
        refused = error.cause
        assert isinstance(error, TopologyError), error
    event("refused" if refused else "nothing to refuse")
    decode, so_far = serdes.json().deserialize, dict[bytes, list[int]]()
    for record in scene.kafka.records("out"):
        key, values = record.key() or b"", decode(record.value() or b"")
        assert values[: len(so_far.get(key, []))] == so_far.get(key, []), "state was begun anew"
        so_far[key] = values
    if not refused:
        assert {key: sorted(values) for key, values in scene.listed.items()} == {
            key: sorted(values) for key, values in scene.sent.items()
        }


def play(scene: Scene, step: Step, number: int, kind: GrowthKind) -> None:
    """Do what happens."""
    partitions = len(scene.kafka.partitions("in"))
    match step:
        case Send(keys):
            scene.send(list(keys), number, modulo=kind == "modulo")
        case Grow(by):
            count = grown(kind, partitions, by)
            if count <= 60:
                scene.kafka.add_partitions("in", count)
        case Copy(by):
            before = len(scene.recorded.by_group)
            try:
                expand(scene, before + by)
            except (ConfigError, TopologyError):
                event("an expansion was refused")
        case Stray(key, rule, at):
            data = key.encode()
            places = {
                "linear": partition_of_key(data, scene.first, partitions),
                "modulo": partition_of_key(data, partitions, partitions),
                "other count": partition_of_key(data, min(scene.first + 1, partitions), partitions),
                "anywhere": at % partitions,
            }
            scene.kafka.append("in", b"%d" % number, data, partition=places[rule], timestamp_ms=0)
            scene.sent.setdefault(key, []).append(number)
        case "switch":
            scene.count = partitions
        case "abort":
            if scene.runs:
                abort(scene)
        case _:
            scene.run()


def check_order(scene: Scene) -> None:
    """Look at what has come out so far."""
    for key, values in scene.listed.items():
        assert values == scene.sent[key][: len(values)], "a key's values in another order"


def drain(scene: Scene, steps: list[Step]) -> None:
    """Run until everything is read: each generation of partitions may wait a run for the one before it."""
    for _ in range(2 + 2 * sum(isinstance(step, Grow) for step in steps)):
        scene.run()
