"""The folder with the demo's tables: what says where they are, what lies in it, and copies of it.

The Iceberg table is found as any reader of its catalogue finds it, by a row of a SQLite file; its metadata,
and the log of the Delta table, are JSON. So nothing here needs a library of tables, nor the engine.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support.tables.duckdb_reader import metadata_location

#: Tables as the example names them: Iceberg's with its namespace, and Delta's below the folder.
ICEBERG, DELTA = "flights.carrier_delays", "carrier_delays"
_RUN_ID = "kstreams.run-id"


@dataclass(frozen=True, slots=True)
class Lake:
    """A folder of tables.

    :param folder: a whole path.
    """

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> Self:
        """Make an empty one, with the file that says where tables are."""
        folder.mkdir()
        lake = cls(folder)
        lake.config_file.write_text(json.dumps(lake.settings, indent=2))
        return lake

    @property
    def settings(self) -> dict[str, str]:
        """What a connection says of the catalogue."""
        return {
            "iceberg.type": "sql",
            "iceberg.uri": f"sqlite:///{self._catalog}",
            "iceberg.warehouse": f"file://{self.folder}",
        }

    @property
    def config_file(self) -> Path:
        """The same as a file, for ``--tables-config``."""
        return self.folder / "tables.json"

    @property
    def environment(self) -> dict[str, str]:
        """What has the example write tables, and its DAG ask for the connection."""
        return {"FLIGHT_TABLES": str(self.folder)}

    @property
    def airflow_environment(self) -> dict[str, str]:
        """The same for Airflow, with the connection."""
        connection = {"conn_type": "generic", "extra": self.settings}
        return {**self.environment, "AIRFLOW_CONN_FLIGHT_TABLES": json.dumps(connection)}

    @property
    def delta_folder(self) -> Path:
        """Folder of the Delta table."""
        return self.folder / DELTA

    def iceberg_metadata(self) -> Path:
        """Return the newest metadata file of the Iceberg table."""
        return Path(metadata_location(self._catalog, ICEBERG).removeprefix("file://"))

    def iceberg_runs(self) -> list[str]:
        """Return the run of each snapshot in the Iceberg table's history, the first one first; empty where a
        snapshot names none.
        """
        metadata = json.loads(self.iceberg_metadata().read_text())
        by_id = {snapshot["snapshot-id"]: snapshot for snapshot in metadata["snapshots"]}
        runs, following = [], metadata.get("current-snapshot-id")
        while (snapshot := by_id.get(following)) is not None:
            runs.append(snapshot["summary"].get(_RUN_ID, ""))
            following = snapshot.get("parent-snapshot-id")
        return runs[::-1]

    def delta_runs(self) -> list[str]:
        """Return the same of the Delta table's versions, without those that neither change rows nor name a
        run, as its creation does.
        """
        runs = []
        for file in sorted((self.delta_folder / "_delta_log").glob("*.json")):
            actions = [json.loads(line) for line in file.read_text().splitlines()]
            (told,) = (each["commitInfo"] for each in actions if "commitInfo" in each)
            run_id = told.get(_RUN_ID, "")
            if run_id or any("add" in each or "remove" in each for each in actions):
                runs.append(run_id)
        return runs

    def copy(self, folder: Path) -> Lake:
        """Copy the tables; what is done to the copy leaves the original as it is.

        Iceberg's metadata name whole paths. Those in the newest metadata file are changed to the copy's, so
        that new files go there; files that are named further below are read where the original has them.
        """
        shutil.copytree(self.folder, folder)
        copied = Lake(folder)
        copied.config_file.write_text(json.dumps(copied.settings, indent=2))
        with closing(sqlite3.connect(copied._catalog)) as catalog, catalog:
            catalog.execute(
                "UPDATE iceberg_tables SET metadata_location = replace(metadata_location, ?, ?)",
                (f"file://{self.folder}/", f"file://{folder}/"),
            )
        metadata = copied.iceberg_metadata()
        metadata.write_text(metadata.read_text().replace(f"file://{self.folder}/", f"file://{folder}/"))
        return copied

    @property
    def _catalog(self) -> Path:
        return self.folder / "catalog.db"
