"""Answers of Iceberg's catalogues: lost, late, failing, refusing, and what is done with credentials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_kstreams.streams.errors import (
    ConfigError,
    TableMovedError,
    TableRefusedError,
    TableUnavailableError,
)
from tests.support.tables.object_store import object_stores
from tests.support.tables.rest_catalog import RestCatalogServer, rest_catalog
from tests.support.tables.stands import COLUMNS, SINK, Stand, commit_of, iceberg_stand, looked, row

if TYPE_CHECKING:
    from pyiceberg.table import Table


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    settings = {"iceberg.type": "sql", "iceberg.uri": uri, "iceberg.warehouse": f"file://{tmp_path}"}
    return iceberg_stand(settings, name="flights")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestCatalogServer]:
    catalog = SqlCatalog("served", uri=f"sqlite:///{tmp_path}/served.db", warehouse=f"file://{tmp_path}")
    with rest_catalog(catalog) as served:
        yield served
    catalog.close()


@pytest.fixture
def rest(server: RestCatalogServer) -> Stand:
    return iceberg_stand(
        {"iceberg.type": "rest", "iceberg.uri": server.url, "iceberg.timeout-seconds": "5"}, name="flights"
    )


def _table(stand: Stand) -> Table:
    table: Table = looked(stand.port()).state
    return table


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
@pytest.mark.parametrize("done", ["refuse", "fail"])
def test_commit_may_have_landed_when_the_catalogue_fails(
    server: RestCatalogServer, rest: Stand, status: int, done: Any
) -> None:
    port = rest.created()
    look = looked(port)
    file = rest.write(port, look, row(1))
    server.next("commit", done, status)
    with pytest.raises(TableUnavailableError):
        port.commit(look, commit_of(1, file))
    assert server.seen.count("commit") == 1
    landed = done == "fail"
    assert looked(port).marks == ({SINK: 1} if landed else {})
    assert rest.ids() == ([1] if landed else [])


def test_commit_is_found_by_its_mark_when_the_answer_never_came(
    server: RestCatalogServer, rest: Stand
) -> None:
    port = rest.created()
    look = looked(port)
    server.next("commit", "lose")
    with pytest.raises(TableUnavailableError):
        port.commit(look, commit_of(1, rest.write(port, look, row(1))))
    assert server.seen.count("commit") == 1
    assert looked(port).marks == {SINK: 1}
    assert rest.ids() == [1]


def test_request_that_the_server_does_late_fails_when_another_commit_was_made(
    server: RestCatalogServer, rest: Stand
) -> None:
    port = rest.created()
    look = looked(port)
    file = rest.write(port, look, row(1))
    server.next("commit", "delay")
    with pytest.raises(TableUnavailableError):
        port.commit(look, commit_of(1, file))
    assert looked(port).marks == {}
    port.commit(looked(port), commit_of(1, file))
    assert server.do_delayed() == [409]
    assert rest.ids() == [1]


def test_conflict_is_answered_once_and_deletes_nothing_though_the_table_asks_for_retries(
    server: RestCatalogServer, rest: Stand
) -> None:
    port = rest.created()
    _table(rest).transaction().set_properties({"commit.retry.num-retries": "4"}).commit_transaction()
    look = looked(port)
    file = rest.write(port, look, row(1))
    rest.other.append(row(2))
    server.seen.clear()
    with pytest.raises(TableMovedError):
        port.commit(look, commit_of(1, file))
    assert (server.seen.count("commit"), server.seen.count("load")) == (1, 0)
    # A proxy has sent the request twice: the first one landed, the second one's conflict is the answer.
    look = looked(port)
    server.next("commit", "fail", 409)
    with pytest.raises(TableMovedError):
        port.commit(look, commit_of(1, file))
    assert looked(port).marks == {SINK: 1}
    assert rest.ids() == [1, 2]


def test_catalogue_that_does_not_answer_is_given_up(server: RestCatalogServer, rest: Stand) -> None:
    impatient = iceberg_stand({**rest.settings, "iceberg.timeout-seconds": "0.2"}, name="flights")
    port = rest.created()
    look = looked(port)
    waiting = impatient.port()
    server.next("config", "hang")
    with pytest.raises(TableUnavailableError):
        waiting.look()
    server.next("load", "hang")
    with pytest.raises(TableUnavailableError):
        waiting.look()
    server.next("commit", "hang")
    look = looked(waiting)
    with pytest.raises(TableUnavailableError):
        waiting.commit(look, commit_of(1))
    assert looked(port).marks == {}


def test_catalogue_that_is_down_is_unavailable_and_found_again(tmp_path: Path) -> None:
    stand = iceberg_stand({"iceberg.type": "rest", "iceberg.uri": "http://127.0.0.1:9"}, name="flights")
    with pytest.raises(TableUnavailableError, match="opening of the catalogue"):
        stand.port().look()


@pytest.mark.remedy("iceberg_errors.misconfigured")
def test_address_at_which_no_catalogue_is_has_to_be_corrected(server: RestCatalogServer, rest: Stand) -> None:
    server.next("config", "refuse", 404)
    with pytest.raises(ConfigError, match="its catalogue cannot be opened") as wrong:
        rest.port().look()
    assert not wrong.value.is_retriable
    assert looked(rest.created()).marks == {}


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, TableRefusedError), (403, TableRefusedError), (422, TableRefusedError), (404, TableMovedError)],
)
def test_commit_is_refused_when_the_catalogue_says_so(
    server: RestCatalogServer, rest: Stand, status: int, error: type[Exception]
) -> None:
    port = rest.created()
    server.next("commit", "refuse", status)
    with pytest.raises(error):
        port.commit(looked(port), commit_of(1))


def test_token_is_renewed_when_it_has_expired(server: RestCatalogServer, rest: Stand) -> None:
    server.credential = "flights:very-secret"
    settings = {**rest.settings, "iceberg.credential": server.credential}
    settings["iceberg.oauth2-server-uri"] = f"{server.url}/v1/oauth/tokens"
    port = iceberg_stand(settings, name="flights").created()
    look = looked(port)
    server.expire_tokens()
    port.commit(look, commit_of(1))
    server.expire_tokens()
    assert looked(port).marks == {SINK: 1}


def test_wrong_credential_says_what_to_do_and_is_not_printed(server: RestCatalogServer, rest: Stand) -> None:
    server.credential = "flights:another-one"
    settings = {**rest.settings, "iceberg.credential": "flights:very-secret"}
    settings["iceberg.oauth2-server-uri"] = f"{server.url}/v1/oauth/tokens"
    with pytest.raises(TableRefusedError, match="renew or correct the credentials") as refused:
        iceberg_stand(settings, name="flights").port().look()
    assert "very-secret" not in f"{refused.value!r}{refused.value}{refused.value.__cause__}"
    with pytest.raises(TableRefusedError):
        rest.port().look()


def test_vended_credentials_are_taken_and_renewed_before_they_end(
    server: RestCatalogServer, rest: Stand, tmp_path: Path
) -> None:
    with object_stores() as stores:
        store = stores.bucket(tmp_path)
        vended = {name.removeprefix("iceberg."): value for name, value in store.iceberg.items()}
        server.table_config = {**vended, "s3.session-token-expires-at-ms": "1000"}
        served = SqlCatalog(
            "served", uri=f"sqlite:///{tmp_path}/served.db", warehouse=f"s3://{store.bucket}", **vended
        )
        server.catalog = served
        stand = iceberg_stand(rest.settings, name="vended", store=store)
        port = stand.created()
        look = looked(port)
        server.seen.clear()
        file = stand.write(port, look, row(1))
        assert server.seen.count("load") >= 1
        port.commit(look, commit_of(1, file))
        assert stand.ids() == [1]
        served.close()


def test_storage_says_what_to_do_when_it_refuses_credentials(stand: Stand, tmp_path: Path) -> None:
    with object_stores() as stores:
        store = stores.bucket(tmp_path)
        settings = {**stand.settings, **store.iceberg, "iceberg.warehouse": f"s3://{store.bucket}"}
        port = iceberg_stand(settings, name="stored", store=store).created()
        look = looked(port)
        stores.check_credentials()
        with pytest.raises(TableRefusedError, match="credentials") as refused:
            port.look()
        assert "tests-secret-key" not in str(refused.value)
        with pytest.raises(TableRefusedError, match="credentials"):
            port.files(look).create(port.files(look).path("x.parquet")).close()


def test_place_that_a_view_or_table_of_another_format_has_is_refused(
    server: RestCatalogServer, rest: Stand
) -> None:
    server.next("create", "refuse", 409)
    with pytest.raises(TableRefusedError, match="is no Iceberg table"):
        rest.port().create(COLUMNS, ())


def test_catalogue_that_may_not_be_written_refuses_a_commit(stand: Stand, tmp_path: Path) -> None:
    port = stand.created()
    settings = {**stand.settings, "iceberg.uri": f"sqlite:///file:{tmp_path}/catalog.db?mode=ro&uri=true"}
    reader = iceberg_stand(settings, name="flights").port()
    with pytest.raises(TableRefusedError, match="readonly"):
        reader.commit(looked(reader), commit_of(1))
    assert looked(port).marks == {}
