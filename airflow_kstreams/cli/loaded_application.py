"""Loads the topology and the settings of an application for a command."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_kstreams.streams.settings import ApplicationSettings
    from airflow_kstreams.streams.topology.topology import Topology


def load_topology(path: Path, function: str) -> Topology:
    """Build the topology that an application file defines.

    Output of the file goes to stderr, apart from the command's own.

    :raises TopologyError: the file does not run, or defines no topology.
    """
    from airflow_kstreams.streams.topology.application_file import ApplicationFile

    with contextlib.redirect_stdout(sys.stderr):
        return dataclasses.replace(ApplicationFile.read(path), function=function).topology()


def application_settings(application_id: str, pairs: Sequence[str] | None) -> ApplicationSettings:
    """Return checked settings.

    :param pairs: settings as ``NAME=VALUE``.
    :raises BadParameter: a pair has another form.
    :raises ConfigError: a setting is unknown, or its value does not fit.
    """
    from airflow_kstreams.streams.settings import ApplicationSettings

    settings: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--setting")
        settings[name] = value
    return ApplicationSettings.parse(application_id, settings)
