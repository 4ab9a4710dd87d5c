"""Holds the document of ``doctor``."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from airflow_kstreams.batch.inspect.doctor import Finding


class DoctorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What doctor found.

    :param application_id: the application.
    :param findings: the result of each check: level, check, code, text and fix.
    """

    application_id: str
    findings: Sequence[Finding]
