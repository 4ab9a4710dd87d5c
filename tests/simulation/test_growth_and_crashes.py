"""A process dies at every port call of three runs between which the input gains a partition: what stays in
Kafka is what runs leave whose input had all of its partitions' keys where they were, and never grew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow, serdes
from airflow_kstreams.streams.partitioning import partition_of_key
from tests.simulation.calling_runs import Arrivals, CallingRuns
from tests.simulation.crash_points import STEPS, Calls, deaths
from tests.simulation.test_calls_and_crashes import by_key

FIRST, GROWN = 2, 3
#: Two keys that move into the new partition, and one of each old one that stay.
_NUMBERED = [b"k%d" % number for number in range(100)]
MOVES = [key for key in _NUMBERED if partition_of_key(key, FIRST, GROWN) == FIRST][:2]
STAYS = [next(k for k in _NUMBERED if partition_of_key(k, FIRST, GROWN) == home) for home in range(FIRST)]
#: By run: keys, in the order in which they come. In the second one, those after None come after the growth,
#: and in the third one nothing comes for one of the old partitions.
SENT: Sequence[Sequence[bytes | None]] = (
    (MOVES[0], STAYS[0], STAYS[1], MOVES[1]),
    (MOVES[0], STAYS[1], STAYS[0], None, MOVES[0], STAYS[0], MOVES[1]),
    (MOVES[1], STAYS[0], MOVES[0]),
)


def arrivals(*, grows: bool) -> Arrivals:
    runs: list[list[tuple[int, bytes, bytes, int]]] = []
    time_ms, count = 0, FIRST
    for keys in SENT:
        runs.append([])
        for key in keys:
            if key is None:
                count = GROWN if grows else FIRST
                continue
            time_ms += 10
            runs[-1].append((partition_of_key(key, FIRST, count), key, b"%d" % time_ms, time_ms))
    return {"in": runs}


def listed() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    grouped = builder.stream("in").group_by_key()
    listed = grouped.aggregate(list, lambda key, value, so_far: [*so_far, value], store="listed")
    listed.to_stream().send_to("out")
    return builder.build()


def windowed() -> Topology:
    """Windows without grace, of which none may close before the records of the partition that waits."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    windows = builder.stream("in").group_by_key().windowed_by(TumblingWindow(size_ms=50, grace_ms=0))
    counts = windows.count(store="counts").to_stream()
    counts.map(lambda window, count: (window.key, [window.start_ms, count])).send_to("out")
    return builder.build()


def runs(topology: Callable[[], Topology], calls: Calls, *, grows: bool) -> CallingRuns:
    def before(number: int) -> None:
        if grows and number == 1:
            played.kafka.add_partitions("in", GROWN)

    played = CallingRuns(topology, arrivals(grows=grows), calls, before=before)
    return played


@pytest.mark.parametrize("topology", [listed, pytest.param(windowed, marks=pytest.mark.prove)])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
def test_runs_leave_what_runs_without_growth_leave_when_a_process_dies_at_any_port_call(
    topology: Callable[[], Topology], takes_effect: bool, step: int
) -> None:
    outputs, state, _ = by_key(runs(topology, Calls(), grows=False).run())
    assert outputs and state
    calls = Calls()
    assert by_key(runs(topology, calls, grows=True).run())[:2] == (outputs, state)
    for number, made in deaths(calls.made, step=step, takes_effect=takes_effect):
        crashing = Calls(last=number, takes_effect=takes_effect)
        left = by_key(runs(topology, crashing, grows=True).run())
        assert left[:2] == (outputs, state), f"no. {number}, {made}"
