"""Names the type of the JSON document that each command prints."""

from __future__ import annotations

from typing import Any

from airflow_kstreams import inspect
from airflow_kstreams.batch.inspect.tables.orphans import Orphans
from airflow_kstreams.batch.inspect.tables.seen_tables import SeenTables
from airflow_kstreams.batch.inspect.tables.table_check import TablesCheck
from airflow_kstreams.cli.documents.acls_document import AclsDocument
from airflow_kstreams.cli.documents.doctor_document import DoctorDocument
from airflow_kstreams.cli.documents.explore_document import ExploreDocument
from airflow_kstreams.cli.documents.growth_documents import PartitionsDocument, ProcessorsDocument
from airflow_kstreams.cli.documents.letter_documents import (
    LettersDocument,
    ReplayDocument,
    ShownLettersDocument,
)
from airflow_kstreams.cli.documents.reset_document import ResetDocument
from airflow_kstreams.cli.documents.state_document import StateDocument
from airflow_kstreams.cli.documents.status_document import StatusDocument
from airflow_kstreams.cli.documents.tables_document import AcceptanceDocument, ExpiryDocument
from airflow_kstreams.cli.documents.topics_document import TopicsDocument
from airflow_kstreams.cli.documents.topology_document import TopologyDocument
from airflow_kstreams.cli.json_output import ErrorDocument

#: Words of a command -> the type of its document.
DOCUMENTS: dict[str, Any] = {
    "error": ErrorDocument,
    "status": StatusDocument,
    "status all": inspect.SeenApplications,
    "runs": inspect.SeenRuns,
    "runs show": inspect.RunInFull,
    "runs compare": inspect.ComparedRuns,
    "lag": inspect.SeenLag,
    "plan": inspect.NextRun,
    "state": StateDocument,
    "describe": TopologyDocument,
    "explore": ExploreDocument,
    "dead-letters list": LettersDocument,
    "dead-letters show": ShownLettersDocument,
    "dead-letters replay": ReplayDocument,
    "reset": ResetDocument,
    "doctor": DoctorDocument,
    "topics create": TopicsDocument,
    "topics set": TopicsDocument,
    "topics delete": TopicsDocument,
    "acls": AclsDocument,
    "tables": SeenTables,
    "tables check": TablesCheck,
    "tables orphans": Orphans,
    "tables expire": ExpiryDocument,
    "tables accept": AcceptanceDocument,
    "expand partitions": PartitionsDocument,
    "expand processors": ProcessorsDocument,
    "expand abort": ProcessorsDocument,
}
