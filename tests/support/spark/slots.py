"""A whole run on the real broker, on some slots: the driver's own order, threads in place of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.stops import TaskShare
from airflow_kstreams.spark.driver.driver import RunJobs
from tests.support.kafka.in_process import Application


def run_on_slots(application: Application, run_id: str, slots: int) -> RunSummary:
    """Begin, process as the driver does, finish."""
    coordinator = application.coordinator()
    try:
        slice_ = application.begin(run_id, coordinator=coordinator)
        if not slice_.plan.empty:
            with ThreadPoolExecutor(max_workers=slots) as pool:

                def launch(tasks: Sequence[TaskShare]) -> list[TaskReport]:
                    running = [pool.submit(application.launched, slice_, task) for task in tasks]
                    return [future.result() for future in running]

                RunJobs(
                    slice_=slice_,
                    launch=launch,
                    cancel=lambda: None,  # tasks in threads come to their end by themselves
                    unfinished=lambda subtopology: coordinator.unfinished(slice_, subtopology),
                    check=lambda: None,
                ).run()
        return coordinator.finish(run_id)
    finally:
        coordinator.close()
