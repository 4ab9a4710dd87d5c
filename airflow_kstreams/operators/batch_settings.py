"""Settings of the operators, which run batches by nature."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.settings import ApplicationSettings

_AUTOSTOP = "autostop.at"


def object_of(given: Mapping[str, Any] | str | None, what: str) -> Mapping[str, Any] | None:
    """Return a parameter that is an object, which a template renders as text unless the DAG renders native
    objects.

    :param given: the object, or its JSON; empty text is None.
    :param what: the parameter's name.
    :raises ConfigError: it is neither.
    """
    if given is None or isinstance(given, Mapping):
        return given
    try:
        found = json.loads(given) if given.strip() else None
    except (AttributeError, ValueError):
        found = given
    if found is None or isinstance(found, dict):
        return found
    raise ConfigError(
        f"{what} is no object with names and values, and no text of one in JSON: {type(found).__name__}",
        fix=f'give {what} as {{"name": "value"}}; a template renders text: use {{{{ ... | tojson }}}}, or '
        "render_template_as_native_obj=True in the DAG",
    )


def batch_settings(application_id: str, settings: Mapping[str, Any] | str | None) -> ApplicationSettings:
    """Check an operator's settings; ``autostop.at`` is ``eol`` unless given.

    :param settings: by dotted name, or their JSON.
    :raises ConfigError: a setting is wrong, or asks for continuous mode: an Airflow task has an end; or for
        what only a backfill does.
    """
    checked = ApplicationSettings.parse(
        application_id, {_AUTOSTOP: "eol", **(object_of(settings, "settings") or {})}
    )
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
