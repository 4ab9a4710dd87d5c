"""The how-to pages on changing, upgrading, moving and removing an application, and on one that is busy, are
followed on a Kafka in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_kstreams.streams.errors import RunBusyError
from airflow_kstreams.testing import ManualClock
from tests.support.docs.how_to_pages import Follower, follower
from tests.support.docs.orders_application import GOOD, application, write_orders
from tests.support.docs.snippets import Snippets

ORDERS = Path("orders.py")
CLEAN = """
from airflow_kstreams.streams import KStreamBuilder, serdes


def topology():
    builder = KStreamBuilder(default_key_serde=serdes.bytes(), default_value_serde=serdes.bytes())
    builder.stream("orders").filter(lambda key, value: value).send_to("clean-orders")
    return builder.build()


if __name__ == "__main__":
    pass
"""


class RenewedClock:
    """A clock of one who waits while a driver renews its lease."""

    def __init__(self, clock: ManualClock, renew: Callable[[], object]) -> None:
        self.now_ms, self.monotonic_seconds = clock.now_ms, clock.monotonic_seconds
        self._clock, self._renew = clock, renew

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)
        self._renew()


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Follower:
    """Its application has finished one run, in which an order of 250 cents came."""
    found = follower(tmp_path, monkeypatch)
    write_orders(found)
    found.append("orders", GOOD, b"1")
    found.run("orders", ORDERS, "first", {})
    return found


def totals(reader: Follower) -> list[int]:
    return [
        int.from_bytes(record.value() or b"", "big") for record in reader.kafka.records("customer-totals")
    ]


@pytest.mark.snippets("docs/how-to/another-owner.md")
def test_owner_is_shown_and_its_lease_ends_when_the_page_is_followed(
    reader: Follower, snippets: Snippets
) -> None:
    reader.append("orders", GOOD, b"2")
    theirs = application(reader)
    with closing(theirs.coordinator()) as other:
        theirs.begin("by somebody", (0, 1), coordinator=other)
        waiting = replace(theirs, clock=RenewedClock(reader.clock, other.lease.renew))
        busy = pytest.raises(RunBusyError, match="has just renewed its lease")
        with closing(waiting.coordinator()) as ours, busy:
            waiting.begin("ours", (0, 2), coordinator=ours)
        assert "driver of by somebody" in reader.follow(snippets.take("shell").code)

    reader.follow(snippets.take("shell").code)
    assert totals(reader) == [250, 500]


@pytest.mark.snippets("docs/how-to/change-a-topology.md")
def test_change_is_seen_before_it_is_deployed_when_the_page_is_followed(
    reader: Follower, snippets: Snippets
) -> None:
    assert "first" in reader.follow(snippets.take("shell").code)
    reader.follow(snippets.take("shell").code)
    code = ORDERS.read_text()
    look, plan = snippets.take("shell").code.splitlines()

    ORDERS.write_text(code.replace("order.cents > 0", "order.cents > 1_000"))
    assert "difference to before" in reader.follow(look)
    assert "customer-totals" not in reader.follow(plan, exit_code=0)
    ORDERS.write_text(code.replace('store="totals"', 'store="sums"'))
    printed = reader.follow(plan, exit_code=0)
    assert "orders-totals-changelog" in printed
    reader.follow("airflow-kstreams reset --internal-topics orders-totals-changelog")
    assert "orders-totals-changelog" not in reader.follow(plan)


@pytest.mark.snippets("docs/how-to/upgrade.md")
def test_checks_pass_when_the_page_on_upgrading_is_followed(reader: Follower, snippets: Snippets) -> None:
    assert "first" in reader.follow(snippets.take("shell").code)
    version, plan = reader.followed(snippets.take("shell").code)
    assert version.startswith("airflow-kstreams ")
    assert "Nothing was written." in plan


@pytest.mark.snippets("docs/how-to/remove-an-application.md")
def test_no_topic_of_its_own_stays_when_the_page_on_removing_is_followed(
    reader: Follower, snippets: Snippets
) -> None:
    reader.run("orders-eu", ORDERS, "of another", {})
    dry, _ = reader.followed(snippets.take("shell").code)
    assert "orders-totals-changelog" in dry
    reader.follow(snippets.take("shell").code)
    assert "kafka-acls.sh" in reader.follow(snippets.take("shell").code)

    left = {topic for topic in reader.kafka.admin().topic_names() if not topic.startswith("orders-eu-")}
    assert left == {"orders", "customer-totals"}
    assert "orders-eu-runs" in reader.kafka.admin().topic_names()


@pytest.mark.snippets("docs/how-to/another-cluster.md")
def test_new_cluster_goes_on_when_the_page_on_moving_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snippets: Snippets
) -> None:
    new = follower(tmp_path, monkeypatch)
    write_orders(new, topics=("orders",))
    new.append("orders", GOOD, b"1")
    new.append("orders", GOOD, b"2")
    new.follow(snippets.take("shell").code)
    new.follow(snippets.take("shell").code)
    assert totals(new) == [500], "the total of all that the mirror holds"
    assert "Nothing was written." in new.follow(snippets.take("shell").code)


@pytest.mark.snippets("docs/how-to/another-cluster.md")
def test_stateless_application_goes_on_at_a_time_when_the_page_on_moving_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snippets: Snippets
) -> None:
    new = follower(tmp_path, monkeypatch)
    monkeypatch.setenv("KSTREAMS_BOOTSTRAP_SERVERS", "new-cluster:9092")
    (tmp_path / "clean_orders.py").write_text(CLEAN)
    for topic in ("orders", "clean-orders"):
        new.kafka.create_topic(topic)
    noted_ms = 1_790_000_000_000 - 20_000  # 2026-09-21 14:13:00 UTC
    for number, at_ms in enumerate((noted_ms - 1, noted_ms, noted_ms + 1)):
        new.kafka.append("orders", b"%d" % number, b"k", timestamp_ms=at_ms)
    new.follow(snippets.take("shell").code)
    new.run("clean-orders", Path("clean_orders.py"), "second", {})
    assert [record.value() for record in new.kafka.records("clean-orders")] == [b"1", b"2"]
