"""Where a driver exports metrics to, as Airflow's settings say; it never holds a secret."""

from __future__ import annotations

import msgspec


class MetricsTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where to, and under which names. What OpenTelemetry's own environment variables say comes first.

    :param endpoint: URL of a collector that takes OTLP over HTTP; empty: only those variables say it.
    :param prefix: of every name.
    :param service: name of the service.
    :param console: whether the driver also prints what it exports.
    :param left_out: figures that are not exported, by the names that they have without the prefix.
    """

    endpoint: str = ""
    prefix: str = "airflow"
    service: str = "airflow"
    console: bool = False
    left_out: tuple[str, ...] = ()
