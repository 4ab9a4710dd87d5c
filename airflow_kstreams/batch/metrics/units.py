"""Converts rates and latencies into numbers and texts."""

from __future__ import annotations

from airflow_kstreams.streams.figures.latencies import Latencies

_NS, _NS_PER_MS = 1e9, 1e6


def latency_text(milliseconds: float | None) -> str:
    """Return a latency in the unit that suits it, ``-`` if it is not known."""
    if milliseconds is None:
        return "-"
    if milliseconds >= 1_000:
        return f"{milliseconds / 1_000:.2f} s"
    if milliseconds >= 1:
        return f"{milliseconds:.1f} ms"
    return f"{milliseconds * 1_000:.1f} µs"


def rate_text(per_second: float | None) -> str:
    """Return a rate, ``-`` if it is not known."""
    if per_second is None:
        return "-"
    return f"{per_second:,.0f}/s" if per_second >= 100 else f"{per_second:.1f}/s"


def per_second(count: int, time_ns: int) -> float | None:
    """Return a rate; None where no time has passed."""
    return count * _NS / time_ns if time_ns else None


def latency_figures(name: str, latencies: Latencies) -> dict[str, float | None]:
    """Return mean, quantiles and maximum in milliseconds, by name; None where nothing was measured.

    :param name: prefix of the figures' names.
    """
    values = {
        "avg": latencies.average_ns,
        "p50": latencies.quantile_ns(0.5),
        "p99": latencies.quantile_ns(0.99),
        "max": latencies.max_ns if latencies.count else None,
    }
    return {
        f"{name}-latency-{what}": None if value is None else value / _NS_PER_MS
        for what, value in values.items()
    }
