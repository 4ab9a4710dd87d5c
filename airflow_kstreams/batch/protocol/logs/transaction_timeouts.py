"""Checks, before anything is written, that transactions can be as long as the settings let them be.

A transaction lasts from one commit to the next, ``commit.interval.ms`` at most unless user functions or the
cluster are slow. The broker aborts it after ``transaction.timeout.ms``, and refuses a timeout above its own
``transaction.max.timeout.ms``. Each must leave room for the one before.
"""

from __future__ import annotations

import logging

from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.ports import AdminPort
from airflow_kstreams.streams.settings import ApplicationSettings

log = logging.getLogger(__name__)

MAX_TIMEOUT = "transaction.max.timeout.ms"
#: How many commit intervals a transaction must be able to last: a commit that is due has to be made, too.
_INTERVALS = 2


def refuse_unfit_timeouts(settings: ApplicationSettings, admin: AdminPort) -> None:
    """Compare the settings with each other and with the broker's limit.

    A broker that does not let this user see its settings is not asked twice: it refuses a timeout above its
    limit itself when a task claims its transactional id, which is before the task writes anything.

    :raises ConfigError: naming both values and what to set.
    """
    timeout_ms, interval_ms = settings.transaction_timeout_ms, settings.commit_interval_ms
    if settings.exactly_once and interval_ms * _INTERVALS > timeout_ms:
        raise ConfigError(
            f"commit.interval.ms = {interval_ms} leaves a transaction no room below transaction.timeout.ms = "
            f"{timeout_ms}: the broker would abort it before its commit",
            fix=f"set commit.interval.ms to {timeout_ms // _INTERVALS} or less, or transaction.timeout.ms to "
            f"{interval_ms * _INTERVALS} or more",
        )
    try:
        limit_ms = int(admin.broker_configs().get(MAX_TIMEOUT, timeout_ms))
    except KafkaClientError as error:
        if error.is_retriable:
            raise
        log.debug("the broker's %s is not known: %s", MAX_TIMEOUT, error.cause)
        return
    if timeout_ms > limit_ms:
        raise ConfigError(
            f"transaction.timeout.ms = {timeout_ms} exceeds the broker's limit {MAX_TIMEOUT} = {limit_ms}",
            fix=f"set transaction.timeout.ms to {limit_ms} or less, or raise {MAX_TIMEOUT} in the brokers' "
            "configuration",
        )
