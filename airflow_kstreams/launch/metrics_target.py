"""Defines the target of a driver's metrics, as Airflow's settings name it; it never holds a secret."""

from __future__ import annotations

import msgspec


class MetricsTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a driver's metrics, and their names. OpenTelemetry's own environment variables come
    first.

    :param endpoint: URL of a collector that takes OTLP over HTTP; empty: only those variables name it.
    :param prefix: prefix of every name.
    :param service: name of the service.
    :param console: whether the driver also prints what it exports.
    :param left_out: figures that are not exported, by their names without the prefix.
    """

    endpoint: str = ""
    prefix: str = "airflow"
    service: str = "airflow"
    console: bool = False
    left_out: tuple[str, ...] = ()
