"""Reads what commits of a Delta table say of themselves, from its log, the newest first.

deltalake's own ``history`` numbers the entries it finds downwards from the newest version; a version whose
writer left its entry out would shift all before it. So each version's file is read here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from deltalake._internal import DeltaFileSystemHandler

from airflow_kstreams.streams.tables.table_port import Snapshot
from airflow_kstreams.tables.delta_errors import port_errors
from airflow_kstreams.tables.storage_errors import TablePlace

_OPERATIONS = {"WRITE": "append", "DELETE": "delete", "OPTIMIZE": "replace", "MERGE": "overwrite"}
_OURS = "kstreams."
_ENTRY = re.compile(r"([0-9]{20})\.json")


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
        actions = self._actions(version)
        return None if actions is None else _said(actions)

    def added(self, version: int) -> list[str] | None:
        """Return the paths, below the table's location, of the files that a version has added; None if the
        log does not have it any more.

        :raises TableUnavailableError: the storage did not answer.
        """
        actions = self._actions(version)
        return (
            None if actions is None else [unquote(each["add"]["path"]) for each in actions if "add" in each]
        )

    def _actions(self, version: int) -> list[dict[str, Any]] | None:
        """Return what the commit of a version did; None if the log does not have it any more."""
        with port_errors(self._place, f"look at version {version}"):
            try:
                file = self._handler.open_input_file(f"_delta_log/{version:020}.json")
                lines = file.read(file.size()).decode().splitlines()
            except FileNotFoundError:
                return None
        return [json.loads(line) for line in lines if line.strip()]

    def oldest(self) -> int:
        """Return the oldest version whose entry the log has.

        :raises TableUnavailableError: the storage did not answer.
        """
        with port_errors(self._place, "look at the log"):
            infos = self._handler.get_file_info_selector("_delta_log", False, False)
        names = (_ENTRY.fullmatch(info.base_name) for info in infos)
        return min(int(found[1]) for found in names if found)

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
            actions = self._actions(version)
            if actions is None:
                return
            yield _described(version, actions)

    def paths(self, head: int) -> set[str]:
        """Return the files that the commits of the log have added or taken out, below the table's location.

        A version that can still be read begins at a checkpoint, and the log has each commit behind it. So a
        file of such a version is one of the newest version, or a commit of the log has taken it out.
        """
        found: set[str] = set()
        for version in range(head, -1, -1):
            actions = self._actions(version)
            if actions is None:
                break
            changes = (each for action in actions for each in (action.get("add"), action.get("remove")))
            found |= {unquote(change["path"]) for change in changes if change is not None}
        return found


def _restored(said: dict[str, Any]) -> int:
    """Return the version that a restore has brought back; -1 if it does not say."""
    found = str(said.get("operationParameters", {}).get("version", ""))
    return int(found) if found.isdigit() else -1


def _said(actions: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a commit says of itself."""
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


def _rows(actions: list[dict[str, Any]], kind: str) -> int | None:
    """Return the number of rows in the files that a commit added or took out; None if a file does not say.

    A commit that puts the same rows into other files says that it changes no data.

    :param kind: ``add`` or ``remove``.
    """
    changes = [action[kind] for action in actions if kind in action]
    counts = [
        json.loads(change.get("stats") or "{}").get("numRecords")
        for change in changes
        if change.get("dataChange", True)
    ]
    return None if None in counts else sum(counts)


def _described(version: int, actions: list[dict[str, Any]]) -> Snapshot:
    said = _said(actions)
    operation = str(said.get("operation", ""))
    mode = str(said.get("operationParameters", {}).get("mode", ""))
    return Snapshot(
        snapshot=str(version),
        made_ms=int(said.get("timestamp", 0)),
        operation=mode.lower() if operation == "WRITE" and mode else _OPERATIONS.get(operation, operation),
        summary={name: str(value) for name, value in said.items() if name.startswith(_OURS)},
        added=_rows(actions, "add"),
        removed=_rows(actions, "remove"),
    )
