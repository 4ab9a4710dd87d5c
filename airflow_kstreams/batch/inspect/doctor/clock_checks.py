"""Compares the clocks of brokers and drivers with the one of this machine.

Kafka tells its time only in what it writes, and doctor writes nothing. What runs have written holds times of
both: of drivers in the ledger's records, of brokers in the markers that end their transactions. A time in the
future shows that another clock is ahead of this one. A clock that is behind cannot be seen: its times look
like those of an earlier run.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_kstreams.batch.inspect.doctor.findings import DoctorView
from airflow_kstreams.batch.inspect.doctor.looks import Finding, ok, unseen, warning
from airflow_kstreams.streams.figures.time_texts import duration_text
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import TopicPartition

_CHECK = "clocks"
#: Differences that are looked for: below the first, answers that were under way may explain one.
_STEPS_MS = (10_000, 60_000, 600_000, 3_600_000, 86_400_000)


def check(seen: DoctorView) -> Iterator[Finding]:
    """Look for times in the ledger that are still to come on this machine."""
    ledger = ProtocolTopics(seen.plan.application_id).ledger
    if ledger not in seen.topics:
        yield unseen(_CHECK, "brokers show their time only in what runs have written, and none has run")
        return
    log, now_ms = TopicPartition(ledger, 0), seen.clock.now_ms()
    ahead_ms = 0
    for step_ms in _STEPS_MS:
        if not seen.admin.offsets_for_times({log: now_ms + step_ms}):
            break
        ahead_ms = step_ms
    if ahead_ms:
        yield warning(
            _CHECK,
            "clocks-differ",
            f"runs have written times to {ledger} that are {duration_text(ahead_ms)} or more ahead of this "
            "machine's clock: leases, data intervals and retention go by clocks that differ",
            "have brokers, drivers and this machine follow one time server (chronyd, ntpd); the finding goes "
            "as those times pass",
        )
    else:
        yield ok(
            _CHECK,
            f"nothing in {ledger} is dated ahead of this machine's clock; whether a broker's is behind "
            "cannot be seen without writing",
        )
