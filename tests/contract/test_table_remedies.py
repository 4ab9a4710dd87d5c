"""What errors of tables say to do is done, and then the table can be written to."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as TableOfDelta
from pyiceberg.catalog.sql import SqlCatalog

from airflow_kstreams.streams.errors import ConfigError, TableRefusedError, TableUnavailableError
from airflow_kstreams.streams.table_plan import Column
from airflow_kstreams.streams.tables.specs import DeltaTable, IcebergTable
from airflow_kstreams.streams.tables.table_port import TablePort
from airflow_kstreams.tables.connections import TablesSettings, open_tables
from tests.support.remedies import walked
from tests.support.tables.object_store import object_stores
from tests.support.tables.rest_catalog import RestCatalogServer, What, rest_catalog
from tests.support.tables.stands import (
    APP,
    COLUMNS,
    SINK,
    Spec,
    Stand,
    commit_of,
    delta_stand,
    iceberg_stand,
    looked,
    row,
)
from tests.support.tables.written_files import facts, write_rows


@dataclass
class Carrier:
    """Rows of the topology's tables."""

    id: int


@pytest.fixture
def iceberg(tmp_path: Path) -> Stand:
    return iceberg_stand(_sql(tmp_path), name="flights")


def _sql(folder: Path) -> dict[str, str]:
    uri = f"sqlite:///{folder}/catalog.db"
    return {"iceberg.type": "sql", "iceberg.uri": uri, "iceberg.warehouse": f"file://{folder}"}


@pytest.fixture
def delta(tmp_path: Path) -> Stand:
    return delta_stand(f"{tmp_path}/delta", {})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestCatalogServer]:
    catalog = SqlCatalog("served", uri=f"sqlite:///{tmp_path}/served.db", warehouse=f"file://{tmp_path}")
    with rest_catalog(catalog) as served:
        yield served
    catalog.close()


def _rest(server: RestCatalogServer, **more: str) -> Stand:
    return iceberg_stand({"iceberg.type": "rest", "iceberg.uri": server.url, **more}, name="flights")


def _lands(port: TablePort) -> None:
    """Commit to a table, and see the mark."""
    port.commit(looked(port), commit_of(1))
    assert looked(port).marks == {SINK: 1}


Try = Callable[[Path], Any]
SETTINGS = [
    walked(
        "connections.OpenedTables._delta",
        lambda _: open_tables({}).table(Spec("delta", "carriers")),
        lambda folder: open_tables({}).table(Spec("delta", f"{folder}/carriers")),
    ),
    walked(
        "connections.OpenedTables._delta",
        lambda folder: open_tables({}).table(Spec("delta", f"hdfs://{folder}/carriers")),
        lambda folder: open_tables({}).table(Spec("delta", f"file://{folder}/carriers")),
    ),
    walked(
        "connections.OpenedTables._iceberg",
        lambda folder: open_tables(_sql(folder)).table(Spec("iceberg", "carriers")),
        lambda folder: open_tables(_sql(folder)).table(Spec("iceberg", "flights.carriers")),
    ),
    walked(
        "connections.OpenedTables.table",
        lambda folder: open_tables(_sql(folder)).table(Spec("hudi", "flights.carriers")),
        lambda folder: open_tables(_sql(folder)).table(IcebergTable("flights.carriers", row=Carrier).plan),
    ),
    walked(
        "connections.OpenedTables.table",
        lambda folder: open_tables({}).table(Spec("hudi", f"{folder}/carriers")),
        lambda folder: open_tables({}).table(DeltaTable(f"{folder}/carriers", row=Carrier, name=SINK).plan),
    ),
    walked(
        "connections.TablesSettings.__init__",
        lambda folder: open_tables({"type": "sql"}),
        lambda folder: open_tables(_sql(folder)).table(Spec("iceberg", "flights.carriers")),
    ),
    walked(
        "connections.TablesSettings.__init__",
        lambda folder: open_tables(_sql(folder) | {"iceberg.echo": 1}),
        lambda folder: open_tables(_sql(folder) | {"iceberg.echo": "1"}).table(Spec("iceberg", "a.b")),
    ),
    walked(
        "iceberg_catalogs.refuse_settings: set iceberg.type to one of",
        lambda folder: open_tables(_sql(folder) | {"iceberg.type": "hive"}).table(Spec("iceberg", "a.b")),
        lambda folder: open_tables(_sql(folder)).table(Spec("iceberg", "a.b")),
    ),
    walked(
        "iceberg_catalogs.refuse_settings: take it out of the connection",
        lambda folder: open_tables(_sql(folder) | {"iceberg.py-io-impl": "x"}).table(Spec("iceberg", "a.b")),
        lambda folder: open_tables(_sql(folder)).table(Spec("iceberg", "a.b")),
    ),
]


@pytest.mark.parametrize(("wrong", "right"), SETTINGS)
def test_table_is_created_when_the_connection_was_corrected(wrong: Try, right: Try, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        wrong(tmp_path)
    port = right(tmp_path)
    port.create(COLUMNS, ())
    _lands(port)


@pytest.mark.remedy("connections.TablesSettings.from_file")
def test_file_of_settings_is_read_when_it_was_written_as_said(tmp_path: Path) -> None:
    file = tmp_path / "tables.json"
    with pytest.raises(ConfigError):
        TablesSettings.from_file(file)
    for text in ("delta.aws_region=text", '["delta.aws_region", "text"]'):
        file.write_text(text)
        with pytest.raises(ConfigError):
            TablesSettings.from_file(file)
    file.write_text('{"delta.aws_region": "text"}')
    assert dict(TablesSettings.from_file(file)) == {"delta.aws_region": "text"}


@pytest.mark.remedy("iceberg_errors.misconfigured")
def test_catalogue_is_opened_when_its_settings_were_corrected(server: RestCatalogServer) -> None:
    stand = _rest(server)
    address = stand.settings.pop("iceberg.uri")
    for _ in range(2):
        with pytest.raises(ConfigError, match="KeyError: 'uri'"):
            stand.port().look(APP)
    stand.settings["iceberg.uri"] = address
    _lands(stand.created())


COLUMNS_OF_PARTITIONS = (Column("id", "long"), Column("raw", "binary"), Column("name", "text"))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        walked("iceberg_schema._parsed", "week(id)", "bucket(4, id)"),
        walked("iceberg_schema.iceberg_spec", "truncate(4, nothing)", "truncate(4, name)"),
    ],
)
def test_iceberg_table_is_created_when_a_partition_field_was_corrected(
    iceberg: Stand, wrong: str, right: str
) -> None:
    with pytest.raises(TableRefusedError):
        iceberg.port().create(COLUMNS_OF_PARTITIONS, (wrong,))
    iceberg.port().create(COLUMNS_OF_PARTITIONS, (right,))
    _lands(iceberg.port())


@pytest.mark.remedy("delta_schema.partition_columns")
def test_delta_table_is_created_when_a_partition_field_was_corrected(delta: Stand) -> None:
    with pytest.raises(TableRefusedError, match="name one of id, name"):
        delta.port().create(COLUMNS_OF_PARTITIONS, ("raw",))
    delta.port().create(COLUMNS_OF_PARTITIONS, ("name",))
    _lands(delta.port())


@pytest.mark.remedy("delta_files.partition_text")
def test_rows_land_when_another_text_stands_for_an_empty_one(delta: Stand) -> None:
    port = delta.created()
    with pytest.raises(TableRefusedError):
        port.commit(looked(port), commit_of(1, delta.write(port, looked(port), row(1, carrier=""))))
    port.commit(looked(port), commit_of(1, delta.write(port, looked(port), row(1, carrier="none"))))
    assert delta.ids() == [1]


@pytest.mark.remedy("delta.DeltaTablePort._refuse_append_only")
def test_rows_are_taken_out_when_the_table_allows_it(delta: Stand) -> None:
    port = delta.created()
    file = delta.write(port, looked(port), row(1))
    port.commit(looked(port), commit_of(1, file))
    for allowed in ("true", "false"):
        TableOfDelta(delta.location).alter.set_table_properties({"delta.appendOnly": allowed})
        if allowed == "true":
            with pytest.raises(TableRefusedError):
                port.commit(looked(port), commit_of(2, removed=[file.path]))
    port.commit(looked(port), commit_of(2, removed=[file.path]))
    assert delta.ids() == []


@pytest.mark.remedy("delta.DeltaTablePort.widen")
def test_rows_land_in_another_table_when_a_type_cannot_be_widened(delta: Stand, tmp_path: Path) -> None:
    port, wide = delta.port(), Column("id", "long")
    port.create((Column("id", "int"),), ())
    with pytest.raises(TableRefusedError):
        port.widen(looked(port), added=(), widened=(wide,))
    other = delta_stand(f"{tmp_path}/other", {})
    port = other.port()
    port.create((wide,), ())
    port.commit(looked(port), commit_of(1, other.write(port, looked(port), {"id": 1 << 40})))
    assert other.ids() == [1 << 40]


@pytest.mark.remedy("iceberg.IcebergTablePort._refuse_view")
def test_table_is_created_under_another_name_or_when_the_view_is_gone(iceberg: Stand, tmp_path: Path) -> None:
    assert iceberg.port().look() is None
    view = ("default", "flights", "carriers", "file:///nowhere", "VIEW")
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as database, database:
        names = "catalog_name, table_namespace, table_name, metadata_location, iceberg_type"
        database.execute(f"INSERT INTO iceberg_tables ({names}) VALUES (?, ?, ?, ?, ?)", view)
    for _ in range(2):
        with pytest.raises(TableRefusedError):
            iceberg.created()
    iceberg.location = "flights.others"
    _lands(iceberg.created())
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as database, database:
        database.execute("DELETE FROM iceberg_tables WHERE iceberg_type = 'VIEW'")
    iceberg.location = "flights.carriers"
    _lands(iceberg.created())


@pytest.mark.remedy("iceberg_expiry.expire")
def test_table_whose_files_belong_to_others_is_written_without_expiry(iceberg: Stand) -> None:
    port = iceberg.created()
    looked(port).state.transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    with pytest.raises(TableRefusedError):
        port.expire(looked(port), 1)
    _lands(port)


@pytest.mark.remedy("iceberg_errors.port_error: give this principal the right to it")
def test_commit_lands_when_the_catalogue_allows_it(
    server: RestCatalogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = _rest(server).created()
    look, answer = looked(port), server.answer

    def may_read(kind: str, work: Callable[[], Any], token: str) -> tuple[int, Any] | None:
        said = {"error": {"message": "lake may not commit", "type": "NotAuthorized", "code": 403}}
        return (403, said) if kind == "commit" else answer(kind, work, token)

    with monkeypatch.context() as rights:
        rights.setattr(server, "answer", may_read)
        for _ in range(2):
            with pytest.raises(TableRefusedError, match="lake may not commit"):
                port.commit(look, commit_of(1))
    port.commit(look, commit_of(1))
    assert looked(port).marks == {SINK: 1}


@pytest.mark.remedy("iceberg_errors.port_error: {CREDENTIALS}")
def test_commit_lands_when_credentials_were_corrected(server: RestCatalogServer) -> None:
    server.credential = "flights:right-secret"
    more = {"iceberg.oauth2-server-uri": f"{server.url}/v1/oauth/tokens"}
    with pytest.raises(TableRefusedError):
        _rest(server, **more, **{"iceberg.credential": "flights:wrong-secret"}).port().look(APP)
    _lands(_rest(server, **more, **{"iceberg.credential": server.credential}).created())


@pytest.mark.remedy("storage_errors.unavailable")
@pytest.mark.parametrize("done", ["refuse", "fail", "lose"])
def test_rows_land_once_when_the_catalogue_answers_again(server: RestCatalogServer, done: What) -> None:
    stand = _rest(server)
    port = stand.created()
    look = looked(port)
    commit = commit_of(1, stand.write(port, look, row(1)))
    server.next("commit", done, 503)
    with pytest.raises(TableUnavailableError):
        port.commit(look, commit)
    # A retry looks first.
    look = looked(port)
    assert bool(look.marks) == (done != "refuse")
    if not look.marks:
        port.commit(look, commit)
    assert stand.ids() == [1]


@pytest.mark.remedy("storage_errors.storage_error: {_LATER}")
def test_commit_lands_when_the_database_is_free_again(iceberg: Stand, tmp_path: Path) -> None:
    iceberg.created()
    port = iceberg_stand(
        {**iceberg.settings, "iceberg.uri": f"{iceberg.settings['iceberg.uri']}?timeout=0.1"}, name="flights"
    ).port()
    look = looked(port)
    other = sqlite3.connect(tmp_path / "catalog.db")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(TableUnavailableError, match="locked"):
        port.commit(look, commit_of(1))
    other.close()
    _lands(port)


@pytest.mark.remedy("storage_errors.storage_error: {_FULL}")
def test_file_is_written_when_there_is_space_again(iceberg: Stand) -> None:
    port = iceberg.port()
    port.create((Column("id", "long"),), ())
    look = looked(port)
    files, rows = port.files(look), [{"id": 1}]
    path = files.path("app-1.parquet")
    full = Path(path.removeprefix("file://"))
    full.parent.mkdir(parents=True, exist_ok=True)
    full.symlink_to("/dev/full")
    for _ in range(2):
        with pytest.raises(TableUnavailableError), files.create(path) as out:
            write_rows(out, iceberg.schema(look), rows)
    full.unlink()
    with files.create(path) as out:
        write_rows(out, iceberg.schema(look), rows)
    port.commit(look, commit_of(1, facts(path, files.sizes([path])[path], look.columns, rows, ())))
    assert iceberg.ids() == [1]


@pytest.mark.remedy("storage_errors.storage_error: {_DENIED}", "storage_errors.storage_error: {CREDENTIALS}")
def test_commit_lands_when_credentials_were_corrected_and_given_the_right(tmp_path: Path) -> None:
    with object_stores() as stores:
        store, keys = stores.bucket(tmp_path), stores.new_user("lake")
        location, corrected = f"s3://{store.bucket}/carriers", dict(store.delta)
        corrected["delta.aws_access_key_id"], corrected["delta.aws_secret_access_key"] = keys
        delta_stand(location, store.delta).created()
        stores.check_credentials()
        for _ in range(2):
            with pytest.raises(TableRefusedError, match="renew or correct the credentials"):
                delta_stand(location, store.delta).port().look(APP)
        port = delta_stand(location, corrected).port()
        for _ in range(2):
            with pytest.raises(TableRefusedError, match="the right to read, write"):
                port.look(APP)
        stores.allow("lake")
        _lands(port)
