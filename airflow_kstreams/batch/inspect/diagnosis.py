"""Holds what the doctor found of one application, as a value."""

from __future__ import annotations

from airflow_kstreams.batch.inspect.doctor import Finding, Level, Subject, diagnose
from airflow_kstreams.batch.inspect.notebook_form import ShownInNotebooks
from airflow_kstreams.streams.ports import ClusterPort


class Diagnosis(ShownInNotebooks, frozen=True, kw_only=True):
    """What the doctor found.

    :param application_id: id of the application.
    :param findings: the result of each check.
    """

    application_id: str
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that must be mended."""
        return tuple(finding for finding in self.findings if finding.level is Level.ERROR)


def read_diagnosis(cluster: ClusterPort, subject: Subject) -> Diagnosis:
    """Make every check of an application.

    :raises KafkaClientError: the cluster cannot be reached, or does not let this user look at topics.
    """
    return Diagnosis(application_id=subject.plan.application_id, findings=tuple(diagnose(cluster, subject)))
