"""The last run without an end, as the ledger knows it."""

from __future__ import annotations

import msgspec

from airflow_kstreams.batch.protocol.slice.slice import RunPlan, Slice


class ContinuousRun(msgspec.Struct, frozen=True, kw_only=True):
    """What the last continuous run works on; one record in the ledger topic.

    :param run_id: names it.
    :param generation: grows by one with every start, so that tasks of an earlier one know that they are.
    :param plan: what the start froze; ``stop_hash`` and ``empty`` mean nothing here.
    :param over: whether a batch has begun since.
    """

    run_id: str
    generation: int
    plan: RunPlan
    over: bool = False

    @property
    def slice(self) -> Slice:
        """The same in the form that tasks know, without any stop offset."""
        return Slice(run_id=self.run_id, generation=self.generation, plan=self.plan, inputs=())
