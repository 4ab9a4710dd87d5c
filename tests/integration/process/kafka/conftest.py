"""Leaves out what nothing here can test."""

from __future__ import annotations

from tests.support.kafka.crossing import COLUMNS, WAYS

# Where there is no compiler, there is no library.
collect_ignore = [] if COLUMNS in WAYS else ["test_columns_library.py"]
