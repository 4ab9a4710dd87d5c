"""Holds what doctor found of one application, as a value."""

from __future__ import annotations

from airflow_kstreams.batch.inspect.doctor import Finding, Level
from airflow_kstreams.batch.inspect.notebook_form import ShownInNotebooks


class Diagnosis(ShownInNotebooks, frozen=True, kw_only=True):
    """What doctor found.

    :param application_id: id of the application.
    :param findings: the result of each check.
    """

    application_id: str
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that must be mended."""
        return tuple(finding for finding in self.findings if finding.level is Level.ERROR)
