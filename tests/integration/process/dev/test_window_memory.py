"""Memory of stores by time in RocksDB that hold more than memory should: peaks of a process each."""

from __future__ import annotations

import pytest

from dev.benchmarks.window_memory import KINDS, measured_alone

_LIMIT_BYTES = 200_000_000


_MUCH = pytest.mark.prove, pytest.mark.timeout(600)


@pytest.mark.parametrize(
    ("kind", "mebibytes"), [("window", 256), *(pytest.param(kind, 1_024, marks=_MUCH) for kind in KINDS)]
)
def test_memory_is_bounded_when_a_store_grows_and_all_of_it_leaves(kind: str, mebibytes: int) -> None:
    peaks = measured_alone(kind, "rocksdb", mebibytes=mebibytes)

    assert max(peaks.full_bytes, peaks.gone_bytes) <= _LIMIT_BYTES
