"""Short simulated ledgers fit into the tail that readers take first; with the shortest tail they do not."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest import mock

from airflow_kstreams.batch.ledger import ledger
from airflow_kstreams.batch.ledger.run_search import RunArchive
from tests.simulation.scenario import simulate

SEEDS = range(40)


def test_nothing_is_lost_or_doubled_when_the_ledger_is_read_from_its_last_record() -> None:
    reads: Counter[str] = Counter()
    from_checkpoint, mistrust = ledger._Source._from_checkpoint, RunArchive._mistrust

    def counted(self: Any, *arguments: Any) -> Any:
        found = from_checkpoint(self, *arguments)
        if found is not None:
            reads["found"] += 1
        elif self._read(1).stable_end == arguments[0].stable_end:
            # Otherwise another coordinator has written meanwhile, and the cleaner took the checkpoint away.
            reads["misplaced"] += 1
        return found

    def mistrusted(self: RunArchive) -> None:
        reads["mistrusted"] += 1
        mistrust(self)

    with (
        mock.patch.object(ledger, "_TAIL", 1),
        mock.patch.object(ledger._Source, "_from_checkpoint", counted),
        mock.patch.object(RunArchive, "_mistrust", mistrusted),
    ):
        violations = {seed: found for seed in SEEDS if (found := simulate(seed).violation)}
    assert not violations
    assert reads["found"] >= 2 * len(SEEDS)
    assert not reads["misplaced"], "nothing but the coordinator writes: offsets are as foreseen"
    assert not reads["mistrusted"]
