"""Reads what commits of a Delta table say of themselves, from its log, the newest first.

deltalake's own ``history`` numbers the entries it finds downwards from the newest version; a version whose
writer left its entry out would shift all before it. So each version's file is read here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from deltalake._internal import DeltaFileSystemHandler

from airflow_kstreams.streams.tables.table_port import Snapshot
from airflow_kstreams.tables.delta_errors import port_errors
from airflow_kstreams.tables.storage_errors import TablePlace

_OPERATIONS = {"WRITE": "append", "DELETE": "delete", "OPTIMIZE": "replace", "MERGE": "overwrite"}
_OURS = "kstreams."


class DeltaLog:
    """The log of a table.

    :param root: location of the table.
    :param options: options of the storage.
    :param place: the table, for messages.
    """

    def __init__(self, root: str, options: dict[str, str], place: TablePlace) -> None:
        self._place = place
        with port_errors(place, "look at the log"):
            self._handler = DeltaFileSystemHandler(root, options)

    def commit_info(self, version: int) -> dict[str, Any] | None:
        """Return what the commit of a version says of itself; None if the log does not have it any more.

        :raises TableUnavailableError: the storage did not answer.
        """
        with port_errors(self._place, f"look at version {version}"):
            try:
                file = self._handler.open_input_file(f"_delta_log/{version:020}.json")
                lines = file.read(file.size()).decode().splitlines()
            except FileNotFoundError:
                return None
        actions = (json.loads(line) for line in lines if line.strip())
        return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})

    def leads_to(self, version: int, head: int) -> bool | None:
        """Return whether a version is the newest one or one that it was made of; None if the log was cleaned
        before that could be seen.

        A restore makes the version that it names the one before it; where it names none, none is known to be.
        """
        at = head
        while at > version:
            said = self.commit_info(at)
            if said is None:
                return None
            if said.get("operation") == "RESTORE":
                at = _restored(said)
            else:
                at -= 1
        return at == version

    def snapshots(self, head: int) -> Iterator[Snapshot]:
        """Give the commits up to the newest one, the newest first, as far as the log has them."""
        for version in range(head, -1, -1):
            said = self.commit_info(version)
            if said is None:
                return
            yield _described(version, said)


def _restored(said: dict[str, Any]) -> int:
    """Return the version that a restore has brought back; -1 if it does not say."""
    found = str(said.get("operationParameters", {}).get("version", ""))
    return int(found) if found.isdigit() else -1


def _described(version: int, said: dict[str, Any]) -> Snapshot:
    operation = str(said.get("operation", ""))
    mode = str(said.get("operationParameters", {}).get("mode", ""))
    return Snapshot(
        snapshot=str(version),
        made_ms=int(said.get("timestamp", 0)),
        operation=mode.lower() if operation == "WRITE" and mode else _OPERATIONS.get(operation, operation),
        summary={name: str(value) for name, value in said.items() if name.startswith(_OURS)},
    )
