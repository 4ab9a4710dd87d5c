"""What the calls of a task share: opened once before its first record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from airflow_kstreams.streams.calls.call import CallTimeoutError, Station
from airflow_kstreams.streams.graph.calls import ResourceFactory

log = logging.getLogger(__name__)


def open_resources(stations: Sequence[Station], enter: Callable[[Any, float], Any]) -> None:
    """Give each asynchronous node what its resource makes; nodes that name the same one share it.

    :param enter: enters a context manager, asynchronous or not, within so many seconds: those that a call of
        the node may take.
    :raises Exception: whatever a resource raised; its node is on the traceback.
    """
    opened: list[tuple[ResourceFactory, Any]] = []
    for station in stations:
        factory = station.options.resource
        if factory is None:
            continue
        # Compared, not hashed: a factory may be any object.
        found = next((at for at, (known, _) in enumerate(opened) if known is factory or known == factory), -1)
        if found < 0:
            opened.append((factory, _entered(station, factory, enter, _node=station.node)))
        station.resource = opened[found][1]


@contextmanager
def closing(what: str, task_id: str) -> Iterator[None]:
    """Log what closing something raises: it must hide no error of a record, and keep nothing else open.

    :param what: is closed.
    """
    try:
        yield
    except Exception:
        log.warning("task %s: closing %s failed", task_id, what, exc_info=True)


def is_asynchronous(manager: Any) -> bool:
    """Say whether a context manager is entered on an event loop."""
    return hasattr(type(manager), "__aenter__")


def _entered(
    station: Station, factory: ResourceFactory, enter: Callable[[Any, float], Any], _node: str
) -> Any:
    try:
        return enter(factory(), station.timeout_seconds)
    except TimeoutError as error:
        raise CallTimeoutError(
            f"the resource was not entered within timeout_ms={station.options.timeout_ms}"
        ) from error
