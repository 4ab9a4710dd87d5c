"""Opens tables by what a connection says about their catalogues and storages.

A connection is a mapping of texts. Names that begin with ``iceberg.`` are pyiceberg's properties of a
catalogue; those with ``delta.`` are deltalake's options of a storage::

    {"iceberg.type": "sql", "iceberg.uri": "sqlite:////data/catalog.db", "iceberg.warehouse": "file:///data"}
    {"iceberg.type": "rest", "iceberg.uri": "https://...", "iceberg.credential": "id:secret"}
    {"delta.aws_region": "eu-central-1", "delta.aws_access_key_id": "...", ...}

Two names are of this package: ``iceberg.catalog-name``, the name of the catalogue where several share a
database, and ``iceberg.timeout-seconds``, the longest wait for a REST catalogue's answer.

Secret values are printed nowhere: each is a :class:`Secret` from where it is read, errors say names alone,
and a library's text loses them before it is shown. ``repr`` prints no value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlparse

from airflow_kstreams.streams.errors import ConfigError, require
from airflow_kstreams.streams.secret_texts import Secret, secret_texts, shown_url
from airflow_kstreams.streams.tables.table_port import (
    SAY_WHERE_TABLES_ARE,
    RewriteBuckets,
    RewrittenFiles,
    TableCommit,
    TablePort,
)
from airflow_kstreams.tables.storage_errors import TablePlace

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from airflow_kstreams.tables.iceberg import IcebergTablePort

#: Bytes of an Iceberg table's files that one upsert may rewrite in an Airflow worker that finishes a run.
REWRITTEN_BY_FINISH = 256 * 1024 * 1024
_ICEBERG, _DELTA = "iceberg.", "delta."
#: Words in the names of settings whose values are secret.
_SECRET_WORDS = ("secret", "password", "token", "credential", "key", "sas", "header.", "account")
_SHORTEST_SECRET = 4
#: Values of switches, whose names may have such a word: no text is to lose these.
_SWITCHES = {"true", "false"}
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
        self._settings: dict[str, str] = {}
        unfit = _first_unfit(settings)
        if unfit is not None:
            name, kind = unfit
            # A traceback with local variables would show them.
            del settings
            raise ConfigError(
                f"setting {name!r} of tables is unknown, or no text ({kind})",
                fix="write names that begin with 'iceberg.' (pyiceberg's catalogue) or 'delta.' "
                "(deltalake's storage), and texts as their values",
            )
        self._settings = _sealed(settings)

    @classmethod
    def from_file(cls, path: str | Path) -> TablesSettings:
        """Read a JSON file with an object of texts.

        :raises ConfigError: it cannot be read, or is none.
        """
        try:
            text = Secret(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            text, found = Secret(), str(error.strerror) if isinstance(error, OSError) else "it is no UTF-8"
        else:
            found = "it has no JSON object"
        settings = sealed_object(text)
        if settings is None:
            raise ConfigError(
                f"{str(path)!r} cannot be read: {found}",
                fix='name a file that you may read, with {"name": "text", ...} in it',
            )
        try:
            return cls(settings)
        except ConfigError:
            del settings
            raise

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
        """Texts that no message may have, longest first: secret values, their parts, users, passwords and
        queries in URIs, and the forms in which a server repeats them.
        """
        return tuple(
            Secret(text)
            for text in secret_texts(self._settings, _is_secret)
            if len(text) >= _SHORTEST_SECRET and text.lower() not in _SWITCHES
        )


class OpenedTables:
    """Opens tables of both formats. See ``TablesPort``.

    :param settings: what the connection says.
    :param most_rewritten: bytes of an Iceberg table's files that one upsert may rewrite in this process; None
        for any.
    :param rewriter: rewrites files of Iceberg tables elsewhere, where an upsert touches much; None to do it
        here.
    """

    def __init__(
        self,
        settings: TablesSettings,
        *,
        most_rewritten: int | None = None,
        rewriter: RewriteBuckets | None = None,
    ) -> None:
        self._settings, self._most_rewritten, self._rewriter = settings, most_rewritten, rewriter
        self._catalog: Catalog | None = None

    def __repr__(self) -> str:
        return f"OpenedTables({self._settings!r})"

    def table(self, spec: DescribedTable) -> TablePort:
        """Return the port to a table. Nothing is asked of a catalogue yet.

        :param spec: the table.
        :raises ConfigError: as for :meth:`check`, or a setting is refused.
        :raises MissingExtraError: as for :meth:`check`.
        """
        self.check([spec])
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

    def check(self, specs: Iterable[DescribedTable]) -> None:
        """Check that tables could be opened here, without importing a format's library.

        A Delta table is where its URI says, and a local one needs no settings. An Iceberg table is where its
        catalogue says, so the catalogue has to be named.

        :param specs: the tables.
        :raises ConfigError: it is not said where one of them is.
        :raises MissingExtraError: a format's library is not installed.
        """
        for spec in specs:
            if spec.format == "iceberg":
                if not self._settings.of(_ICEBERG):
                    raise ConfigError(
                        f"table {spec.name!r} is an Iceberg table, and it is not said where its catalogue is",
                        fix=SAY_WHERE_TABLES_ARE,
                    )
                require("iceberg", "pyiceberg", "pyarrow", what="an Iceberg table")
            elif spec.format == "delta":
                require("delta", "deltalake", "pyarrow", what="a Delta table")

    def rewritten(self, spec: DescribedTable, snapshot: str, commit: TableCommit) -> RewrittenFiles:
        """Rewrite files of an Iceberg table for an upsert, or a part of it, and commit nothing.

        :param spec: the table.
        :param snapshot: the snapshot that they are rewritten for; empty for a table without one.
        """
        self.check([spec])
        place = TablePlace(name=spec.name, secrets=self._settings.secrets)
        return self._iceberg(spec, place).rewritten(snapshot, commit)

    def _iceberg(self, spec: DescribedTable, place: TablePlace) -> IcebergTablePort:
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

        rewriter = None if self._rewriter is None else partial(self._rewriter, spec)
        return IcebergTablePort(opened, spec.location, place, self._most_rewritten, rewriter)

    def _delta(self, spec: DescribedTable, place: TablePlace) -> TablePort:
        from airflow_kstreams.tables.delta import DeltaTablePort

        scheme = urlparse(spec.location).scheme
        if scheme not in _DELTA_SCHEMES or (scheme == "" and not Path(spec.location).is_absolute()):
            raise ConfigError(
                f"table {spec.name!r}: {spec.location!r} is no whole path, and no URI of a storage for "
                "Delta tables",
                fix="write a whole path, or a URI of s3, gs, az or abfss",
            )
        return DeltaTablePort(spec.location, self._settings.of(_DELTA), spec.name, place)


def _first_unfit(settings: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the name of the first setting that is none, and the type of its value."""
    for name, value in settings.items():
        if not name.startswith((_ICEBERG, _DELTA)) or not isinstance(value, str):
            return name, type(value).__name__
    return None


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_WORDS)


def _sealed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with every secret text as a :class:`Secret`."""
    return {
        name: Secret(value)
        if isinstance(value, str) and (_is_secret(name) or shown_url(value) != value)
        else value
        for name, value in settings.items()
    }


def sealed_object(text: str) -> dict[str, Any] | None:
    """Return the members of a JSON object, its secret texts sealed; None if the text is no such object.

    No error is raised here: the decoder's own holds the text.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    return _sealed(content)


def parted(config: Mapping[str, str]) -> tuple[dict[str, str], TablesSettings]:
    """Part the settings of a driver's file into those of Kafka's client and those of tables.

    :param config: name -> text; the names of tables begin with ``iceberg.`` or ``delta.``.
    """
    of_tables = {name: text for name, text in config.items() if name.startswith((_ICEBERG, _DELTA))}
    others = {name: text for name, text in config.items() if name not in of_tables}
    return others, TablesSettings(of_tables)


def open_tables(
    settings: Mapping[str, Any],
    *,
    most_rewritten: int | None = None,
    rewriter: RewriteBuckets | None = None,
) -> OpenedTables:
    """Return what opens tables.

    :param settings: what a connection says about catalogues and storages, name -> text.
    :param most_rewritten: as for :class:`OpenedTables`.
    :param rewriter: as for :class:`OpenedTables`.
    :raises ConfigError: a name is unknown, or its value no text.
    """
    known = settings if isinstance(settings, TablesSettings) else TablesSettings(settings)
    return OpenedTables(known, most_rewritten=most_rewritten, rewriter=rewriter)
