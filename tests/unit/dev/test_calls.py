"""``dev/bench async``: what it measures is what it says, and its bars are judged."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from airflow_kstreams.testing import TopologyTestDriver
from dev.benchmarks.calls import bars, command, inputs, memory, page, picture, rounds
from dev.benchmarks.calls.cases import CASES, KEYS, SYSTEMS, Case, Keys, Order, beside, judged
from dev.benchmarks.calls.measured import FILE, Measured, Results, Round, merged, ratio, read
from dev.benchmarks.calls.memory import LOADS, SETTLED_RECORDS, WAITING_MB, Curve, Load
from dev.benchmarks.calls.task_host import Clocked, topology
from dev.benchmarks.hosts import HOSTS


def measured(
    case: Case,
    *rates: float,
    latency_ms: float | None = None,
    records: int = 1_000,
    hottest_records: int = 100,
) -> Measured:
    """Return a case with a round for each rate."""
    in_call = case.latency_ms if latency_ms is None else latency_ms
    return Measured(
        case=case,
        records=records,
        hottest_records=hottest_records,
        rounds=[
            Round(
                seconds=records / rate,
                latency_ms=in_call,
                hottest_ms=in_call,
                processor_seconds=0.1,
                peak_memory_mb=100.0,
                others=0.0,
            )
            for rate in rates
        ],
    )


def results(*cases: Measured) -> Results:
    return Results(machine="a machine", measured="2026-11-25", cases=cases)


def figures(*cases: Measured) -> dict[str, float]:
    return {bar.short: round(bar.figure, 3) for bar in bars.bars_of(results(*cases))}


# == cases and records


def test_every_case_stands_once_and_has_a_system_and_a_host() -> None:
    assert len(set(CASES)) == len(CASES)
    assert {case.system for case in CASES} == set(SYSTEMS)
    assert {system.host for system in SYSTEMS.values()} <= set(HOSTS)


@pytest.mark.parametrize(
    ("case", "records"),
    [
        (bars.asyncio(in_flight=1), 500),
        (bars.threads(64), 32_000),
        (bars.asyncio(), 128_000),
        (bars.asyncio(1), 150_000),
        (bars.by_key(), 5_000),
        (bars.by_key(1), 50_000),
        (beside("partition", "zipf", 10)[1], 500),
        (beside("unordered", "zipf", 10)[1], 50_000),
    ],
)
def test_case_has_as_many_records_as_it_gets_through_in_the_time(case: Case, records: int) -> None:
    assert case.records(5.0, hottest_share=0.1) == records


def test_keys_are_as_frequent_as_zipf_says_when_they_are_drawn_so() -> None:
    drawn = Counter(inputs.drawn_keys("zipf", 100_000))

    assert drawn[0] / 100_000 == pytest.approx(inputs.hottest_share("zipf"), rel=0.05)
    assert drawn[0] / drawn[1] == pytest.approx(2, rel=0.05)
    assert drawn[0] / drawn[9] == pytest.approx(10, rel=0.1)


def test_keys_are_as_frequent_as_each_other_when_they_are_uniform() -> None:
    drawn = Counter(inputs.drawn_keys("uniform", 100 * KEYS))

    assert len(drawn) == KEYS
    assert max(drawn.values()) < 2 * 100


def test_values_begin_as_their_key_says_and_differ_when_records_are_made() -> None:
    made = list(inputs.messages("t", "zipf", 500))

    assert made == list(inputs.messages("t", "zipf", 500))
    assert len({message.value for message in made}) == 500
    assert {len(message.value) for message in made} == {100}
    for message in made:
        assert message.value.startswith(inputs.beginning_of(int(message.key.removeprefix(b"key-"))))


# == what our side does


@pytest.mark.parametrize("system", ["plain", "asyncio", "threads"])
@pytest.mark.parametrize("order", ["partition", "key", "unordered"])
def test_node_gives_back_each_value_in_order_and_measures_each_call(system: str, order: Order) -> None:
    clocked = Clocked(latency_ms=0, hottest=inputs.beginning_of(0))
    request = {"system": system, "order": order, "in_flight": 4, "input": "in", "output": "out"}
    records = [(message.key, message.value, 0) for message in inputs.messages("in", "zipf", 50)]

    with TopologyTestDriver(topology(request, clocked), application_id="demo", async_seed=7) as driver:
        driver.pipe_records("in", records)
        given_back = [(record.key, record.value) for record in driver.read_output("out")]

    assert given_back == [(key, value) for key, value, _ in records]
    assert len(clocked.began) == len(clocked.ended) == len(clocked.took) == 50
    assert len(clocked.took_hottest) == sum(key == b"key-00000" for key, _, _ in records) > 0


# == bars


def test_asyncio_is_held_to_the_lower_of_places_and_the_plain_path() -> None:
    by_places = [measured(bars.asyncio(), 20_000, latency_ms=10.24), measured(bars.plain(0), 100_000)]
    by_plain_path = [measured(bars.asyncio(), 20_000, latency_ms=10.24), measured(bars.plain(0), 20_000)]

    assert figures(*by_places) == {"asyncio 256 in flight": 0.8}
    assert figures(*by_plain_path) == {"asyncio 256 in flight": 1.0}


def test_threads_are_held_to_their_number_and_the_latency_in_the_call() -> None:
    assert figures(measured(bars.threads(64), 5_000, latency_ms=12.8)) == {"64 threads": 1.0}


def test_one_in_flight_is_compared_round_by_round_with_the_plain_node() -> None:
    one = measured(bars.asyncio(10, in_flight=1), 90.0, 50.0, 99.0)
    plain = measured(bars.plain(10), 100.0, 50.0, 100.0)

    assert figures(one, plain) == {"one in flight at 10 ms": 0.99}


def test_order_by_key_is_held_to_the_calls_of_the_most_frequent_key() -> None:
    # 100 of 1,000 records follow each other, 10 ms each: a second.
    assert figures(measured(bars.by_key(), 950)) == {"key under Zipf": 0.95}


def test_peers_are_compared_at_the_same_order_and_keys_and_none_that_may_lose_results() -> None:
    cases = beside("key", "uniform", 10)
    ours, parallel, pyrallel, transactional, unwaited = (
        measured(case, rate) for case, rate in zip(cases, (190, 200, 50, 100, 500), strict=True)
    )

    assert figures(ours, parallel, pyrallel, transactional, unwaited) == {
        "Parallel Consumer KEY uniform": 0.95,
        "pyrallel-consumer KEY uniform": 3.8,
        "Parallel Consumer, transactions KEY uniform": 1.9,
    }
    assert figures(ours, measured(beside("unordered", "uniform", 10)[1], 1)) == {}


def curve(load: Load, in_flight: int, *points: tuple[int, float]) -> Curve:
    return Curve(
        name=load.name,
        records=load.records,
        value_bytes=load.value_bytes,
        in_flight=in_flight,
        seconds=1.0,
        points=points,
    )


def test_memory_is_held_to_that_of_a_plain_node_and_to_what_it_was_early() -> None:
    many = LOADS[0]
    curves = [
        curve(many, 0, (many.records, 100.0)),
        curve(many, 256, (SETTLED_RECORDS, 120.0), (SETTLED_RECORDS + 1, 150.0), (many.records, 144.0)),
    ]

    found = bars.bars_of(Results(machine="m", measured="d", memory=curves))

    assert [(bar.short, round(bar.figure, 3), bar.met) for bar in found] == [
        ("memory of waiting results, many records", round(50 / WAITING_MB, 3), True),
        ("memory growth", 1.25, False),
    ]


def test_curve_keeps_its_highest_points_and_its_last_one_when_it_is_thinned() -> None:
    sampled = [(number, float(number % 7)) for number in range(5_000)]

    thin = memory.thinned([*sampled, (5_000, 9.0)])

    assert len(thin) <= 201
    assert thin[-1] == (5_000, 9.0)
    assert min(megabytes for _, megabytes in thin) == 6.0


def test_new_figures_take_the_place_of_old_ones_of_the_same_machine_and_revision_only() -> None:
    old = results(measured(bars.by_key(), 1.0), measured(bars.threads(8), 1.0))
    new = results(measured(bars.by_key(), 2.0))
    elsewhere = Results(machine="another", measured="d", cases=new.cases)
    later = msgspec.structs.replace(old, revision="later", cases=new.cases)

    assert [(each.case, each.rate) for each in merged(old, new).cases] == [
        (bars.threads(8), 1.0),
        (bars.by_key(), 2.0),
    ]
    assert merged(old, elsewhere) == elsewhere
    assert merged(old, later) == later
    assert merged(None, new) == new


def test_bar_is_missed_when_its_figure_as_printed_is_less() -> None:
    [missed] = bars.bars_of(results(measured(bars.threads(8), 710)))
    [met] = bars.bars_of(results(measured(bars.threads(8), 717)))

    assert str(missed) == "8 threads, 10 ms, against threads / latency of a call: 0.89 (at least 0.9): missed"
    assert str(met) == "8 threads, 10 ms, against threads / latency of a call: 0.90 (at least 0.9)"


def test_last_line_names_every_ratio_and_what_was_missed() -> None:
    line = bars.ratios(results(measured(bars.threads(8), 400), measured(bars.by_key(), 950)))

    assert line == "ratios: 8 threads 0.50 (missed), key under Zipf 0.95"
    assert bars.ratios(results()) == "ratios: none"


def test_ratio_is_the_median_over_the_rounds_that_both_had() -> None:
    ours, theirs = measured(bars.asyncio(), 10, 30, 100), measured(bars.plain(0), 10, 10)

    assert ratio(ours, theirs) == pytest.approx(2)


# == rounds


def made(*others: float) -> dict[Case, Round]:
    """Return a round, of as many cases as there are shares of others."""
    cases = CASES[: len(others)]
    return {
        case: Round(
            seconds=1, latency_ms=10, hottest_ms=10, processor_seconds=1, peak_memory_mb=1, others=share
        )
        for case, share in zip(cases, others, strict=True)
    }


def test_quietest_rounds_are_kept_whole_and_in_their_order() -> None:
    loud, calm, still, fair = made(0.0, 0.9), made(0.05, 0.1), made(0.0, 0.0), made(0.2, 0.2)

    assert rounds.quietest([loud, calm, still, fair], 2) == [calm, still]
    assert rounds.quietest([loud, calm], 5) == [loud, calm]


def test_rounds_go_on_until_enough_of_them_were_quiet() -> None:
    assert rounds.quiet([made(0.1, 0.1), made(0.0, 0.5), made(0.0)], 2)
    assert not rounds.quiet([made(0.1, 0.1), made(0.0, 0.5), made(0.0)], 3)


@pytest.mark.parametrize("keys", ["uniform", "zipf"])
def test_table_has_a_line_for_each_case_and_no_cut_figures(keys: Keys) -> None:
    console = Console(width=command.WIDTH, record=True, file=io.StringIO())
    chosen = [case for case in CASES if case.keys == keys]

    console.print(command.table_of(results(*(measured(case, 12_345.6) for case in chosen))))

    printed = console.export_text()
    assert printed.count("12,346") == len(chosen)
    assert "…" not in printed


def test_picture_is_drawn_of_whatever_was_measured(tmp_path: Path) -> None:
    few = results(measured(bars.threads(8), 700), measured(bars.by_key(), 950))

    for name in ("one.svg", "another.svg"):
        picture.draw(few, tmp_path / name)

    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "another.svg").read_bytes()


def test_page_has_every_bar_and_case_between_its_marks_and_is_else_as_it_was() -> None:
    few = results(measured(bars.threads(8), 700), measured(bars.by_key(), 950))
    marks = "<!-- figures: dev/bench async -->\n<!-- end of figures -->\n"
    text = page.with_figures(f"before\n{marks}after\n", few)

    again = page.with_figures(text, results(measured(bars.threads(8), 760)))

    assert (
        text.count("| at least 0.9 | 0.88 | MISSED |") == text.count("| at least 0.9 | 0.95 | reached |") == 1
    )
    assert again.startswith("before\n<!-- figures")
    assert again.endswith("<!-- end of figures -->\nafter\n")
    assert "MISSED" not in again
    assert again.count("| 760 | 0% |") == 1
    with pytest.raises(ValueError, match="no <!-- figures"):
        page.with_figures("before\n", few)


def test_group_is_judged_when_a_bar_is_about_it() -> None:
    assert judged((bars.plain(0),))
    assert judged((bars.asyncio(1, in_flight=1),))
    assert judged(beside("unordered", "zipf", 10))
    assert not judged((bars.threads(64, 1),))
    assert not judged(beside("key", "uniform", 5))


# == what is stored


def test_stored_figures_have_every_case_and_miss_no_bar() -> None:
    stored = read()
    assert stored is not None, f"{FILE} is missing: dev/bench async"

    assert [each.case for each in stored.cases] == list(CASES)
    assert len(stored.revision) >= 7
    assert not stored.revision.endswith("+")
    assert [bar.short for bar in bars.bars_of(stored) if not bar.met] == []


def test_stored_picture_and_page_are_those_of_the_stored_figures(tmp_path: Path) -> None:
    stored = read()
    assert stored is not None

    picture.draw(stored, tmp_path / "calls.svg")

    assert (tmp_path / "calls.svg").read_bytes() == picture.PICTURE.read_bytes()
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.with_figures(text, stored) == text
