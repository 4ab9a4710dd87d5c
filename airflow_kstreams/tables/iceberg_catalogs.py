"""Opens Iceberg's catalogues, and sends commits to them, each as one request.

pyiceberg 0.12 does more for a commit than one may do that must land once. ``Transaction.commit_transaction``
reads ``commit.retry.num-retries`` of the *table* and, after a conflict, loads the table, moves the change
onto its newest state and sends it again: a run whose first answer was lost would be committed twice. And
after a conflict it deletes the manifests that it has written, although a conflict is also the answer to a
request that a proxy has sent twice, of which the first has landed. Both hang on one exception. So
:class:`OneRequest` stands between a table and its catalogue: it turns every answer into an error of the port
before the transaction sees it, adds the conditions that pyiceberg leaves out, and takes one commit only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import RESTError
from pyiceberg.table import CommitTableResponse, Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    TableRequirement,
    TableUpdate,
)

from airflow_kstreams.streams.errors import ConfigError, InvariantError
from airflow_kstreams.tables.iceberg_errors import is_absent, misconfigured, port_error, port_errors
from airflow_kstreams.tables.storage_errors import TablePlace

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata
    from requests import Session

#: Catalogues that this package's tests run against, or that amount to one of those.
CATALOG_TYPES = ("sql", "rest", "glue")
#: What the client must do, whatever a connection, an environment or a table says.
_OURS: dict[str, str | int] = {
    "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
    "glue.max-retries": 0,
    "rest.sigv4.max-retries": "0",
}
#: Settings that name code to run, or that leave out snapshots of which a look has to know.
_REFUSED = ("py-catalog-impl", "snapshot-loading-mode", "auth", "py-io-impl", "s3.retry-strategy-impl")
_TIMEOUT_SECONDS = 60.0


def open_catalog(settings: Mapping[str, str], place: TablePlace) -> Catalog:
    """Open a catalogue, without what files and variables of this machine say to pyiceberg.

    :param settings: pyiceberg's properties of a catalogue; ``catalog-name`` is its name, ``default`` without
        it, and ``timeout-seconds`` the longest wait for an answer of a REST catalogue.
    :param place: the table, for messages.
    :raises ConfigError: a setting is missing or malformed.
    :raises TableUnavailableError: the catalogue did not answer.
    """
    kind = settings.get("type", "")
    properties = {name: value for name, value in settings.items() if name not in {"catalog-name", "type"}}
    make = _maker(kind, place)
    with port_errors(place, "opening of the catalogue"):
        try:
            return make(settings.get("catalog-name", "default"), **{**properties, **_OURS})
        except (KeyError, AttributeError, TypeError, ImportError) as error:
            raise misconfigured(place, error) from None
        except RESTError as error:
            # There is a server, and no catalogue at this address or of this warehouse.
            if is_absent(error):
                raise misconfigured(place, error) from None
            raise


def refuse_settings(settings: Mapping[str, str], place: TablePlace) -> None:
    """Refuse settings of a catalogue that cannot be kept to, without opening it.

    :raises ConfigError: a setting is refused; it says which.
    """
    for name in _REFUSED:
        if name in settings:
            raise ConfigError(
                f"table {place.name!r}: setting 'iceberg.{name}' is refused",
                fix="take it out of the connection of the tables",
            )
    kind = settings.get("type", "")
    if kind not in CATALOG_TYPES:
        raise ConfigError(
            f"table {place.name!r}: its catalogue is of type {kind!r}, of which no test here runs",
            fix=f"set iceberg.type to one of {', '.join(CATALOG_TYPES)}",
        )


def _maker(kind: str, place: TablePlace) -> Callable[..., Catalog]:
    match kind:
        case "sql":
            return SqlCatalog
        case "rest":
            return WaitingRestCatalog
        case _:
            return _glue(place)


def _glue(place: TablePlace) -> Callable[..., Catalog]:
    try:
        from pyiceberg.catalog.glue import GlueCatalog
    except ImportError:
        raise ConfigError(
            f"table {place.name!r}: a catalogue of type 'glue' needs boto3, which pyiceberg[glue] brings"
        ) from None
    return GlueCatalog


class WaitingRestCatalog(RestCatalog):
    """A REST catalogue whose requests end after a time; pyiceberg's own wait for ever."""

    def _config_headers(self, session: Session) -> None:
        # The first thing that is done with each session, before its first request, which asks for a token.
        super()._config_headers(session)
        seconds = float(self.properties.get("timeout-seconds", _TIMEOUT_SECONDS))
        # mypy knows no assignment to a method; all requests of a session pass this one.
        session.request = partial(session.request, timeout=seconds)  # type: ignore[method-assign]


class OneRequest:
    """A catalogue for one commit: passes it on with conditions, at most once.

    :param catalog: the catalogue.
    :param looked: the table, as the look found it.
    :param place: the table, for messages.
    """

    def __init__(self, catalog: Catalog, looked: Table, place: TablePlace) -> None:
        self._catalog, self._looked, self._place = catalog, looked, place
        self._sent = False

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Send a commit.

        :raises TableMovedError: the table is not as it was looked at.
        :raises TableUnavailableError: there was no answer, or none that can be understood.
        """
        if self._sent:
            raise InvariantError(
                "a commit is sent once", "the client sends it again", where=f"table {self._place.name!r}"
            )
        self._sent = True
        try:
            return self._catalog.commit_table(table, self._completed(requirements), updates)
        except Exception as error:
            made = port_error(self._place, "commit", error)
            if made is None:
                raise
            raise made from None

    def _completed(self, requirements: tuple[TableRequirement, ...]) -> tuple[TableRequirement, ...]:
        """Add the conditions on head, schema and partitioning; pyiceberg itself asks for the head alone, and
        for nothing but the table's id where only properties change.
        """
        metadata = self._looked.metadata
        head = metadata.refs.get(MAIN_BRANCH)
        ours: tuple[TableRequirement, ...] = (
            AssertRefSnapshotId.model_validate(
                {"ref": MAIN_BRANCH, "snapshot-id": None if head is None else head.snapshot_id}
            ),
            AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
            AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
        )
        present = {type(each) for each in requirements}
        return (*requirements, *(each for each in ours if type(each) not in present))

    def _delete_old_metadata(self, io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Do after a commit what pyiceberg does: delete metadata files that the table is not to keep."""
        self._catalog._delete_old_metadata(io, base, metadata)


def for_one_commit(table: Table, place: TablePlace) -> Table:
    """Return a table as it was looked at, for one transaction that is sent once.

    Manifests of it are merged, as Iceberg's other writers do, unless the table says otherwise: pyiceberg's
    own default makes each commit slower than the one before.

    :param table: the table; it is left as it is.
    :param place: the table, for messages.
    """
    properties = {
        TableProperties.MANIFEST_MERGE_ENABLED: "true",
        **table.metadata.properties,
        TableProperties.COMMIT_NUM_RETRIES: "0",
    }
    return Table(
        table.name(),
        table.metadata.model_copy(update={"properties": properties}),
        table.metadata_location,
        table.io,
        OneRequest(table.catalog, table, place),  # type: ignore[arg-type]
        table.config,
    )
