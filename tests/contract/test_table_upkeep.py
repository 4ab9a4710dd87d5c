"""The check beside the ledger, orphans and expiry on real tables, after whole runs on Kafka in memory."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable as DeltaLibraryTable

from airflow_kstreams.batch.inspect.tables.orphans import find_orphans
from airflow_kstreams.batch.inspect.tables.table_check import TablesCheck, compare_tables
from airflow_kstreams.batch.run.tables.table_acceptance import accept_tables
from airflow_kstreams.batch.run.tables.table_expiry import expire_tables
from airflow_kstreams.streams.errors import TableRefusedError
from airflow_kstreams.tables.parquet.parquet_files import file_prefix
from airflow_kstreams.testing import InMemoryKafka
from tests.contract.test_runs_into_tables import APP, Lake, lake, send

__all__ = ["lake"]


def kafka_with_runs(lake: Lake, *sizes: int) -> InMemoryKafka:
    kafka, first = InMemoryKafka(), 0
    kafka.create_topic("flights", partitions=2)
    for number, size in enumerate(sizes):
        send(kafka, first, first + size)
        lake.application(kafka).run(f"run-{number}")
        first += size
    return kafka


def checked(lake: Lake, kafka: InMemoryKafka) -> TablesCheck:
    return compare_tables(kafka, lake.topology().plan(APP), lake.opened(), clock=kafka.clock)


def test_rows_that_were_taken_out_by_hand_are_differences(lake: Lake) -> None:
    kafka = kafka_with_runs(lake, 30, 20)
    found = checked(lake, kafka)
    assert found.differences == ()
    assert [(each.runs, each.rows, each.counted) for each in found.tables] == [(2, 50, True)]
    if lake.kind == "delta":
        DeltaLibraryTable(f"{lake.folder}/flights").delete("carrier = 'C1'")
    else:
        look = lake.opened().table(lake.table.plan).look(APP)
        assert look is not None
        look.state.delete("carrier == 'C1'")
    found = checked(lake, kafka)
    # Every seventh row is of that carrier: those with numbers 1, 8, 15, ..., 43.
    assert {(each.run_id, each.ledger, each.found) for each in found.differences if each.run_id} == {
        ("run-0", 30, 25),
        ("run-1", 20, 18),
    }
    (by_hand,) = (each for each in found.differences if not each.run_id)
    assert by_hand.text.startswith("a snapshot of no run (")


def test_file_that_an_attempt_left_is_an_orphan_and_no_other(lake: Lake) -> None:
    kafka = kafka_with_runs(lake, 30)
    port = lake.opened().table(lake.table.plan)
    look = port.look(APP)
    assert look is not None
    files = port.files(look)
    left = files.path(f"{file_prefix(APP)}run-9-0_0-1-dead-00001.parquet", [("at_hour", "x y")])
    with files.create(left) as out:
        out.write(b"rows of an attempt that died")
    plan = lake.topology().plan(APP)

    def orphans(*, delete: bool = False) -> list[str]:
        found = find_orphans(
            kafka,
            plan,
            lake.opened(),
            beginning=file_prefix(APP),
            # The storage has the machine's clock.
            older_than_ms=-(10**15),
            delete=delete,
            clock=kafka.clock,
        )
        assert found.looked_at > 1
        return [each.path for each in found.files]

    assert orphans() == [left]
    assert orphans(delete=True) == [left]
    assert orphans() == []
    assert lake.rows("SELECT count(*) FROM {table}") == [(30,)]


def test_expired_and_accepted_table_goes_on(lake: Lake) -> None:
    kafka = kafka_with_runs(lake, 10, 10, 10)
    plan = lake.topology().plan(APP)
    (expired,) = expire_tables(lake.opened(), plan, 1)
    assert expired.before >= 3
    assert checked(lake, kafka).differences == ()
    if lake.kind == "delta":
        DeltaLibraryTable(f"{lake.folder}/flights").restore(2)
    else:
        lake.opened().table(lake.table.plan)
        look = lake.opened().table(lake.table.plan).look(APP)
        assert look is not None
        look.state.catalog.drop_table("air.flights")
    send(kafka, 30, 35)
    application = lake.application(kafka)
    with pytest.raises(TableRefusedError, match=r"restored past|is gone"):
        application.begin("run-3")
    (accepted,) = accept_tables(kafka, application.checked, plan, lake.opened(), clock=kafka.clock)
    assert accepted.changed
    landed = lake.application(kafka).run("run-3").tables[lake.table.name]
    assert (landed.sequence, landed.rows) == (4, 5)
    assert lake.rows("SELECT count(*) FROM {table}") == [(25 if lake.kind == "delta" else 5,)]
