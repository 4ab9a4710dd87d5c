"""Renews a driver's lease while its jobs run.

Invariant: at most one driver's view "I own the slice" is backed by the coordinator's transactional id. A
renewal is a transaction under that id, so the renewal of a driver whose run another has claimed fails at the
broker, however late it comes.

A coordinator that only looked (and was refused as busy, in a race) has fenced the owner too. So an owner
whose renewal is fenced reads the ledger: the lease is still its own -> it claims the id again and goes on;
else it was superseded.

Before a launch the driver makes sure that it owns the slice. Any transaction under its claim shows that, a
begin's or one that froze stops no less than a renewal; so one that has just been committed is not followed by
another. What the driver knows is old in either case when the tasks start, since it may stand still before.
So each task reads the lease once more, behind the fence of its own claim, and writes nothing if it is
another's. The renewals of the thread go on, so the lease lasts as long as before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from airflow_kstreams.streams.errors import KStreamsError, RunSupersededError
from airflow_kstreams.streams.printable import package_log

log = package_log(__name__)


class LeaseRenewal:
    """Renews a lease in a thread of its own; a context manager.

    :param renew: renews the lease once; raises RunSupersededError when another driver owns the slice.
    :param release: gives the lease up; called at the end unless superseded.
    :param interval_seconds: seconds between renewals.
    :param on_superseded: called once, from the thread of renewals, when another driver has claimed the run.
    :param proved: returns whether a write has just shown that this driver owns the slice.
    """

    def __init__(
        self,
        *,
        renew: Callable[[], None],
        release: Callable[[], None],
        interval_seconds: float,
        on_superseded: Callable[[], None] | None = None,
        proved: Callable[[], bool] = lambda: False,
    ) -> None:
        self._renew = renew
        self._proved = proved
        self._release = release
        self._interval_seconds = interval_seconds
        self._on_superseded = on_superseded
        self._ended = threading.Event()
        self._superseded: RunSupersededError | None = None
        self._thread = threading.Thread(target=self._keep, name="lease-renewal", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_renewing()
        if self._superseded is None:
            try:
                self._release()
            except KStreamsError as failure:
                log.warning("the lease could not be released and will run out by itself: %s", failure)

    @property
    def superseded(self) -> bool:
        """Whether another driver has claimed the run."""
        return self._superseded is not None

    def stop_renewing(self) -> None:
        """End the renewals; the lease is kept and lasts long enough for the finish that follows at once."""
        self._ended.set()
        self._thread.join()

    def check_before_launch(self) -> None:
        """Renew now, unless a write has just shown that this driver owns the slice.

        :raises RunSupersededError: another driver owns the slice.
        """
        if self._superseded is not None or not self._proved():
            self.check()

    def check(self) -> None:
        """Renew now, which proves at the broker that this driver still owns the slice.

        :raises RunSupersededError: another driver owns the slice.
        """
        if self._superseded is None:
            try:
                self._renew()
            except RunSupersededError as error:
                self._superseded = self._superseded or error
        if self._superseded is not None:
            raise self._superseded

    @contextmanager
    def outranking(self) -> Iterator[None]:
        """Raise the loss of the lease instead of the errors that follow from it.

        Once a driver was superseded, what its tasks complain of is only a consequence.

        :raises RunSupersededError: another driver has claimed the run, and the body failed.
        """
        try:
            yield
        except KStreamsError:
            self.check()
            raise

    def _keep(self) -> None:
        while not self._ended.wait(self._interval_seconds):
            try:
                self._renew()
            except RunSupersededError as error:
                self._superseded = self._superseded or error
                log.warning("another driver has claimed the run: this one stops its work")
                if self._on_superseded is not None:
                    self._on_superseded()
                return
            except KStreamsError as error:
                # The lease lasts three intervals: another renewal may still come in time. If none does, the
                # driver that claims the run fences this one.
                log.warning("a lease renewal failed, trying again: %s", error.cause)
