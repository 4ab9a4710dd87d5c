"""Settings of an Airflow that is thrown away: its SQLite database does not wait for the disk.

One component writes at a time, and a commit waits until the disk has it. Where gigabytes are on their way to
a slow disk, as after ``dev/setup``, that takes seconds, in which no other component can write: heartbeats are
out of date before they are seen, and Airflow never becomes healthy. Airflow imports this module from its home
before it connects, and takes over the names in ``__all__``.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, event

__all__: tuple[str, ...] = ()


@event.listens_for(Engine, "connect")
def _leave_writing_to_the_system(connection: Any, _record: object) -> None:
    if "sqlite" in type(connection).__module__:
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous=OFF")
        cursor.close()
