"""Lets operators load topologies in the test's own process; the real loader starts one (test_loader.py)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from airflow_kstreams.operators.work.application_work import ApplicationLoader
from airflow_kstreams.streams.plan import TopologyPlan

if TYPE_CHECKING:
    import pytest


def load_here(
    monkeypatch: pytest.MonkeyPatch, plan: Callable[[ApplicationLoader, str], TopologyPlan]
) -> None:
    """Give every loader this plan.

    :param plan: gets the loader and the id of the application.
    """
    monkeypatch.setattr(ApplicationLoader, "plan", plan)
    monkeypatch.setattr(ApplicationLoader, "loading", lambda self, app: nullcontext(partial(plan, self, app)))
