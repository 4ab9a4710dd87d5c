"""Idempotency keys when topics are made anew, and when records come again: no new record has an old key, and
a record that comes again has the key that it had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from airflow_kstreams.batch.replay.replay import DeadLetterReplay
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.batch.reset.scenario import scenario_of
from airflow_kstreams.streams import CallContext, KStream, KStreamBuilder, RetryPolicy, serdes
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("keys-name-one-record")

NOW_MS = 1_700_000_000_000
BACKFILL = {"autostop.at": "interval", "output.topics": "out=again", "backfill.of": "app"}
INTERVAL = (NOW_MS - 1_000, NOW_MS + 1_000)
Shape = Callable[[KStream[str, str]], KStream[str, str]]


@dataclass
class Shop:
    """Orders in ``in``, and a table with a row for each idempotency key, as ``ON CONFLICT DO NOTHING`` has.

    :ivar rows: idempotency key -> the order of its first call.
    :ivar calls: how often each order was charged, or refused as charged before.
    :ivar down: orders for which the calls behind the charge fail.
    """

    kafka: InMemoryKafka = field(default_factory=lambda: InMemoryKafka(clock=ManualClock(now_ms=NOW_MS)))
    rows: dict[str, str] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    down: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for topic in ("in", "out", "again"):
            self.kafka.create_topic(topic)

    async def charge(self, order: str, *, context: CallContext) -> str:
        self.rows.setdefault(context.idempotency_key, order)
        self.calls[order] += 1
        return order

    async def charge_when_up(self, order: str, *, context: CallContext) -> str:
        await self.charge(order, context=context)
        return self.ship(order)

    def ship(self, order: str) -> str:
        if order in self.down:
            raise ConnectionError("away")
        return order

    def send(self, *orders: str, key: bytes = b"k") -> None:
        for order in orders:
            self.kafka.append("in", order.encode(), key, timestamp_ms=NOW_MS)

    def application(
        self, shape: Shape, application_id: str = "app", settings: Mapping[str, Any] | None = None
    ) -> Application:
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
        shape(builder.stream("in")).send_to("out")
        return Application(
            application_id=application_id,
            topology=builder.build(),
            on=self.kafka,
            clock=self.kafka.clock,
            settings=settings or {},
        )

    def straight(self, orders: KStream[str, str]) -> KStream[str, str]:
        return orders.map_values_async(self.charge, name="charge")

    def behind(self, orders: KStream[str, str]) -> KStream[str, str]:
        return self.straight(orders.repartition(1, name="shop"))

    def reset(self, option: str, *topics: str, accept: bool = False) -> None:
        request = ResetRequest(
            application_id="app",
            input_topics=() if accept else topics,
            accept=tuple(TopicPartition(topic, 0) for topic in topics) if accept else (),
            scenario=scenario_of({option: True}),
        )
        with ApplicationReset(self.kafka, request, clock=self.kafka.clock) as reset:
            reset.run()

    def recreate(self, topic: str) -> None:
        self.kafka.admin().delete_topics([topic])
        self.kafka.create_topic(topic)

    @property
    def charged(self) -> list[str]:
        return sorted(self.rows.values())


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_no_record_below_a_repartition_topic_has_an_old_key_when_a_reset_deleted_the_topic(
    shop: Shop,
) -> None:
    app = shop.application(shop.behind)
    shop.send("a", "b", "c", "d")
    app.run("run-1")
    shop.reset("to_latest", "in")
    shop.send("e", "f", "g", "h")
    app.run("run-2")
    assert shop.charged == list("abcdefgh")


def test_no_record_has_an_old_key_when_its_topic_was_made_anew(shop: Shop) -> None:
    app = shop.application(shop.straight)
    shop.send("a", "b")
    app.run("run-1")
    shop.recreate("in")
    shop.send("c", "d")
    shop.reset("to_earliest", "in")
    app.run("run-2")
    assert shop.charged == list("abcd")


def test_records_keep_their_keys_when_a_reset_has_them_processed_again(shop: Shop) -> None:
    app = shop.application(shop.straight)
    shop.send("a", "b")
    app.run("run-1")
    shop.reset("to_earliest", "in")
    app.run("run-2")
    assert (shop.charged, shop.calls) == (["a", "b"], {"a": 2, "b": 2})


def test_parked_record_keeps_its_key_and_no_other_has_it_when_its_topic_was_made_anew(shop: Shop) -> None:
    policy = RetryPolicy(attempts=9, backoff_ms=1_000)
    shop.down = {"a"}
    app = shop.application(
        lambda orders: orders.map_values_async(shop.charge_when_up, name="charge", order="key", retry=policy),
        settings={"retry.run.budget.ms": 0},
    )
    shop.send("a")
    assert app.run("run-1").parked == {"charge": 1}
    shop.recreate("in")
    shop.send("b", key=b"other")
    shop.reset("to_earliest", "in", accept=True)
    shop.kafka.clock.sleep(60.0)
    shop.down.clear()
    app.run("run-2")
    assert sorted(shop.kafka.values("out"), key=str) == [b"a", b"b"]
    assert (shop.charged, shop.calls["a"]) == (["a", "b"], 2)


@pytest.mark.parametrize(("prefix", "again"), [("", 1), ("charged anew", 2)])
def test_backfill_makes_effects_again_only_under_another_prefix(shop: Shop, prefix: str, again: int) -> None:
    shop.send("a", "b")
    shop.application(shop.straight).run("run-1")
    settings = {**BACKFILL, "idempotency.key.prefix": prefix}
    backfill = shop.application(shop.straight, "app-backfill-1", settings)
    done = backfill.run("run-1", interval_ms=INTERVAL)
    assert (shop.charged, shop.calls) == (sorted(["a", "b"] * again), {"a": 2, "b": 2})
    assert done.warnings == ()


def test_backfill_warns_of_effects_that_it_makes_again_below_topics_of_its_own(shop: Shop) -> None:
    shop.send("a", "b")
    shop.application(shop.behind).run("run-1")
    done = shop.application(shop.behind, "app-backfill-1", BACKFILL).run("run-1", interval_ms=INTERVAL)
    assert shop.charged == ["a", "a", "b", "b"]
    (warning,) = done.warnings
    assert warning.startswith("a backfill has its own app-backfill-1-shop-repartition, so calls of charge ")


def letters(shop: Shop, shape: Shape) -> Application:
    """An application whose failing records become dead letters."""
    return shop.application(shape, settings={"processing.exception.handler": "dead-letter"})


def replay(shop: Shop, app: Application, replay_id: str) -> None:
    tool = DeadLetterReplay(shop.kafka, app.checked, replay_id=replay_id, clock=shop.kafka.clock)
    assert sum(tool.run().records_per_topic.values()) == 1


def test_replayed_letter_keeps_its_key_however_often_it_comes_back(shop: Shop) -> None:
    app = letters(shop, lambda orders: shop.straight(orders).map_values(shop.ship))
    shop.down = {"b"}
    shop.send("a", "b", "c")
    app.run("run-1")
    replay(shop, app, "first")
    app.run("run-2")
    replay(shop, app, "second")
    shop.down.clear()
    app.run("run-3")
    assert shop.kafka.values("out") == [b"a", b"c", b"b"]
    assert (shop.charged, shop.calls["b"]) == (["a", "b", "c"], 3)
    assert len({header for header, _ in shop.kafka.records("out")[-1].headers() or ()}) == 1


def test_replayed_letter_keeps_its_key_when_its_topic_was_made_anew(shop: Shop) -> None:
    app = letters(shop, lambda orders: shop.straight(orders).map_values(shop.ship))
    shop.down = {"a"}
    shop.send("a")
    app.run("run-1")
    shop.recreate("in")
    shop.send("b")
    shop.reset("to_earliest", "in")
    replay(shop, app, "first")
    shop.down.clear()
    app.run("run-2")
    assert (shop.charged, shop.calls) == (["a", "b"], {"a": 2, "b": 1})


def test_records_made_of_a_replayed_letter_have_keys_of_their_own(shop: Shop) -> None:
    """A task passes the headers of a record on, with the place at which it came first among them."""

    def twice(orders: KStream[str, str]) -> KStream[str, str]:
        made = orders.map_values(shop.ship).flat_map_values(lambda order: [order, order])
        return made.repartition(1, name="shop").map_values_async(shop.charge, name="charge")

    app = letters(shop, twice)
    shop.down = {"a"}
    shop.send("a")
    app.run("run-1")
    replay(shop, app, "first")
    shop.down.clear()
    app.run("run-2")
    assert shop.charged == ["a", "a"]


def test_record_of_the_same_topic_that_was_made_of_a_replayed_letter_has_a_key_of_its_own(
    shop: Shop,
) -> None:
    """Another application writes what it makes of our output into our input."""
    app = letters(shop, lambda orders: shop.straight(orders).map_values(shop.ship))
    shop.down = {"a"}
    shop.send("a")
    app.run("run-1")
    replay(shop, app, "first")
    shop.down.clear()
    app.run("run-2")
    (made,) = shop.kafka.records("out")
    shop.kafka.append("in", b"made of a", b"k", timestamp_ms=NOW_MS, headers=made.headers())
    app.run("run-3")
    assert shop.charged == ["a", "made of a"]


def test_replayed_letter_comes_back_with_a_new_key_and_a_warning_when_its_topic_has_no_room(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    small: dict[str, Any] = {"max.message.bytes": "1100"}
    shop.kafka.admin().delete_topics(["in"])
    shop.kafka.create_topic("in", **small)
    app = letters(shop, lambda orders: shop.straight(orders).map_values(shop.ship))
    order = "a" * 1_000
    shop.down = {order}
    shop.send(order)
    app.run("run-1")
    replay(shop, app, "first")
    shop.down.clear()
    app.run("run-2")
    assert shop.charged == [order, order]
    assert "comes back without its first place, for which in has no room" in caplog.text
