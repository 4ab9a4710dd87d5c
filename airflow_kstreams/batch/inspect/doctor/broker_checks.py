"""Checks the broker's own settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_kstreams.batch.inspect.doctor.findings import DoctorView, number
from airflow_kstreams.batch.inspect.doctor.looks import Finding, error, not_permitted, ok, warning
from airflow_kstreams.batch.protocol.logs.log_read import MAX_TIMEOUT, refuse_unfit_timeouts
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.figures.time_texts import duration_text

_VERIFIES = "transaction.partition.verification.enable"
_DAY_MS = 86_400_000
#: Topic ids of brokers that know none.
_NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def check(seen: DoctorView) -> Iterator[Finding]:
    """Check the settings of the broker."""
    try:
        configs = seen.admin.broker_configs()
    except KafkaClientError as refused:
        yield not_permitted("the broker's settings", refused)
    else:
        yield from _features(seen, configs)
        yield from _transactions(seen, configs)


def _features(seen: DoctorView, configs: Mapping[str, str]) -> Iterator[Finding]:
    """Check that the broker has the features that the engine uses."""
    if _NO_TOPIC_ID in {topic.topic_id for topic in seen.topics.values()}:
        yield error(
            "broker features",
            "no-topic-ids",
            "the broker knows no topic ids (Kafka 2.8 and later do), so a topic that is created again would "
            "not be noticed",
            "use Kafka 3.6 or later",
        )
    verifies = configs.get(_VERIFIES)
    if verifies == "true":
        yield ok("broker features", f"topic ids; {_VERIFIES}=true (Kafka 3.6 or later)")
    else:
        found = f"{_VERIFIES}={verifies}" if verifies else f"no {_VERIFIES}: Kafka before 3.6"
        yield warning(
            "broker features",
            "transactions-unverified",
            f"{found}; a delayed request can leave a transaction open for ever, behind which nothing is read",
            f"use Kafka 3.6 or later, with {_VERIFIES}=true",
        )


def _transactions(seen: DoctorView, configs: Mapping[str, str]) -> Iterator[Finding]:
    """Check that transactions can last long enough, and how long the broker keeps transactional ids."""
    settings = seen.subject.settings
    limit_ms = number(configs, MAX_TIMEOUT)
    try:
        refuse_unfit_timeouts(settings, seen.admin)
    except ConfigError as refused:
        yield error("transaction timeouts", "transaction-timeouts-unfit", refused.cause, refused.fix)
    else:
        yield ok(
            "transaction timeouts",
            f"commit.interval.ms={settings.commit_interval_ms}, "
            f"transaction.timeout.ms={settings.transaction_timeout_ms}, {MAX_TIMEOUT}={limit_ms}",
        )
    expiration_ms = number(configs, "transactional.id.expiration.ms")
    if expiration_ms is not None:
        if expiration_ms < max(_DAY_MS, 2 * settings.transaction_timeout_ms):
            yield warning(
                "transactional ids",
                "transactional-ids-forgotten",
                f"the broker forgets who owns a transactional id after {duration_text(expiration_ms)}; a "
                "process that was suspended for longer would not be fenced",
                "raise transactional.id.expiration.ms in the brokers' configuration to a day or more",
            )
        else:
            yield ok("transactional ids", f"remembered for {duration_text(expiration_ms)}")
    retention = number(configs, "offsets.retention.minutes")
    if retention is not None:
        yield _offsets_retention(retention * 60_000, seen.gap_ms)


def _offsets_retention(retention_ms: int, gap_ms: int) -> Finding:
    text = (
        f"committed offsets expire {duration_text(retention_ms)} after their last commit, the longest gap "
        f"between runs is {duration_text(gap_ms)}"
    )
    if retention_ms < 2 * gap_ms:
        return warning(
            "offsets retention",
            "offsets-expire",
            f"{text}; between two runs the ledger takes their place, but an unfinished run that is resumed "
            "later than that is refused",
            "raise offsets.retention.minutes in the brokers' configuration to "
            f"{-(-2 * gap_ms // 60_000)} or more, or run more often",
        )
    return ok("offsets retention", text)
