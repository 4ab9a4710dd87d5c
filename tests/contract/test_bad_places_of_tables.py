"""Storages and catalogues of tables that are full, refuse credentials, may not be written or are down.

Errors say what failed, where, and what to do; then that is done, and rows are there once.
"""

from __future__ import annotations

import random
import resource
import socket
import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_kstreams.streams.errors import KStreamsError, TableRefusedError, TableUnavailableError
from airflow_kstreams.streams.tables.table_port import TableLook, TablePort
from airflow_kstreams.tables.parquet.opening import rows_opener
from airflow_kstreams.testing import InMemoryKafka
from airflow_kstreams.testing.faults import FaultyTables
from tests.contract.test_runs_into_tables import APP, Lake, lake, send
from tests.support.tables.object_store import ObjectStores, object_stores
from tests.support.tables.rest_catalog import RestCatalogServer, rest_catalog
from tests.support.tables.stands import (
    SINK,
    Stand,
    commit_of,
    delta_stand,
    iceberg_stand,
    looked,
    row,
)

__all__ = ["lake"]

FULL = "free space in the storage, or raise its limit"
RENEW = "renew the credentials in the connection of the tables; each try reads them anew"
RIGHT = "give these credentials the right to read, write, list and delete there"


@pytest.fixture(scope="module")
def stores() -> Iterator[ObjectStores]:
    with object_stores() as served:
        yield served


@pytest.fixture(params=["iceberg", "delta"])
def stand(request: pytest.FixtureRequest, stores: ObjectStores, tmp_path: Path) -> Stand:
    """A table in a bucket of its own."""
    store = stores.bucket(tmp_path)
    if request.param == "delta":
        # The library tries again by itself, for minutes, unless it is told not to.
        settings = {**store.delta, "delta.max_retries": "0"}
        return delta_stand(f"s3://{store.bucket}/carriers", settings, store=store)
    settings = {"iceberg.type": "sql", "iceberg.uri": f"sqlite:///{tmp_path}/catalog.db", **store.iceberg}
    return iceberg_stand(
        {**settings, "iceberg.warehouse": f"s3://{store.bucket}"}, name="flights", store=store
    )


#: What S3 answers, and what comes of it.
ANSWERS: list[tuple[tuple[int, str, str], type[KStreamsError], str]] = [
    ((507, "XMinioStorageFull", "Storage backend has reached its minimum"), TableUnavailableError, FULL),
    ((403, "QuotaExceeded", ""), TableUnavailableError, FULL),
    ((400, "ExpiredToken", "The provided token has expired."), TableUnavailableError, RENEW),
    ((403, "ExpiredToken", "The provided token has expired."), TableUnavailableError, RENEW),
    ((403, "AccessDenied", "Access Denied"), TableRefusedError, RIGHT),
]


@pytest.mark.remedy(
    "storage_errors.storage_error: {_FULL}",
    "storage_errors.storage_error: {EXPIRED}",
    "storage_errors.storage_error: {_DENIED}",
)
def test_bucket_says_what_is_wrong_and_takes_the_rows_once_that_is_mended(stand: Stand) -> None:
    assert stand.store is not None
    port = stand.created()
    for number, (answer, kind, fix) in enumerate(ANSWERS, 1):
        look = looked(port)
        stand.store.answer(*answer)
        written, committed = _refused(stand, port, look, number)
        for refused in (written, committed):
            assert isinstance(refused, kind), (answer, refused)
            # What, where, and what to do.
            assert refused.cause.startswith("table 'flights.carriers': c")
            assert answer[1] in refused.cause or "ACCESS_DENIED" in refused.cause
            assert refused.fix.startswith(fix)
            assert refused.is_retriable == (kind is TableUnavailableError)
            assert "tests-secret-key" not in str(refused)
        stand.store.answer(0, "")
        look = looked(port)
        assert look.marks.get(SINK, 0) == number - 1
        port.commit(look, commit_of(number, stand.write(port, look, row(number))))
    assert stand.ids() == [*range(1, len(ANSWERS) + 1)]


def _refused(stand: Stand, port: TablePort, look: TableLook, number: int) -> Iterator[KStreamsError]:
    """Give the errors of writing a file, and of a commit."""
    acts: list[Callable[[], object]] = [
        lambda: stand.write(port, look, row(number)),
        lambda: port.commit(look, commit_of(number)),
    ]
    for act in acts:
        with pytest.raises(KStreamsError) as refused:
            act()
        yield refused.value


@pytest.mark.remedy("storage_errors.storage_error: {EXPIRED}")
def test_look_asks_for_new_credentials_though_s3_gives_no_reason(stand: Stand) -> None:
    assert stand.store is not None
    port = stand.created()
    stand.store.answer(400, "ExpiredToken", writes_only=False)
    with pytest.raises(TableUnavailableError) as expired:
        port.look()
    assert expired.value.fix == RENEW
    stand.store.answer(0, "")
    assert looked(stand.port()).marks == {}


@pytest.mark.remedy("storage_errors.storage_error: make the bucket")
def test_table_is_created_once_its_bucket_is_there(stand: Stand) -> None:
    assert stand.store is not None
    stand.store.files.delete_dir(stand.store.bucket)
    for _ in range(2):
        with pytest.raises(TableRefusedError, match=r"(?i)no_?such_?bucket") as absent:
            stand.created()
        assert absent.value.cause.startswith("table 'flights.carriers': creation failed")
    stand.store.files.create_dir(stand.store.bucket)
    assert looked(stand.created()).marks == {}


# == a catalogue that takes no token


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestCatalogServer]:
    catalog = SqlCatalog("served", uri=f"sqlite:///{tmp_path}/served.db", warehouse=f"file://{tmp_path}")
    with rest_catalog(catalog) as served:
        yield served
    catalog.close()


@pytest.mark.remedy("iceberg_errors.port_error: {EXPIRED}")
@pytest.mark.parametrize(
    ("status", "said", "retriable"),
    [(419, "planned", True), (401, "the token has expired", True), (401, "the token is not valid", False)],
)
def test_token_that_has_expired_may_be_tried_again_and_one_that_is_wrong_not(
    server: RestCatalogServer,
    status: int,
    said: str,
    retriable: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def with_token(token: str) -> Stand:
        settings = {"iceberg.type": "rest", "iceberg.uri": server.url, "iceberg.token": token}
        return iceberg_stand(settings, name="flights")

    with_token("first").created()
    answer = server.answer

    def checked(kind: str, work: Callable[[], Any], token: str) -> tuple[int, Any] | None:
        refusal = {"error": {"message": said, "type": "NotAuthorizedException", "code": status}}
        return answer(kind, work, token) if token == "second" else (status, refusal)

    monkeypatch.setattr(server, "answer", checked)
    with pytest.raises(
        TableUnavailableError if retriable else TableRefusedError, match="credentials"
    ) as seen:
        with_token("first").port().look()
    assert seen.value.is_retriable == retriable
    assert (seen.value.fix == RENEW) == retriable
    if not retriable:
        with pytest.raises(TableUnavailableError):
            said = "token expired"
            with_token("first").port().look()
    assert looked(with_token("second").port()).marks == {}


# == whole runs


@contextmanager
def small_files(limit_bytes: int) -> Iterator[None]:
    """Let the system refuse to write files that are larger, as a full disk does in the middle of one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_disk_that_takes_no_more_in_the_middle_of_a_file_stops_the_task_and_leaves_none(lake: Lake) -> None:
    kafka = InMemoryKafka()
    kafka.create_topic("flights", partitions=2)
    send(kafka, 0, 3)
    signs = "".join(random.Random(1).choices(string.ascii_letters, k=3 << 20))
    large = f'{{"carrier":"{signs}","at":"2024-01-01T00:00:00Z"}}'
    kafka.append("flights", large.encode(), b"k", partition=0)
    app = lake.application(kafka)
    slice_ = app.begin("r1")
    with small_files(1 << 20), pytest.raises(TableUnavailableError, match=r"(?i)file too large") as full:
        app.tasks(slice_)
    assert full.value.cause.startswith(f"table '{lake.table.name}': ")
    assert full.value.fix.startswith(FULL)
    assert full.value.is_retriable
    assert list(lake.folder.rglob("rows-*.parquet*")) == []
    app.tasks(slice_)
    app.finish("r1")
    assert lake.rows("SELECT count(*), max(length(carrier)) FROM {table}") == [(4, 3 << 20)]


@dataclass
class ServedLake(Lake):
    """A lake whose catalogue is asked over HTTP."""

    url: str = ""

    @property
    def settings(self) -> dict[str, str]:
        return {"iceberg.type": "rest", "iceberg.uri": self.url}


def test_catalogue_that_is_down_at_begin_and_at_finish_delays_a_run_and_no_more(
    server: RestCatalogServer, tmp_path: Path
) -> None:
    (tmp_path / "warehouse").mkdir()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        down = ServedLake("iceberg", tmp_path, f"http://127.0.0.1:{nobody.getsockname()[1]}")
        up = ServedLake("iceberg", tmp_path, server.url)
        kafka = InMemoryKafka()
        kafka.create_topic("flights", partitions=2)
        send(kafka, 0, 20)
        with pytest.raises(TableUnavailableError, match="opening of the catalogue") as seen:
            down.application(kafka).begin("r1")
        assert seen.value.cause.startswith("table 'air.flights': ")
        assert seen.value.is_retriable
        assert seen.value.fix.startswith("look at what the storage or catalogue says of itself, then retry")
        # Nothing was frozen: what comes meanwhile belongs to the run that begins.
        send(kafka, 20, 30)
        app = up.application(kafka)
        app.tasks(app.begin("r1"))
        send(kafka, 30, 35)
        with pytest.raises(TableUnavailableError, match="opening of the catalogue"):
            down.application(kafka).finish("r1")
        server.next("commit", "refuse", 503)
        assert up.application(kafka).finish("r1").tables["air.flights"].rows == 30
    assert up.rows("SELECT count(*) FROM {table}") == [(30,)]


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class OpenFiles:
    """Notes how many files are open whenever one is created."""

    def __init__(self) -> None:
        self.most = self.created = 0

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Make the call, see ``Interceptor``."""
        result = effect()
        if name == "files.create":
            self.created += 1
            self.most = max(self.most, _open_files())
        return result


def _memory_bytes() -> int:
    """Return the memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.prove
def test_run_with_ten_thousand_partitions_lands_in_bounded_memory_with_few_open_files(lake: Lake) -> None:
    partitions, kafka = 10_000, InMemoryKafka()
    kafka.create_topic("flights", partitions=1)
    for number in range(partitions):
        at = datetime.fromtimestamp(1_700_000_000 + number * 3_600, UTC).isoformat()
        kafka.append("flights", b'{"carrier":"C","at":"%s","delay":1}' % at.encode(), b"k")
    counted, app = OpenFiles(), lake.application(kafka)
    tables = FaultyTables(lake.opened(), counted)
    # All rows of the run are of one commit of one task.
    app.settings, app.tables, app.open_rows = {}, tables, rows_opener(tables)
    before, memory = _open_files(), _memory_bytes()
    slice_ = app.begin("r1")
    app.tasks(slice_)
    assert counted.created == partitions
    assert counted.most - before < 40, "table.open.files is 8; each has some descriptors"
    listed = [record.value() for record in kafka.records(f"{APP}-table-files")]
    assert len(listed) == partitions
    assert max(len(value or b"") for value in listed) < 1_000
    landed = app.finish("r1").tables[lake.table.name]
    assert (landed.rows, landed.files) == (partitions, partitions)
    assert _memory_bytes() - memory < 300 * 1024 * 1024
    assert lake.rows('SELECT count(*), count(DISTINCT "at") FROM {table}') == [(partitions, partitions)]
