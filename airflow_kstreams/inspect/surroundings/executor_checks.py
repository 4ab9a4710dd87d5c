"""Looks at Spark's executors: which packages their Python has, by one tiny job on the Spark that runs use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_kstreams.batch.inspect.doctor.looks import Finding, error, ok, unseen, warning
from airflow_kstreams.inspect.surroundings.other_process import Unanswered, ask
from airflow_kstreams.launch.installation import version_of
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.partitioning.partition_groups import first_few

_CHECK = "executors"
_MODULE = "airflow_kstreams.spark.driver.print_executors"
#: Left of the time of all looks, to end Spark.
_MARGIN_SECONDS = 1.0
_OURS = "airflow-kstreams"
#: Each must be there; of the others Spark itself says that it needs them.
_NEEDED = (_OURS, "confluent-kafka", "msgspec")


def look_at_executors(environment: Mapping[str, str], *, asked: bool, seconds: float) -> Iterator[Finding]:
    """Look whether executors have what tasks import, in the versions of this machine.

    :param asked: whether Spark may be started for it.
    :param seconds: time for all looks together.
    """
    if not asked:
        yield unseen(_CHECK, "a look at them runs a job on Spark: --spark")
        return
    if version_of("pyspark") is None and version_of("pyspark-client") is None:
        yield unseen(_CHECK, "pyspark is not installed here: look where runs start Spark")
        return
    try:
        found = ask(_MODULE, environment=environment, seconds=seconds - _MARGIN_SECONDS)
    except Unanswered as fault:
        yield unseen(_CHECK, f"Spark could not be asked: {fault}", "wait longer for it: --timeout SECONDS")
    except KStreamsError as fault:
        yield error(_CHECK, "executors-fail", fault.cause, fault.fix)
    else:
        yield from _judged(found)


def _judged(found: Mapping[str, Any]) -> Iterator[Finding]:
    here, workers = found["here"]["packages"], found["workers"]
    hosts = first_few(sorted({worker["host"] for worker in workers}))
    lacking = {name for name in _NEEDED for worker in workers if not worker["packages"][name]}
    if lacking:
        yield error(
            _CHECK,
            "executor-lacks-package",
            f"executors on {hosts} lack {', '.join(sorted(lacking))}: no task begins there",
            "build an archive of this package with airflow-kstreams pack, and name it by spark.archives; or "
            "install the packages in the executors' Python",
        )
    differing = sorted(
        f"{name} {worker['packages'][name]} (here {here[name]})"
        for name in here
        for worker in workers
        if worker["packages"][name] and here[name] and worker["packages"][name] != here[name]
    )
    if differing:
        level = error if any(text.startswith(f"{_OURS} ") for text in differing) else warning
        yield level(
            _CHECK,
            "executor-versions-differ",
            f"executors on {hosts} have {first_few(list(dict.fromkeys(differing)))}",
            "install the versions of this machine there, or bring them: airflow-kstreams pack",
        )
    if not (lacking or differing):
        versions = ", ".join(f"{name} {here[name]}" for name in _NEEDED)
        yield ok(_CHECK, f"{hosts}, Spark's master {found['master']}: {versions}, as here")
