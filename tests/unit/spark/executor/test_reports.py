"""Python's collector while tasks run."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from airflow_kstreams.spark.executor.report_rows import HostReport, in_arrow, sparing_gc


@pytest.fixture(autouse=True)
def _nothing_is_frozen() -> Iterator[None]:
    """The collected tests are frozen; the code under test leaves a collector alone that others froze for."""
    gc.unfreeze()
    yield
    gc.freeze()


class Ring:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_collector_leaves_alone_what_was_there_when_tasks_run() -> None:
    seen: list[Any] = []

    def run(_: int) -> list[HostReport]:
        seen.append((gc.get_freeze_count() > 0, gc.get_threshold()))
        return [HostReport()]

    before = gc.get_threshold()
    batch = pa.RecordBatch.from_arrays([pa.array([0])], names=["id"])
    assert [report.num_rows for report in in_arrow(run)(iter([batch]))] == [1]
    [(spared, thresholds)] = seen
    assert spared
    assert thresholds[0] > before[0]
    assert thresholds[1:] == before[1:]
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == before


def test_reference_cycles_are_collected_when_tasks_end() -> None:
    gc.disable()  # so that only the end of the body can have collected it
    try:
        with sparing_gc():
            ring = weakref.ref(Ring())
            assert ring() is not None
        assert ring() is None
    finally:
        gc.enable()


def test_collector_has_its_settings_back_when_tasks_fail() -> None:
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError), sparing_gc():
        raise ZeroDivisionError
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_nothing_is_changed_when_the_collector_is_off() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with sparing_gc():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


def test_frozen_objects_stay_frozen_when_somebody_else_froze_them() -> None:
    held = Ring()  # or a collection might take it before it is frozen
    frozen = weakref.ref(held)
    gc.freeze()
    del held
    try:
        with sparing_gc():
            ring = weakref.ref(Ring())
        assert ring() is None
        gc.collect()
        assert frozen() is not None
    finally:
        gc.unfreeze()


def test_thresholds_stay_when_user_code_sets_them() -> None:
    before = gc.get_threshold()
    try:
        with sparing_gc():
            gc.set_threshold(12_345)
        assert gc.get_threshold()[0] == 12_345
    finally:
        gc.set_threshold(*before)
