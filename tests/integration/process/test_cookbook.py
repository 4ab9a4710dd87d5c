"""The recipes of docs/explanation/cookbook.md over real flights, in slices with restarts between, beside
results that are computed here.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from airflow_kstreams.streams import Topology, Windowed, partition_of_key
from airflow_kstreams.testing import OutputRecord, TopologyTestDriver
from dev.flight_demo.data import Stretch, records
from tests.support.topology.examples import code_blocks

PAGE = (Path(__file__).parents[3] / "docs" / "explanation" / "cookbook.md").read_text(encoding="utf-8")
PREPARED, *RECIPES = code_blocks(PAGE)
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
SLICES = 3
DAYS = 3


class Sent(NamedTuple):
    """A record of an input topic; the partition is the key's unless given."""

    topic: str
    key: str
    value: Any
    at_ms: int
    partition: int | None = None


@cache
def data(topic: str) -> tuple[Sent, ...]:
    """Return the records of a topic in the order of their times."""
    found = records(Stretch(first_day=0, end_day=DAYS))
    of_topic = [r for r in found if r.topic == topic]
    return tuple(Sent(topic, r.key.decode(), json.loads(r.value), r.timestamp_ms) for r in of_topic)


def flights() -> list[Sent]:
    return [*data("flights")]


def id_of(flight: dict[str, Any]) -> str:
    return f"{flight['carrier']}{flight['flight']} {flight['origin']} {flight['time_hour']}"


def topology_of(name: str) -> Topology:
    """Run the block of a recipe behind the page's first one, and return what its function builds."""
    (block,) = [block for block in RECIPES if f"def {name}() -> Topology:" in block.code]
    names: dict[str, Any] = {}
    for code in (PREPARED.code, block.code):
        exec(code, names)
    built = names[name]()
    assert isinstance(built, Topology)
    return built


def sliced(sent: Iterable[Sent]) -> list[list[Sent]]:
    ordered = sorted(sent, key=lambda each: each.at_ms)
    size = -(-len(ordered) // SLICES)
    return [ordered[at : at + size] for at in range(0, len(ordered), size)]


def run(name: str, slices: list[list[Sent]], *, partitions: int = 4) -> Callable[[str], list[OutputRecord]]:
    """Run a recipe, and return what reads an output topic."""
    topology = topology_of(name)
    inputs = {topic for sub in topology.plan("app").subtopologies for topic in sub.sources}
    own = {*topology.plan("app").intermediates}
    driver = TopologyTestDriver(
        topology, application_id="app", partitions=dict.fromkeys(inputs - own, partitions)
    )
    with driver:
        for slice_ in slices:
            with driver.run():
                for topic, key, value, at_ms, partition in slice_:
                    driver.pipe_input(topic, key=key, value=value, timestamp_ms=at_ms, partition=partition)
            driver.restart()
        written = {topic: driver.read_output(topic) for topic in topology.plan("app").outputs}
    return lambda topic: written[topic]


def last_of(written: Iterable[OutputRecord]) -> dict[Any, Any]:
    return {record.key: record.value for record in written}


def once(written: list[OutputRecord]) -> dict[Any, Any]:
    """Return results that come once each."""
    assert len({record.key for record in written}) == len(written)
    return last_of(written)


def closed(found: dict[Windowed, Any], expected: dict[tuple[str, int], Any], *, waited_ms: int) -> None:
    """Check windows that were emitted: each as expected, and all that ended long before the data does."""
    shown = {(window.key, window.start_ms): (value, window.end_ms) for window, value in found.items()}
    assert {place: value for place, (value, _) in shown.items()}.items() <= expected.items()
    size_ms = next(iter(found)).end_ms - next(iter(found)).start_ms
    end_ms = min(max(f.at_ms for f in flights() if f.key == airport) for airport in ("JFK", "EWR", "LGA"))
    due = {place for place in expected if place[1] + size_ms + waited_ms <= end_ms}
    assert due
    assert due <= shown.keys()


def test_page_has_fifteen_recipes_and_each_is_run() -> None:
    named = re.findall(r"def (\w+)\(\) -> Topology:", PAGE)
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert len(named) == len(RECIPES) == 15
    assert {*named} <= tested


def test_drop_duplicates() -> None:
    doubled = [again for f in flights() for again in (f, f._replace(at_ms=f.at_ms + MINUTE_MS))]
    written = once(run("drop_duplicates", sliced(doubled))("flights-once"))
    assert written == {id_of(f.value): f.value for f in flights()}


def test_sessions() -> None:
    by_plane: dict[str, list[int]] = defaultdict(list)
    for flight in flights():
        if flight.value["tailnum"] is not None:
            by_plane[flight.value["tailnum"]].append(flight.at_ms)
    expected: Counter[tuple[str, int, int]] = Counter()
    for plane, times in by_plane.items():
        cuts = [0, *(n + 1 for n, (a, b) in enumerate(pairwise(times)) if b - a > 6 * HOUR_MS), len(times)]
        for begin, end in pairwise(cuts):
            expected[plane, times[begin], times[end - 1]] = end - begin
    found = last_of(run("sessions", sliced(flights()))("days-at-work"))
    assert {tuple(window): count for window, count in found.items() if count is not None} == expected


def test_enrich() -> None:
    names = {airline.key: airline.value["name"] for airline in data("airlines")}
    first, *others = sliced(flights())
    written = run("enrich", [[*data("airlines")], first, *others])("flights-named")
    found = Counter((id_of(record.value), record.value["airline"]) for record in written)
    assert found == Counter((id_of(f.value), names[f.value["carrier"]]) for f in flights())


def test_top_n() -> None:
    delays: dict[str, list[list[Any]]] = defaultdict(list)
    for flight in flights():
        if flight.value["dep_delay"] is not None:
            delays[flight.key].append([flight.value["dep_delay"], id_of(flight.value)])
    expected = {airport: sorted(found, reverse=True)[:3] for airport, found in delays.items()}
    assert last_of(run("top_n", sliced(flights()))("worst-delays")) == expected


def test_slowly_changing() -> None:
    def versions(seen: list[Sent]) -> Iterator[dict[str, Any]]:
        begun = seen[0]
        for each in seen[1:]:
            if each.value["visib"] != begun.value["visib"]:
                yield {"row": begun.value["visib"], "from_ms": begun.at_ms, "to_ms": each.at_ms}
                begun = each

    written = run("slowly_changing", sliced(data("weather")))("visibility-history")
    for airport in ("JFK", "EWR", "LGA"):
        found = [record.value for record in written if record.key == airport]
        assert found == [*versions([seen for seen in data("weather") if seen.key == airport])]
    assert written


def test_funnel() -> None:
    expected: dict[str, dict[str, int]] = {}
    for flight in (f.value for f in flights()):
        steps = expected.setdefault(
            flight["carrier"], dict.fromkeys(("scheduled", "departed", "arrived", "on time"), 0)
        )
        steps["scheduled"] += 1
        steps["departed"] += flight["dep_time"] is not None
        steps["arrived"] += flight["arr_time"] is not None
        steps["on time"] += flight["arr_delay"] is not None and flight["arr_delay"] <= 0
    assert last_of(run("funnel", sliced(flights()))("funnel")) == expected


def test_reconcile() -> None:
    sent: list[Sent] = []
    expected: dict[str, Any] = {}
    for number, flight in enumerate(flights()):
        key, miles = id_of(flight.value), {"miles": flight.value["distance"]}
        billed = {"miles": flight.value["distance"] + (number % 11 == 0)}
        if number % 7:
            sent.append(Sent("booked", key, miles, flight.at_ms))
        if number % 13:
            sent.append(Sent("billed", key, billed, flight.at_ms + 10 * MINUTE_MS))
        if not number % 7 and number % 13:
            expected[key] = {"missing in": "booked"}
        elif number % 7 and not number % 13:
            expected[key] = {"missing in": "billed"}
        elif number % 7 and not number % 11:
            expected[key] = {"booked": miles, "billed": billed}
    end_ms = flights()[-1].at_ms + DAY_MS
    ends = [
        Sent(topic, f"end {partition}", {}, end_ms, partition)
        for topic in ("booked", "billed")
        for partition in range(4)
    ]
    assert once(run("reconcile", [*sliced(sent), ends])("differences")) == expected


def test_late_data() -> None:
    first, second, third = sliced(flights())
    delayed = first[::50]
    in_time = [flight for flight in first if flight not in delayed]
    read_ms: dict[int, int] = defaultdict(int)
    for flight in in_time:
        place = partition_of_key(flight.key.encode(), 4, 4)
        read_ms[place] = max(read_ms[place], flight.at_ms)
    late = [
        flight
        for flight in delayed
        if read_ms[partition_of_key(flight.key.encode(), 4, 4)]
        >= flight.at_ms // HOUR_MS * HOUR_MS + HOUR_MS + 10 * MINUTE_MS
    ]
    read = run("late_data", [in_time, [*delayed, *second], third])
    assert late
    assert Counter(id_of(record.value) for record in read("flights-late")) == Counter(
        id_of(flight.value) for flight in late
    )
    hours = Counter(
        (flight.key, flight.at_ms // HOUR_MS * HOUR_MS) for flight in flights() if flight not in late
    )
    closed(once(read("departures-per-hour")), dict(hours), waited_ms=10 * MINUTE_MS)


def test_forget() -> None:
    first, second, third = sliced(flights())
    asked_ms = second[-1].at_ms + 1
    planes = sorted({f.value["tailnum"] for f in [*first, *second] if f.value["tailnum"] is not None})
    asked = [Sent("forget", plane, {"by": "mail"}, asked_ms) for plane in planes[::3]]
    expected: dict[str, str | None] = {}
    for each in [*first, *second, *asked, *third]:
        if each.topic == "forget":
            expected[each.key] = None
        elif each.value["tailnum"] is not None:
            expected[each.value["tailnum"]] = id_of(each.value)
    found = last_of(run("forget", [first, second, asked, third], partitions=1)("flights-of-planes"))
    assert found == expected
    assert None in expected.values()


def test_one_stream() -> None:
    sent = [*flights(), *data("weather")]
    written = run("one_stream", sliced(sent))("events")
    ids = Counter(record.value["id"] for record in written if record.value["what"] == "flight")
    seen = Counter((r.key, r.value["visib"]) for r in written if r.value["what"] == "weather")
    assert ids == Counter(id_of(flight.value) for flight in flights())
    assert seen == Counter((each.key, each.value["visib"]) for each in data("weather"))
    for airport in ("JFK", "EWR", "LGA"):
        times = [record.timestamp_ms for record in written if record.key == airport]
        assert times == sorted(times)


@pytest.mark.parametrize(("topic", "airports"), [("jfk", ["JFK"]), ("ewr", ["EWR"]), ("elsewhere", ["LGA"])])
def test_route(topic: str, airports: list[str]) -> None:
    written = run("route", sliced(flights()))(f"flights-{topic}")
    expected = [flight.value for flight in flights() if flight.key in airports]
    assert [record.value for record in written] == expected


def test_moving_average() -> None:
    delays: dict[tuple[str, int], list[int]] = defaultdict(list)
    for flight in flights():
        hour_ms = flight.at_ms // HOUR_MS * HOUR_MS
        if flight.value["dep_delay"] is not None:
            for start_ms in (hour_ms - 2 * HOUR_MS, hour_ms - HOUR_MS, hour_ms):
                delays[flight.key, start_ms].append(flight.value["dep_delay"])
    expected = {place: sum(found) / len(found) for place, found in delays.items()}
    closed(once(run("moving_average", sliced(flights()))("mean-delays")), expected, waited_ms=0)


def test_distinct() -> None:
    places: dict[tuple[str, int], set[str]] = defaultdict(set)
    for flight in flights():
        places[flight.value["carrier"], flight.at_ms // DAY_MS * DAY_MS].add(flight.value["dest"])
    expected = {place: len(found) for place, found in places.items()}
    found = once(run("distinct", sliced(flights()))("places-per-day"))
    # A carrier that flies seldom, in a partition of its own, would not move time on.
    assert {(w.key, w.start_ms): value for w, value in found.items()}.items() <= expected.items()
    first_ms = min(day for _, day in expected)
    assert {carrier for carrier, day in expected if day == first_ms} <= {w.key for w in found}


def test_silence() -> None:
    expected: list[tuple[str, int, int]] = []
    last: dict[str, int] = {}
    ticked_ms = 0
    for flight in flights():
        last[flight.key] = flight.at_ms
        now_ms = flight.at_ms // HOUR_MS * HOUR_MS
        for tick_ms in range(ticked_ms + HOUR_MS if ticked_ms else now_ms, now_ms + 1, HOUR_MS):
            silent = sorted(airport for airport, at_ms in last.items() if at_ms <= tick_ms - 3 * HOUR_MS)
            expected += [(airport, last.pop(airport), tick_ms) for airport in silent]
        ticked_ms = now_ms
    written = run("silence", sliced(flights()), partitions=1)("silent-airports")
    found = [(record.key, record.value["last_ms"], record.value["told_ms"]) for record in written]
    assert found == expected
    assert found


def test_planes_at() -> None:
    bound = {f.value["tailnum"]: f.value["dest"] for f in flights() if f.value["tailnum"] is not None}
    found = last_of(run("planes_at", sliced(flights()), partitions=1)("planes-at"))
    assert {place: count for place, count in found.items() if count} == Counter(bound.values())
