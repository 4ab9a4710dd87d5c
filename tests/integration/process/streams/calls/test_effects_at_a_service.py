"""The examples of ``docs/explanation/async.md`` as they stand there: a run that dies and is repeated takes no
second effect, at an HTTP service or in a PostgreSQL table.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.testing import InMemoryKafka
from dev.servers.postgres import postgres
from tests.support.crash import Crash
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import Once
from tests.support.paying_service import paying_service
from tests.support.topology.examples import code_blocks

pytestmark = pytest.mark.promise("calls-keep-their-key")

_PAGE = Path(__file__).parents[5] / "docs" / "explanation" / "async.md"
RECORDS = 60
#: Records between two commits.
EVERY = 10


def example(marker: str, **names: Any) -> Topology:
    """Build what an example of the page builds on ``orders``.

    :param marker: stands in that block of code alone.
    :param names: what the page leaves to the reader.
    """
    (block,) = (found for found in code_blocks(_PAGE.read_text(encoding="utf-8")) if marker in found.code)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    exec(
        compile(block.code, str(_PAGE), "exec"),
        {
            "orders": builder.stream("orders"),
            "httpx": httpx,
            "psycopg": psycopg,
            "contextlib": contextlib,
            **names,
        },
    )
    return builder.build()


def killed_and_repeated(topology: Topology) -> InMemoryKafka:
    """Run a topology over some orders; its process dies at its third commit, twice, and is started again."""
    kafka = InMemoryKafka()
    kafka.create_topic("orders")
    kafka.create_topic("charged")
    for number in range(RECORDS):
        order = json.dumps({"order": number, "amount": number}).encode()
        kafka.append("orders", order, f"customer-{number % 7}".encode(), timestamp_ms=number)

    application = Application(
        application_id="shop",
        topology=topology,
        on=kafka,
        clock=kafka.clock,
        settings={"commit.every.records": EVERY, "commit.interval.ms": 1},
    )
    for number in (1, 2):
        dying = replace(application, interceptor=Once("writer.commit", 3, die))
        with pytest.raises(Crash):
            dying.tasks(application.begin("run-1", (0, number)))
    application.run("run-1", (0, 3))
    return kafka


def die() -> None:
    raise Crash


def wanted_keys(kafka: InMemoryKafka, node: str) -> set[str]:
    topic_id = kafka.admin().describe_topics(["orders"])["orders"].topic_id
    return {f"shop/orders-0@{offset}/{topic_id}/{node}/0" for offset in range(RECORDS)}


def test_each_order_is_charged_once_when_a_run_dies_and_is_repeated() -> None:
    with paying_service() as service:
        kafka = killed_and_repeated(example("async def charge", PAYMENTS_URL=service.url))
    assert service.charges.keys() == wanted_keys(kafka, "charge")
    assert service.repeated, "the run was repeated, else nothing was looked at"
    charged = [json.loads(value or b"") for value in kafka.values("charged")]
    assert [order["order"] for order in charged] == list(range(RECORDS))
    numbers = {asked["order"]: at for at, asked in enumerate(service.charges.values())}
    assert [order["charge"] for order in charged] == [numbers[n] for n in range(RECORDS)]


@pytest.mark.prove  # dev/setup installs PostgreSQL for the long proof alone
def test_each_order_stands_in_the_table_once_when_a_run_dies_and_is_repeated() -> None:
    with postgres() as url:
        address = url.replace("+psycopg", "")
        with psycopg.connect(address, autocommit=True) as database:
            database.execute("CREATE TABLE orders (call text PRIMARY KEY, customer text, amount int)")
            database.execute("CREATE TABLE asked (call text)")
            # Counts the statements, too: a conflict runs this trigger and inserts nothing.
            database.execute(
                "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN INSERT INTO asked VALUES (NEW.call); RETURN NEW; END $$"
            )
            database.execute(
                "CREATE TRIGGER noting BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION note()"
            )
            kafka = killed_and_repeated(example("async def store", DATABASE=address))
            rows = database.execute("SELECT call, customer, amount FROM orders ORDER BY amount").fetchall()
            asked = database.execute("SELECT count(*) FROM asked").fetchone()
    assert {call for call, _, _ in rows} == wanted_keys(kafka, "store")
    assert [(customer, amount) for _, customer, amount in rows] == [
        (f"customer-{n % 7}", n) for n in range(RECORDS)
    ]
    assert asked is not None and asked[0] > RECORDS, "the run was repeated, else nothing was looked at"
