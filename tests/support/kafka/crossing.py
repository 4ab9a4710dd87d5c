"""The ways by which records cross between Python and the client: tests that matter to them run on each.

The library ``airflow-kstreams-columns`` is there where ``dev/setup`` found a compiler; elsewhere records
cross one by one, and that is all there is to test.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from airflow_kstreams.kafka import record_columns

COLUMNS, ONE_BY_ONE = "by columns", "one by one"
#: All ways here; the first one is what every other test runs on.
WAYS = (COLUMNS, ONE_BY_ONE) if importlib.util.find_spec("airflow_kstreams_columns") else (ONE_BY_ONE,)


@contextmanager
def crossing(way: str) -> Iterator[None]:
    """Have the records of clients that are made meanwhile cross in one way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(record_columns.VARIABLE, "auto" if way == COLUMNS else "off")
        record_columns.forget()
        assert str(record_columns.border()).startswith(way)
        yield
    record_columns.forget()
