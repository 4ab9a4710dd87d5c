"""However a topic of keyed state grows, and whenever runs come between: each key's values are processed once,
in the order in which they were produced, and by the task that has its state.

The oracle is the producer's own memory: what it sent, by key. It places keys by the rule of one kind of
growth, and acknowledges before it uses a new count, so nothing that it sends goes back to an older one.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams.partitioning.topic_growth import GrowthKind
from tests.unit.batch.run.test_partition_expansion import KEYS, Scene

#: What happens next: records of some keys, growth by a number, or a run.
STEPS = st.lists(
    st.one_of(
        st.lists(st.sampled_from(KEYS[:12]), min_size=1, max_size=8),
        st.integers(1, 4),
        st.none(),
    ),
    max_size=14,
)


def grown(kind: GrowthKind, count: int, by: int) -> int:
    """Return the count that comes next."""
    return count + by if kind == "linear" else count * (by + 1)


@settings(max_examples=80, deadline=None)
@given(first=st.integers(1, 3), kind=st.sampled_from(["linear", "modulo"]), steps=STEPS)
def test_keys_keep_state_and_order_however_a_topic_grows(
    first: int, kind: GrowthKind, steps: list[list[str] | int | None]
) -> None:
    scene = Scene(first, settings={"initial.partitions": f"in={first}"})
    play(scene, steps, kind)
    # Each generation of partitions may wait a run for the one before it.
    for _ in range(2 + len([step for step in steps if isinstance(step, int)]) * 2):
        scene.run()
    assert scene.listed == scene.sent


def play(scene: Scene, steps: list[list[str] | int | None], kind: GrowthKind) -> None:
    """Do what happens."""
    for number, step in enumerate(steps):
        if step is None:
            scene.run()
            for key, values in scene.listed.items():
                assert values == scene.sent[key][: len(values)], "a key's values in another order"
        elif isinstance(step, int):
            count = grown(kind, scene.count, step)
            if count <= 60:
                scene.grow(count)
        else:
            scene.send(step, number, modulo=kind == "modulo")
