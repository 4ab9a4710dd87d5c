"""Holds the documents of ``tables expire`` and ``tables accept``."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from airflow_kstreams.batch.run.tables.table_acceptance import AcceptedTable
from airflow_kstreams.batch.run.tables.table_expiry import ExpiredTable


class ExpiryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The tables whose older snapshots were forgotten.

    :param application_id: the application.
    :param keep: number of snapshots that were to be kept.
    :param tables: the tables.
    """

    application_id: str
    keep: int
    tables: Sequence[ExpiredTable]


class AcceptanceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The tables that were taken as they are.

    :param application_id: the application.
    :param tables: the tables.
    """

    application_id: str
    tables: Sequence[AcceptedTable]
