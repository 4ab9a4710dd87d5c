"""Who works on an application, as the ledger says it."""

from __future__ import annotations

import msgspec


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who works on an application now; one record in the ledger topic, renewed by the driver.

    :param owner_run_id: the run the owner was started for.
    :param order: (clear number, try number) of the owner.
    :param owner: text naming it in messages.
    :param generation: of the slice, or of the continuous run, that the owner works on.
    :param expires_ms: when it ends unless renewed, epoch milliseconds by the owner's clock; 0 = released.
        To others, whose clocks may differ, only this 0 means anything.
    :param continuous: whether the owner runs the application continuously.
    :param stopping: whether the tasks of a continuous run are to end cleanly.
    :param lease_ms: milliseconds that it lasts from a renewal, the owner's ``lease.ms``.
    :param slice_run_id: the run whose slice the owner works on; empty when that has no slice.
    :param checkpoint: where in the ledger the last checkpoint is, from and to offset; None if none is known.
    """

    owner_run_id: str
    order: tuple[int, int]
    owner: str
    generation: int
    expires_ms: int
    lease_ms: int
    continuous: bool = False
    stopping: bool = False
    slice_run_id: str = ""
    checkpoint: tuple[int, int] | None = None

    @property
    def works_on(self) -> str:
        """The run that the owner works on: that of the slice, or its own continuous one."""
        return self.slice_run_id or self.owner_run_id
