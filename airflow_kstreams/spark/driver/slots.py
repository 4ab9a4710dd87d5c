"""Counts the Spark tasks that can run at once, and those that a job should have.

A continuous run needs all of its Spark tasks at the same time: one that waits for a slot would wait for ever.
So their number is that of the slots Spark has, not of those requested: the driver waits a while for the cores
of ``spark.cores.max``, or of executors times their cores, and then uses those that are there.

A job of a slice waits for no slot. It has a Spark task for each of its tasks while they are few, so that
Spark shows them and tries them again one by one. With more tasks, a start for each costs more than it gains:
each slot then has a few Spark tasks, so that a slow one delays the job's end by a part only.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from airflow_kstreams.streams.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: Executors register one after the other when the session is already there.
_REGISTRATION_SECONDS = 30.0
#: Nothing was asked for: when the number stayed the same for so long, it is taken.
_STEADY_SECONDS = 3.0
_STEP_SECONDS = 0.2
#: So many Spark tasks a job may have, whatever slots there are.
HOSTS = 100
_HOSTS_PER_SLOT = 4


def slots_of(session: SparkSession) -> int:
    """Return the number of Spark tasks that can run at once.

    :raises ConfigError: Spark Connect does not give the number, and no setting does.
    """
    return max(1, _cores(session) // max(1, _number(session, "spark.task.cpus", 1)))


def most_hosts(session: SparkSession) -> int:
    """Return the number of Spark tasks that a job of a slice may have, by the present slots."""
    try:
        cores = session.sparkContext.defaultParallelism
    except Exception:  # Spark Connect raises an error of its own: this side has no context
        cores = 0
    return max(HOSTS, _HOSTS_PER_SLOT * max(cores, _configured(session) or 0))


def _cores(session: SparkSession) -> int:
    wanted = _configured(session)
    try:
        context = session.sparkContext
    except Exception:  # Spark Connect raises an error of its own: this side has no context
        if wanted is None:
            raise ConfigError(
                "Spark Connect does not say how many slots there are, which a continuous run must know",
                fix="set spark.cores.max, or spark.executor.instances and spark.executor.cores",
            ) from None
        return wanted
    if str(context.master).startswith("local"):
        return context.defaultParallelism
    started = changed = time.monotonic()
    cores = context.defaultParallelism
    while time.monotonic() - started < _REGISTRATION_SECONDS:
        if cores >= wanted if wanted is not None else time.monotonic() - changed >= _STEADY_SECONDS:
            break
        time.sleep(_STEP_SECONDS)
        if context.defaultParallelism != cores:
            cores, changed = context.defaultParallelism, time.monotonic()
    if wanted is not None and cores < wanted:
        log.warning("Spark has %d cores after %.0f s, not %d", cores, _REGISTRATION_SECONDS, wanted)
    return cores if wanted is None else min(cores, wanted)


def _configured(session: SparkSession) -> int | None:
    """Return the number of cores in the settings, None if they set none."""
    most = _number(session, "spark.cores.max", 0)
    executors = _number(session, "spark.executor.instances", 0)
    together = executors * _number(session, "spark.executor.cores", 1)
    return min((number for number in (most, together) if number), default=None)


def _number(session: SparkSession, name: str, default: int) -> int:
    text = session.conf.get(name, str(default))
    try:
        return int(str(text))
    except ValueError:
        raise ConfigError(f"{name} is {text!r}, not a number", fix=f"set {name} to a number") from None
