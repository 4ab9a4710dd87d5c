"""A process dies at every port call of a topic's growth, of the catch-up of new processors, and of the runs
around it: what stays in Kafka is what runs leave that never grew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest

from airflow_kstreams.batch.expand.processor_expansion import CatchUpOptions, ProcessorExpansion
from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow, serdes
from airflow_kstreams.streams.partitioning import partition_of_key
from tests.simulation.calling_runs import Arrivals, CallingRuns, Left
from tests.simulation.crash_points import STEPS, Calls, deaths
from tests.simulation.test_calls_and_crashes import by_key
from tests.simulation.test_growth_and_crashes import FIRST, GROWN, listed

pytestmark = pytest.mark.promise("keys-follow-to-new-processors", "catch-ups-go-on-where-they-were")

_NUMBERED = [b"%d" % number for number in range(10, 100)]
#: Two keys that move, and one of each old partition that stay.
MOVES = [key for key in _NUMBERED if partition_of_key(key, FIRST, GROWN) == FIRST][:2]
STAYS = [next(k for k in _NUMBERED if partition_of_key(k, FIRST, GROWN) == home) for home in range(FIRST)]
#: By run: keys, in the order in which they come. The topic grows after the first run. The second one drains
#: the old partitions, the third one the new one, and the fourth one takes over.
SENT: Sequence[Sequence[bytes]] = (
    (MOVES[0], STAYS[0], STAYS[1], MOVES[1]),
    (MOVES[0], STAYS[1], STAYS[0]),
    (MOVES[1], STAYS[0]),
    (MOVES[0], STAYS[1], MOVES[1], STAYS[0], MOVES[0]),
)
RUNS = tuple(f"run-{number}" for number in range(1, len(SENT) + 1))
TAKES_OVER = 3


def arrivals(*, grows: bool) -> Arrivals:
    runs: list[list[tuple[int, bytes, bytes, int]]] = []
    time_ms = 0
    for number, keys in enumerate(SENT):
        count = GROWN if grows and number else FIRST
        runs.append([])
        for key in keys:
            time_ms += 10
            runs[-1].append((partition_of_key(key, FIRST, count), key, b"%d" % time_ms, time_ms))
    return {"in": runs}


def windowed() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    windows = builder.stream("in").group_by_key().windowed_by(TumblingWindow(size_ms=1_000, grace_ms=0))
    counts = windows.count(store="counts").to_stream()
    counts.map(lambda window, count: (window.key, [window.start_ms, count])).send_to("out")
    return builder.build()


def runs(topology: Callable[[], Topology], calls: Calls, *, grows: bool) -> CallingRuns:
    def before(number: int) -> None:
        if grows and number == 1:
            played.kafka.add_partitions("in", GROWN)
        if grows and number == TAKES_OVER:
            played.until_done(partial(expand, played))

    played = CallingRuns(topology, arrivals(grows=grows), calls, before=before, run_ids=RUNS)
    return played


def expand(played: CallingRuns, try_number: int) -> None:
    cluster = played.calls.process(played.kafka, "catch-up")
    with ProcessorExpansion(
        cluster, played.settings, subtopology=None, count=GROWN, clock=played.kafka.clock
    ) as tool:
        tool.run(CatchUpOptions(follow=False, parallel=1))


def by_processor(left: Left, processors: int) -> Mapping[str, Mapping[bytes, bytes]]:
    """Return the state that tasks have: of each key, what lies in its own processor's partition."""
    found: dict[str, dict[bytes, bytes]] = {}
    for changelog, held in left.state.items():
        for (partition, key), value in held.items():
            assert key is not None
            record_key = key[:2] if changelog.endswith("listed-changelog") else key[:-8]
            if partition == partition_of_key(record_key, FIRST, processors):
                found.setdefault(changelog, {})[key] = value
    return found


#: The processes of which growth by partitions alone knows nothing.
NEW = ("catch-up", f"driver {RUNS[TAKES_OVER]}")


@pytest.mark.parametrize(
    ("topology", "dying"), [(listed, NEW), pytest.param(windowed, ("",), marks=pytest.mark.prove)]
)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
def test_runs_leave_what_runs_without_growth_leave_when_a_process_dies_at_any_port_call(
    topology: Callable[[], Topology], dying: Sequence[str], takes_effect: bool, step: int
) -> None:
    never = runs(topology, Calls(), grows=False).run()
    outputs, state = by_key(never)[0], by_processor(never, FIRST)
    assert outputs and state

    def check(left: Left) -> None:
        assert by_key(left)[0] == outputs
        assert by_processor(left, GROWN) == state

    calls = Calls()
    check(runs(topology, calls, grows=True).run())
    assert all(any(name in made for made in calls.made) for name in dying)
    for number, made in deaths(calls.made, step=step, takes_effect=takes_effect):
        if any(name in made for name in dying):
            played = runs(topology, Calls(last=number, takes_effect=takes_effect), grows=True)
            try:
                check(played.run())
            except BaseException as error:
                error.add_note(f"no. {number}, {made}")
                raise
