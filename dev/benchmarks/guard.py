"""``dev/bench --guard``: tells whether this engine became slower than it was, in a form short enough for CI.

It compares ratios, not speeds: both sides run in turn on the same machine at the same time, so whatever else
the machine does hits both.
"""

from __future__ import annotations

from collections.abc import Sequence

from dev.benchmarks.results import Result

#: A median may be so much under the stored one: less than that is this machine's own unrest.
TOLERANCE = 0.25


def verdict(stored: Sequence[Result], measured: Sequence[Result]) -> tuple[list[str], bool]:
    """Compare ratios with the stored ones.

    :param stored: what ``docs/internals/benchmarks.json`` holds.
    :param measured: this run's results.
    :return: a line for each, and whether all are good.
    """
    known = {result.key: result for result in stored}
    lines, good = [], True
    for result in measured:
        if result.system == "airflow-kstreams":
            continue
        name = f"{result.workload}: ratio {result.ours_ratio:.2f} against {result.system}"
        if result.key not in known:
            lines.append(f"{name}; none is stored: run dev/bench --workload {result.workload}")
            good = False
            continue
        before = known[result.key].ours_ratio
        limit = before * (1 - TOLERANCE)
        fine = result.ours_ratio >= limit
        good = good and fine
        lines.append(f"{name}, stored {before:.2f}, limit {limit:.2f}: {'good' if fine else 'TOO SLOW'}")
    return lines, good and bool(lines)
