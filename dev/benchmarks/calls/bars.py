"""The bars of calls side by side, each with its figure, as far as what it needs was measured."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from statistics import median
from typing import NamedTuple

from dev.benchmarks.calls.cases import (
    BAR_MS,
    IN_FLIGHT,
    LATENCIES_MS,
    PARALLEL,
    PARALLEL_TRANSACTIONAL,
    PYRALLEL,
    SYSTEMS,
    THREADS,
    Case,
    Keys,
    Order,
    beside,
)
from dev.benchmarks.calls.measured import Results, ratio
from dev.benchmarks.calls.memory import LOADS, SETTLED_RECORDS, WAITING_MB

#: How many times as fast as these this engine must be.
_LIMITS = {PARALLEL: 0.95, PARALLEL_TRANSACTIONAL: 0.95, PYRALLEL: 3.0}
#: What waits is estimated, and Python's allocator keeps some of what is freed.
_MEMORY_LIMIT = 1.25


class Bar(NamedTuple):
    """Something to reach.

    :param short: what the last line of the benchmark calls it.
    :param figure: that was measured.
    :param limit: that the figure must be at least.
    :param at_most: whether it must be at most that.
    """

    short: str
    text: str
    figure: float
    limit: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        """Whether the figure is enough, as it is printed."""
        figure = round(self.figure, 2)
        return figure <= self.limit if self.at_most else figure >= self.limit

    def __str__(self) -> str:
        """Return it as a line."""
        said = "" if self.met else ": missed"
        return (
            f"{self.text}: {self.figure:.2f} (at {'most' if self.at_most else 'least'} {self.limit:g}){said}"
        )


def plain(latency_ms: int) -> Case:
    """Return the case of a node that calls while its task waits."""
    return Case(system="plain", latency_ms=latency_ms, keys="uniform", order="partition", in_flight=1)


def threads(number: int, latency_ms: int = BAR_MS) -> Case:
    """Return the case of calls on threads."""
    return Case(system="threads", latency_ms=latency_ms, keys="uniform", order="partition", in_flight=number)


def asyncio(latency_ms: int = BAR_MS, *, in_flight: int = IN_FLIGHT) -> Case:
    """Return the case of calls on an event loop, in input order."""
    return Case(
        system="asyncio", latency_ms=latency_ms, keys="uniform", order="partition", in_flight=in_flight
    )


def by_key(latency_ms: int = BAR_MS) -> Case:
    """Return the case of calls that the most frequent key holds up."""
    return Case(system="asyncio", latency_ms=latency_ms, keys="zipf", order="key", in_flight=IN_FLIGHT)


def bars_of(results: Results) -> list[Bar]:
    """Return every bar that there are figures for."""
    return [
        *_in_flight(results),
        *_on_threads(results),
        *_one_in_flight(results),
        *_hottest_key(results),
        *_peers(results),
        *_memory(results),
    ]


def _in_flight(results: Results) -> Iterator[Bar]:
    side_by_side, ceiling = results.of(asyncio()), results.of(plain(0))
    if side_by_side is not None and ceiling is not None:
        shares = zip(side_by_side.rates(), side_by_side.shares(), ceiling.rates(), strict=False)
        yield Bar(
            f"asyncio {IN_FLIGHT} in flight",
            f"asyncio, {IN_FLIGHT} in flight, {BAR_MS} ms, against in flight / latency of a call "
            "or the plain path",
            median(max(share, rate / plain_rate) for rate, share, plain_rate in shares),
            0.9,
        )


def _on_threads(results: Results) -> Iterator[Bar]:
    for number in THREADS:
        if (measured := results.of(threads(number))) is not None:
            yield Bar(
                f"{number} threads",
                f"{number} threads, {BAR_MS} ms, against threads / latency of a call",
                measured.share,
                0.9,
            )


def _one_in_flight(results: Results) -> Iterator[Bar]:
    for latency_ms in LATENCIES_MS:
        one, at_once = results.of(asyncio(latency_ms, in_flight=1)), results.of(plain(latency_ms))
        if one is not None and at_once is not None:
            yield Bar(
                f"one in flight at {latency_ms} ms",
                f"one in flight, {latency_ms} ms, against calls in a plain node",
                ratio(one, at_once),
                0.9,
            )


def _hottest_key(results: Results) -> Iterator[Bar]:
    if (measured := results.of(by_key())) is not None:
        pairs = zip(measured.rates(), measured.bounds(), strict=True)
        yield Bar(
            "key under Zipf",
            f"order key, Zipf, {BAR_MS} ms, against the bound of the most frequent key "
            f"({median(measured.bounds()):,.0f} records/s)",
            median(rate / bound for rate, bound in pairs),
            0.9,
        )


def _peers(results: Results) -> Iterator[Bar]:
    orders: tuple[Order, ...] = ("key", "unordered")
    drawn: tuple[Keys, ...] = ("uniform", "zipf")
    for order, keys in product(orders, drawn):
        first, *peers = beside(order, keys, BAR_MS)
        for peer in peers:
            ours, theirs, system = results.of(first), results.of(peer), SYSTEMS[peer.system]
            if ours is None or theirs is None or system not in _LIMITS:
                continue
            if system == PYRALLEL and (order, keys) == ("key", "zipf"):
                continue  # the most frequent key bounds both
            yield Bar(
                f"{system.title} {order.upper()} {keys}",
                f"order {order}, {keys}, {BAR_MS} ms, against {system.title} ({system.guarantee})",
                ratio(ours, theirs),
                _LIMITS[system],
            )


def _memory(results: Results) -> Iterator[Bar]:
    curves = {(curve.name, bool(curve.in_flight)): curve for curve in results.memory}
    for load in LOADS:
        calls, without = curves.get((load.name, True)), curves.get((load.name, False))
        if calls is None or without is None:
            continue
        yield Bar(
            f"memory of waiting results, {load.name}",
            f"memory beyond that of a plain node, {load.records:,} records of {load.value_bytes:,} bytes, "
            "in max.waiting.bytes",
            (calls.peak_mb - without.peak_mb) / WAITING_MB,
            _MEMORY_LIMIT,
            at_most=True,
        )
        if load.records > SETTLED_RECORDS:
            yield Bar(
                "memory growth",
                f"memory with calls, {load.records:,} records against {SETTLED_RECORDS:,}",
                calls.peak_mb / calls.early_mb,
                1.1,
                at_most=True,
            )


def ratios(results: Results) -> str:
    """Return the last line of the benchmark, which names the ratios."""
    named = [f"{bar.short} {bar.figure:.2f}{'' if bar.met else ' (missed)'}" for bar in bars_of(results)]
    return f"ratios: {', '.join(named) or 'none'}"
