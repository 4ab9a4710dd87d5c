"""Imitates a Kafka cluster in memory, see :class:`InMemoryKafka`."""

from __future__ import annotations

from airflow_kstreams.testing.in_memory_kafka.broker import Commit
from airflow_kstreams.testing.in_memory_kafka.clock import ManualClock
from airflow_kstreams.testing.in_memory_kafka.cluster import InMemoryKafka
from airflow_kstreams.testing.in_memory_kafka.log import LogRecord

__all__ = ["Commit", "InMemoryKafka", "LogRecord", "ManualClock"]
