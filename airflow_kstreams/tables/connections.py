"""Opens tables by what a connection says about their catalogues and storages.

A connection is a mapping of texts. Names that begin with ``iceberg.`` are pyiceberg's properties of a
catalogue; those with ``delta.`` are deltalake's options of a storage::

    {"iceberg.type": "sql", "iceberg.uri": "sqlite:////data/catalog.db", "iceberg.warehouse": "file:///data"}
    {"iceberg.type": "rest", "iceberg.uri": "https://...", "iceberg.credential": "id:secret"}
    {"delta.aws_region": "eu-central-1", "delta.aws_access_key_id": "...", ...}

Two names are of this package: ``iceberg.catalog-name``, the name of the catalogue where several share a
database, and ``iceberg.timeout-seconds``, the longest wait for a REST catalogue's answer.

Values are printed nowhere: not by ``repr``, nor in errors, which say names alone, nor out of a library's
text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlparse

from airflow_kstreams.streams.errors import ConfigError, require
from airflow_kstreams.streams.tables.table_port import TablePort
from airflow_kstreams.tables.storage_errors import TablePlace

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_ICEBERG, _DELTA = "iceberg.", "delta."
#: Words in the names of settings whose values are secret.
_SECRET_WORDS = ("secret", "password", "token", "credential", "key", "sas", "header.", "account")
_SHORTEST_SECRET = 4
_DELTA_SCHEMES = {"", "file", "s3", "s3a", "gs", "gcs", "az", "adl", "azure", "abfs", "abfss"}


class DescribedTable(Protocol):
    """What this module has to know of a table of a topology."""

    @property
    def name(self) -> str:
        """Name of the sink."""
        ...

    @property
    def format(self) -> str:
        """``iceberg`` or ``delta``."""
        ...

    @property
    def location(self) -> str:
        """The table's identifier in its catalogue, or its URI."""
        ...


class TablesSettings(Mapping[str, str]):
    """What a connection says about catalogues and storages; it prints no value.

    >>> TablesSettings({"iceberg.type": "sql", "iceberg.uri": "sqlite:///catalog.db"})
    TablesSettings(iceberg.type, iceberg.uri)

    :param settings: name -> text.
    :raises ConfigError: a name is none, or its value no text.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        for name, value in settings.items():
            if not name.startswith((_ICEBERG, _DELTA)) or not isinstance(value, str):
                raise ConfigError(
                    f"setting {name!r} of tables is unknown, or no text ({type(value).__name__})",
                    fix="write names that begin with 'iceberg.' (pyiceberg's catalogue) or 'delta.' "
                    "(deltalake's storage), and texts as their values",
                )
        self._settings: dict[str, str] = dict(settings)

    @classmethod
    def from_file(cls, path: str | Path) -> TablesSettings:
        """Read a JSON file with an object of texts.

        :raises ConfigError: it cannot be read, or is none.
        """
        try:
            settings = json.loads(Path(path).read_text(encoding="utf-8"))
            found = "it has no JSON object"
        except OSError as error:
            settings, found = None, str(error.strerror)
        except ValueError:
            settings, found = None, "it has no JSON"
        if not isinstance(settings, dict):
            raise ConfigError(
                f"{str(path)!r} cannot be read: {found}",
                fix='name a file that you may read, with {"name": "text", ...} in it',
            )
        return cls(settings)

    def __getitem__(self, name: str) -> str:
        return self._settings[name]

    def __iter__(self) -> Any:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __repr__(self) -> str:
        return f"TablesSettings({', '.join(sorted(self._settings))})"

    def of(self, beginning: str) -> dict[str, str]:
        """Return the settings whose names begin so, without the beginning."""
        return {
            name.removeprefix(beginning): value
            for name, value in self._settings.items()
            if name.startswith(beginning)
        }

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no message may have, longest first: secret values, their parts, passwords in URIs."""
        found: set[str] = set()
        for name, value in self._settings.items():
            if any(word in name.lower() for word in _SECRET_WORDS):
                found |= {value, *value.split(":")}
            password = urlparse(value).password if "://" in value else None
            if password is not None:
                found |= {password, unquote(password)}
        return tuple(sorted((text for text in found if len(text) >= _SHORTEST_SECRET), key=len, reverse=True))


class OpenedTables:
    """Opens tables of both formats. See ``TablesPort``.

    :param settings: what the connection says.
    """

    def __init__(self, settings: TablesSettings) -> None:
        self._settings = settings
        self._catalog: Catalog | None = None

    def __repr__(self) -> str:
        return f"OpenedTables({self._settings!r})"

    def table(self, spec: DescribedTable) -> TablePort:
        """Return the port to a table. Nothing is asked of a catalogue yet.

        :param spec: the table.
        :raises ConfigError: a setting is missing or refused.
        :raises MissingExtraError: the format's library is not installed.
        """
        place = TablePlace(name=spec.name, secrets=self._settings.secrets)
        match spec.format:
            case "iceberg":
                return self._iceberg(spec, place)
            case "delta":
                return self._delta(spec, place)
            case other:
                raise ConfigError(
                    f"table {spec.name!r} is of format {other!r}", fix="write an IcebergTable or a DeltaTable"
                )

    def _iceberg(self, spec: DescribedTable, place: TablePlace) -> TablePort:
        require("iceberg", "pyiceberg", "pyarrow", what="an Iceberg table")
        from airflow_kstreams.tables.iceberg import IcebergTablePort
        from airflow_kstreams.tables.iceberg_catalogs import open_catalog, refuse_settings

        properties = self._settings.of(_ICEBERG)
        refuse_settings(properties, place)
        if "." not in spec.location:
            raise ConfigError(
                f"table {spec.name!r}: {spec.location!r} has no namespace", fix="write namespace.table"
            )

        def opened() -> Catalog:
            if self._catalog is None:
                self._catalog = open_catalog(properties, place)
            return self._catalog

        return IcebergTablePort(opened, spec.location, place)

    def _delta(self, spec: DescribedTable, place: TablePlace) -> TablePort:
        require("delta", "deltalake", "pyarrow", what="a Delta table")
        from airflow_kstreams.tables.delta import DeltaTablePort

        scheme = urlparse(spec.location).scheme
        if scheme not in _DELTA_SCHEMES or (scheme == "" and not Path(spec.location).is_absolute()):
            raise ConfigError(
                f"table {spec.name!r}: {spec.location!r} is no whole path, and no URI of a storage for "
                "Delta tables",
                fix="write a whole path, or a URI of s3, gs, az or abfss",
            )
        return DeltaTablePort(spec.location, self._settings.of(_DELTA), spec.name, place)


def open_tables(settings: Mapping[str, Any]) -> OpenedTables:
    """Return what opens tables.

    :param settings: what a connection says about catalogues and storages, name -> text.
    :raises ConfigError: a name is unknown, or its value no text.
    """
    return OpenedTables(settings if isinstance(settings, TablesSettings) else TablesSettings(settings))
