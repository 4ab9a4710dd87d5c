"""Ends what an operator has started when its Airflow task is killed.

Airflow calls ``on_kill`` out of a signal handler and the task goes on; what is still alive a few seconds
later is killed. So ``on_kill`` leaves word, and whatever would start a process, or wait for one, asks before
and after.
"""

from __future__ import annotations

from airflow_kstreams.streams.errors import KilledError


class Killable:
    """An operator that starts nothing any more once its Airflow task was killed."""

    _killed: bool = False

    def on_kill(self) -> None:
        """Leave word that the task was killed."""
        self._killed = True

    def was_killed(self) -> bool:
        """Say whether the task was killed."""
        return self._killed

    def refuse_when_killed(self, what: str) -> None:
        """Refuse to go on.

        :param what: was about to happen.
        :raises KilledError: the task was killed; a retry goes on.
        """
        if self._killed:
            raise KilledError(f"the Airflow task was killed before {what}")
