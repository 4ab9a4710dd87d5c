"""Settings of the operators, which run batches by nature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import ApplicationSettings

_AUTOSTOP = "autostop.at"


def batch_settings(application_id: str, settings: Mapping[str, Any] | None) -> ApplicationSettings:
    """Check an operator's settings; ``autostop.at`` is ``eol`` unless given.

    :raises ConfigError: a setting is wrong, or asks for continuous mode: an Airflow task has an end; or for
        what only a backfill does.
    """
    checked = ApplicationSettings.parse(application_id, {_AUTOSTOP: "eol", **(settings or {})})
    if checked.continuous:
        raise ConfigError(
            f"an Airflow task of application {application_id!r} cannot run continuously: {_AUTOSTOP} is "
            "unset",
            fix=f"leave {_AUTOSTOP} out of the operator's settings, or set it to 'eol'; a continuous run is "
            "started outside Airflow, as: python <application file> --application-id ...",
        )
    if checked.keeps_to_interval:
        raise ConfigError(
            f"{_AUTOSTOP} of application {application_id!r} is 'interval', which the operators set by "
            "themselves in a backfill: a scheduled run would move the application's offsets by time",
            fix=f"set {_AUTOSTOP} to 'interval_end' to cut each run at the end of its data interval",
        )
    return checked
