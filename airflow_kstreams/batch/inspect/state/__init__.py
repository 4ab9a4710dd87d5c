"""Reads a store outside a run, from its changelog: single keys, or everything.

Only looks: it claims nothing, commits nothing, and uses no local files of tasks. ``stored_state`` is the
reader, ``entry_form`` knows how each kind of store writes its entries, ``moment`` as of when they are.
"""

from __future__ import annotations

from airflow_kstreams.batch.inspect.state.entry_form import StateEntry
from airflow_kstreams.batch.inspect.state.moment import AsOf
from airflow_kstreams.batch.inspect.state.stored_state import StoredState

__all__ = ["AsOf", "StateEntry", "StoredState"]
