"""Reads Airflow's settings of metrics for drivers, which know no Airflow."""

from __future__ import annotations

import re
from collections.abc import Callable

from airflow_kstreams.batch.metrics import ALL_UNITS, airflow_name
from airflow_kstreams.hooks.airflow_versions import airflow_conf
from airflow_kstreams.launch.run_spec import MetricsTarget

_SECTION = "metrics"


def metrics_target() -> MetricsTarget | None:
    """Return where drivers export metrics to; None if Airflow's own metrics are off or go to StatsD."""
    conf = airflow_conf()

    def text(option: str) -> str:
        return conf.get(_SECTION, option, fallback=None) or ""

    def flag(option: str) -> bool:
        return bool(conf.getboolean(_SECTION, option, fallback=False))

    if flag("statsd_datadog_enabled") or flag("statsd_on") or not flag("otel_on"):
        return None
    host, port = text("otel_host"), text("otel_port")
    defaults = MetricsTarget()
    allowed = name_filter(text("metrics_allow_list"), text("metrics_block_list"))
    return MetricsTarget(
        endpoint=_url(host, port, tls=flag("otel_ssl_active")) if host and port else "",
        prefix=text("otel_prefix") or defaults.prefix,
        service=text("otel_service") or defaults.service,
        console=flag("otel_debugging_on"),
        left_out=tuple(name for name in map(airflow_name, ALL_UNITS) if not allowed(name)),
    )


def name_filter(allow_list: str, block_list: str) -> Callable[[str], bool]:
    """Return the test of names by Airflow's lists of regular expressions, with commas in between. A name
    passes if an expression of the allow list is found in it; without an allow list, if none of the block list
    is.
    """
    listed = [entry.strip().lower() for entry in (allow_list or block_list).split(",")]

    def passes(name: str) -> bool:
        if not allow_list and not block_list:
            return True
        found = any(re.search(entry, name.lower()) for entry in listed)
        return found if allow_list else not found

    return passes


def _url(host: str, port: str, *, tls: bool) -> str:
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"{'https' if tls else 'http'}://{shown}:{port}/v1/metrics"
