"""The bars: each line that is to be reached has one, and its figure is what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import pytest

from dev.benchmarks import bars, page
from dev.benchmarks.bars import Row
from dev.benchmarks.results import Result
from dev.benchmarks.workloads import WORKLOADS

#: Workload, system, guarantee.
Key = tuple[str, str, str]
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"
OURS, JAVA, JAVA_PLAIN = "airflow-kstreams", "kafka-streams", "kafka-streams-plain"
AVAILABLE_NOW, SPARK_BATCH = "spark-available-now", "spark-batch"
QUIX, QUIX_PLAIN = "quix-streams", "quix-streams-plain"
LOOP, LOOP_BY_COLUMNS = "hand-written", "hand-written-columns"
ICEBERG, DELTA = f"{OURS}-iceberg", f"{OURS}-delta"

#: To be reached: workload, ours, the peer, its guarantee, and how many times as fast ours must be.
TIMES_AS_FAST: Sequence[tuple[str, str, str, str, float]] = [
    ("stateless", OURS, JAVA, EXACTLY_ONCE, 1.6),
    ("stateless", OURS, QUIX_PLAIN, EXACTLY_ONCE, 12),
    ("stateless", OURS, QUIX, EXACTLY_ONCE, 10),
    ("stateless", "airflow-kstreams-batches", JAVA, EXACTLY_ONCE, 1.9),
    ("stateless", OURS, LOOP, EXACTLY_ONCE, 1.2),
    ("sum-50k", OURS, LOOP, EXACTLY_ONCE, 1.1),
    ("stateless", OURS, AVAILABLE_NOW, AT_LEAST_ONCE, 3),
    ("sum-50k", OURS, JAVA, EXACTLY_ONCE, 2.3),
    ("sum-2m", OURS, AVAILABLE_NOW, AT_LEAST_ONCE, 1.3),
    ("sum-2m", OURS, SPARK_BATCH, AT_LEAST_ONCE, 1.3),
    *(
        (workload, OURS, JAVA, EXACTLY_ONCE, 1.3)
        for workload in (
            *("join", "stream-table", "tables", "foreign-key", "table-groups", "cogroup"),
            *("tumbling", "sliding", "session"),
        )
    ),
    ("two-stage", OURS, AVAILABLE_NOW, AT_LEAST_ONCE, 1.3),
    ("two-stage", OURS, SPARK_BATCH, AT_LEAST_ONCE, 1.05),
    ("hourly", OURS, JAVA, EXACTLY_ONCE, 1.3),
    ("hourly", OURS, JAVA, AT_LEAST_ONCE, 1.1),
    ("cold", "airflow-kstreams-prepared", JAVA, EXACTLY_ONCE, 0.8),
    ("cold", "airflow-kstreams-prepared", QUIX, EXACTLY_ONCE, 1.1),
    ("empty", OURS, JAVA, EXACTLY_ONCE, 0.8),
    ("empty", OURS, AVAILABLE_NOW, AT_LEAST_ONCE, 0.3),
    ("stateless", OURS, LOOP_BY_COLUMNS, EXACTLY_ONCE, 0.75),
    ("sum-50k", OURS, LOOP_BY_COLUMNS, EXACTLY_ONCE, 0.75),
    *(
        (f"padded-{size}-{partitions}-{codec}", OURS, JAVA, EXACTLY_ONCE, 1)
        for size in (100, 2_000)
        for partitions in (1, 4, 16)
        for codec in ("lz4", "zstd")
    ),
    # Not among the new ones, and kept.
    ("stateless", OURS, JAVA_PLAIN, EXACTLY_ONCE, 1.2),
    ("sum-50k", OURS, JAVA_PLAIN, EXACTLY_ONCE, 3),
    ("sum-50k", OURS, QUIX_PLAIN, EXACTLY_ONCE, 10),
    ("sum-50k", OURS, QUIX, EXACTLY_ONCE, 10),
    # Results that go to tables.
    ("table-append", ICEBERG, OURS, EXACTLY_ONCE, 1),
    ("table-append", DELTA, OURS, EXACTLY_ONCE, 1),
    ("table-append", ICEBERG, f"{AVAILABLE_NOW}-parquet", EXACTLY_ONCE, 1.5),
    ("table-append", DELTA, f"{AVAILABLE_NOW}-parquet", EXACTLY_ONCE, 1.5),
]
#: Seconds that are at most so many times another system's: workload, ours, the other, its guarantee, limit.
AT_MOST: Sequence[tuple[str, str, str, str, float]] = [
    ("table-small", ICEBERG, OURS, EXACTLY_ONCE, 1.3),
    ("table-small", DELTA, OURS, EXACTLY_ONCE, 1.3),
    ("table-files", OURS, "pyiceberg", "none", 1.3),
    ("table-files", DELTA, "deltalake", "none", 1.3),
    ("table-snapshots", OURS, f"{OURS}-few", EXACTLY_ONCE, 1.2),
]
#: What lines have measured beside their time.
DETAILS = ("worker_peak_memory_mb", "process_peak_mb", "rewritten_mb", "finish_seconds")
#: Only shown: workload, ours, the peer.
SHOWN_BESIDE = [
    *(
        ("stateless", OURS, f"raw-{way}")
        for way in ("consume", "produce", "consume-columns", "produce-columns")
    ),
    ("empty", "airflow-kstreams-three", JAVA),
    ("empty", "airflow-kstreams-three", AVAILABLE_NOW),
    ("table-upsert", ICEBERG, "deltalake-merge"),
    ("table-upsert", DELTA, "deltalake-merge"),
]
#: Others that take less processor time than ours decide a bar.
RIVALS = {
    "stateless": [
        *((system, EXACTLY_ONCE) for system in (LOOP, JAVA, JAVA_PLAIN, QUIX, QUIX_PLAIN)),
        *((system, AT_LEAST_ONCE) for system in (AVAILABLE_NOW, SPARK_BATCH, JAVA)),
    ],
    "sum-50k": [
        *((system, EXACTLY_ONCE) for system in (LOOP, JAVA, JAVA_PLAIN, QUIX, QUIX_PLAIN)),
        *((system, AT_LEAST_ONCE) for system in (AVAILABLE_NOW, SPARK_BATCH, JAVA)),
    ],
    "sum-2m": [
        *((system, EXACTLY_ONCE) for system in (LOOP, JAVA, JAVA_PLAIN)),
        *((system, AT_LEAST_ONCE) for system in (AVAILABLE_NOW, SPARK_BATCH)),
    ],
}
#: What the machine did to everything in a round, and what it did to a peer alone: neither may change a
#: figure. The ratio of the medians, the mean of the ratios and the ratio of the sums would be others.
UNREST = (1.0, 8.0, 2.0, 3.0, 1.0, 5.0, 2.0)
LUCK = (1.0, 1.0, 0.1, 9.0, 1.0, 0.5, 7.0)


def measured(
    seconds: Mapping[Key, float] = {},
    processor: Mapping[Key, float] = {},
    rounds: Callable[[Key], int] = lambda _: 7,
) -> list[Result]:
    """Return a line for every system of every workload, 1 second and 1 processor second a round unless given.

    :param seconds: of a round; the machine's unrest is on top of it, for all alike.
    :param processor: processor seconds of a round, likewise.
    :param rounds: how many a line has.
    """
    found = []
    for workload in WORKLOADS.values():
        for system in workload.systems:
            key = (workload.name, system.name, system.guarantee)
            luck = LUCK if key in seconds or key in processor else (1.0,) * 7
            unrest = [mine * its for mine, its in zip(UNREST, luck, strict=True)][: rounds(key)]
            found.append(
                Result(
                    workload=workload.name,
                    system=system.name,
                    guarantee=system.guarantee,
                    records_per_second=1.0,
                    wall_seconds=1.0,
                    peak_memory_mb=1.0,
                    records=1,
                    rounds=[seconds.get(key, 1.0) * each for each in unrest],
                    ours_ratio=1.0,
                    processor_rounds=[processor.get(key, 1.0) * each for each in unrest],
                    details=dict.fromkeys(DETAILS, 1.0),
                )
            )
    return found


def turned(worse: Sequence[Result], better: Sequence[Result]) -> list[Row]:
    """Return the bars that are missed with the first results and reached with the others."""
    pairs = zip(bars.rows_of(worse), bars.rows_of(better), strict=True)
    return [row for before, row in pairs if (before.verdict, row.verdict) == ("MISSED", "reached")]


@pytest.mark.parametrize(("workload", "ours", "peer", "guarantee", "limit"), TIMES_AS_FAST)
def test_bar_is_reached_from_its_limit_on_when_ours_is_so_many_times_as_fast_as_the_peer(
    workload: str, ours: str, peer: str, guarantee: str, limit: float
) -> None:
    # This engine's other lines are far slower: they are not the ones that count.
    others = {OURS, f"{OURS}-prepared", ICEBERG, DELTA} - {ours}
    slow = dict.fromkeys(((workload, other, EXACTLY_ONCE) for other in others), 100.0)
    key = (workload, peer, guarantee)
    found = turned(measured({**slow, key: 0.99 * limit}), measured({**slow, key: 1.01 * limit}))
    (row,) = [row for row in found if row.bar.limit == limit and row.bar.workloads == (workload,)]
    assert row.figure == f"{1.01 * limit:.2f} x"
    assert row.rounds == f"7: {0.1 * 1.01 * limit:.2f} - {9 * 1.01 * limit:.2f}"


@pytest.mark.parametrize(("workload", "ours", "other", "guarantee", "limit"), AT_MOST)
def test_bar_is_reached_up_to_its_limit_when_ours_takes_so_many_times_the_seconds_of_another(
    workload: str, ours: str, other: str, guarantee: str, limit: float
) -> None:
    # The lines of the other format take next to no time: they are not the ones that count.
    quick = {(workload, each, EXACTLY_ONCE): 0.01 for each in (ICEBERG, DELTA, OURS)} | {
        (workload, other, guarantee): 1.0
    }
    key = (workload, ours, EXACTLY_ONCE)
    found = turned(measured({**quick, key: 1.01 * limit}), measured({**quick, key: 0.99 * limit}))
    (row,) = [row for row in found if row.bar.workloads == (workload,)]
    assert (row.figure, row.bar.limit) == (f"{0.99 * limit:.2f} x", limit)


def test_every_bar_of_speed_is_one_of_those_that_are_to_be_reached() -> None:
    beside = [row for row in bars.rows_of(measured()) if " against " in row.bar.text and row.bar.processes]
    decided = [row.bar.limit for row in beside if row.bar.limit is not None]
    assert sorted(decided) == sorted(limit for *_, limit in TIMES_AS_FAST)
    assert len(beside) - len(decided) == len(SHOWN_BESIDE)


@pytest.mark.parametrize(("workload", "ours", "peer"), SHOWN_BESIDE)
def test_figure_is_shown_and_decides_nothing_when_no_limit_is_set(
    workload: str, ours: str, peer: str
) -> None:
    keys = [key for result in measured() if (key := result.key)[:2] == (workload, peer)]
    faster = dict.fromkeys(keys, 0.25) | {(workload, ours, EXACTLY_ONCE): 0.5}
    rows = bars.rows_of(measured(faster, rounds=lambda _: 1))
    assert [row.figure for row in rows if row.verdict == "shown" and row.figure == "0.50 x"]


@pytest.mark.parametrize(
    ("workload", "peer", "times", "said"),
    [
        ("stateless", JAVA, 2.4, "reached, aim missed"),
        ("stateless", JAVA, 2.6, "reached, aim reached"),
        ("stateless", JAVA, 1.8, "MISSED, aim missed"),
        ("sum-50k", JAVA, 2.9, "reached, aim missed"),
        ("sum-50k", JAVA, 3.1, "reached, aim reached"),
    ],
)
def test_aim_is_shown_beside_the_verdict_and_decides_nothing(
    workload: str, peer: str, times: float, said: str
) -> None:
    rows = bars.rows_of(measured({(workload, peer, EXACTLY_ONCE): times}))
    (row,) = [row for row in rows if row.bar.aim is not None and row.bar.workloads == (workload,)]
    assert (row.figure, row.said) == (f"{times:.2f} x", said)
    assert row.limit in ("at least 1.9 x, aim 2.5 x", "at least 2.3 x, aim 3 x")


def test_nothing_is_decided_when_there_are_fewer_than_seven_rounds() -> None:
    short = measured(rounds=lambda key: 6 if key[1] == JAVA else 7)
    verdicts = {row.bar.text: (row.verdict, row.rounds[:2]) for row in bars.rows_of(short)}
    assert verdicts["sessions against Kafka Streams, tuned, exactly once"] == ("too few rounds", "6:")
    assert verdicts["stateless against Spark AvailableNow, at least once"] == ("MISSED", "7:")
    assert bars.table_of(short)[1] is False


def test_suite_has_as_many_rounds_as_decide() -> None:
    having: dict[Key, int] = {
        (workload.name, system.name, system.guarantee): workload.rounds_of(system)
        for workload in WORKLOADS.values()
        for system in workload.systems
    }
    rows = list(bars.rows_of(measured(rounds=having.__getitem__)))
    assert {row.verdict for row in rows} <= {"reached", "MISSED", "shown"}
    few = {row.bar.workloads for row in rows if row.bar.limit is not None and row.bar.rounds < 7}
    assert few == {
        *(("sum-50k",), ("memory-1m", "memory-16m")),
        *(("table-upsert",), ("table-files",), ("table-days",)),
    }


# == processor time


@pytest.mark.parametrize(
    ("workload", "system", "guarantee"),
    [(workload, *rival) for workload, rivals in RIVALS.items() for rival in rivals],
)
def test_processor_time_is_the_least_when_no_rival_has_less(
    workload: str, system: str, guarantee: str
) -> None:
    others = {(workload, *other): 2.0 for other in RIVALS[workload]}
    key = (workload, system, guarantee)
    (row,) = turned(measured({}, {**others, key: 0.99}), measured({}, {**others, key: 1.01}))
    assert (row.figure, row.bar.workloads) == ("1.01 x", (workload,))


def test_processor_time_of_a_loop_by_columns_and_of_the_raw_clients_decides_nothing() -> None:
    few = {
        key: 0.1
        for result in measured()
        if (key := result.key)[1] == LOOP_BY_COLUMNS or key[1].startswith("raw-") or key[2] == AT_LEAST_ONCE
        if key[1] != JAVA and not key[1].startswith("spark")
    }
    assert {key[1] for key in few} >= {LOOP_BY_COLUMNS, "raw-consume", OURS}
    rows = [row for row in bars.rows_of(measured({}, few)) if "CPU" in row.bar.text]
    assert [(row.figure, row.verdict) for row in rows] == [("1.00 x", "reached")] * 3


def test_processor_time_is_not_measured_yet_when_a_line_is_older_than_that_figure() -> None:
    older = [msgspec.structs.replace(result, processor_rounds=()) for result in measured()]
    rows = [row for row in bars.rows_of(older) if "CPU" in row.bar.text]
    assert [row.verdict for row in rows] == ["not measured yet"] * 3


# == what is kept


@pytest.mark.parametrize("workload", ["stateless", "sum-50k"])
def test_exactly_once_may_take_a_tenth_more_than_at_least_once(workload: str) -> None:
    key = (workload, OURS, AT_LEAST_ONCE)
    found = turned(measured({key: 1 / 1.11}), measured({key: 1 / 1.09}))
    (row,) = [row for row in found if row.bar.unit == "%"]
    assert (row.figure, row.limit) == ("9.00 %", "at most 10 %")


@pytest.mark.parametrize("workload", ["hourly", "empty"])
def test_run_may_take_two_seconds(workload: str) -> None:
    results = {
        seconds: [
            msgspec.structs.replace(result, rounds=[9.0, 0.1, seconds, seconds, seconds, 0.2, 8.0])
            if result.key == (workload, OURS, EXACTLY_ONCE)
            else result
            for result in measured()
        ]
        for seconds in (2.01, 1.99)
    }
    found = turned(results[2.01], results[1.99])
    (row,) = [row for row in found if row.bar.unit == "s"]
    assert (row.figure, row.rounds) == ("1.99 s", "7: 0.10 - 9.00")


@pytest.mark.parametrize(
    ("system", "counted"),
    [("three", "from when airflow.sdk is imported"), ("three-started", "from their start")],
)
def test_seconds_of_three_processes_are_shown_with_what_they_count_from(system: str, counted: str) -> None:
    rows = bars.rows_of(measured({("empty", f"{OURS}-{system}", EXACTLY_ONCE): 4.0}))
    (row,) = [row for row in rows if row.bar.unit == "s" and counted in row.bar.processes]
    assert (row.verdict, float(row.figure.removesuffix(" s"))) == ("shown", 10.0)


@pytest.mark.parametrize(
    ("workload", "system", "detail", "worse", "better", "figure"),
    [
        ("table-days", OURS, "worker_peak_memory_mb", 1.11, 1.09, "1.09 x"),
        ("table-files", OURS, "process_peak_mb", 102.0, 100.5, "99.50 MB"),
        ("table-files", DELTA, "process_peak_mb", 102.0, 100.5, "99.50 MB"),
    ],
)
def test_memory_of_tables_may_grow_by_a_bound(
    workload: str, system: str, detail: str, worse: float, better: float, figure: str
) -> None:
    def taking(megabytes: float) -> list[Result]:
        return [
            msgspec.structs.replace(result, details={**result.details, detail: megabytes})
            if result.key[:2] == (workload, system)
            else result
            for result in measured()
        ]

    (row,) = turned(taking(worse), taking(better))
    assert row.figure == figure


@pytest.mark.parametrize(
    ("ours", "few", "bare"), [(OURS, "few", "pyiceberg"), (DELTA, "few-delta", "deltalake")]
)
def test_what_many_files_take_beyond_few_is_shown_by_the_bare_commit(ours: str, few: str, bare: str) -> None:
    seconds = {
        ("table-files", ours, EXACTLY_ONCE): 5.0,
        ("table-files", f"{OURS}-{few}", EXACTLY_ONCE): 2.0,
        ("table-files", bare, "none"): 0.1,
    }
    results = [
        msgspec.structs.replace(result, rounds=[seconds.get(result.key, 1.0)]) for result in measured()
    ]
    beyond = [row for row in bars.rows_of(results) if "beyond one with 20" in row.bar.text]
    assert sorted((row.figure, row.verdict) for row in beyond) == [("0.00 x", "shown"), ("30.00 x", "shown")]


def test_upsert_is_judged_by_its_finish_beside_the_merge_of_the_library() -> None:
    def taking(seconds: float) -> list[Result]:
        return [
            msgspec.structs.replace(
                result, wall_seconds=1.0, details={**result.details, "finish_seconds": seconds}
            )
            if result.workload == "table-upsert"
            else result
            for result in measured()
        ]

    (row,) = turned(taking(1 / 0.79), taking(1 / 0.81))
    assert (row.figure, row.bar.limit) == ("0.81 x", 0.8)
    assert "to Delta" in row.bar.text


def test_bytes_that_an_upsert_rewrites_are_shown() -> None:
    (row,) = [row for row in bars.rows_of(measured()) if row.bar.text.endswith("what it rewrites")]
    assert (row.figure, row.verdict) == ("1.00 MB", "shown")


def test_memory_may_grow_by_a_tenth() -> None:
    def grown(times: float) -> list[Result]:
        return [
            msgspec.structs.replace(result, details={"worker_peak_memory_mb": times})
            if result.workload == "memory-16m"
            else result
            for result in measured()
        ]

    (row,) = turned(grown(1.11), grown(1.09))
    assert row.figure == "1.09 x"


# == as they are shown


def test_bars_need_only_what_the_suite_measures() -> None:
    assert "not measured yet" not in {row.verdict for row in bars.rows_of(measured())}
    table, good = bars.table_of(measured())
    assert table.row_count == len(bars.BARS)
    assert not good
    assert {row.verdict for row in bars.rows_of([])} == {"not measured yet"}


def test_bars_are_those_of_the_workloads_that_were_measured() -> None:
    some = [result for result in measured() if result.workload in ("session", "memory-1m")]
    assert [bar.text for bar in bars.measured_by(some)] == [
        "sessions against Kafka Streams, tuned, exactly once"
    ]


def test_page_says_beside_the_figure_where_a_running_service_is_compared_with_a_scheduled_run() -> None:
    lines = [line.split(" | ") for line in page.bar_lines(measured())][2:]
    beside = {line[0].removeprefix("| "): line[-1] for line in lines if " against " in line[0]}
    service = {text for text, processes in beside.items() if "as a running service's" in processes}
    assert service == {text for text in beside if text.startswith(("hourly, ", "empty "))} | {
        text for text in beside if text.startswith("empty, ")
    }
    assert len(service) == 6
    cold = {text for text, processes in beside.items() if "both started for the run" in processes}
    assert cold == {text for text in beside if text.startswith("cold, ")}
