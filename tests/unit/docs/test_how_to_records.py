"""The how-to pages on records that fail, come late or are old are followed, on a Kafka in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_kstreams.streams.errors import ConfigError, RecordError
from airflow_kstreams.streams.settings import ApplicationSettings
from tests.support.docs.how_to_pages import Follower, follower, values_of
from tests.support.docs.orders_application import GOOD, write_orders
from tests.support.docs.snippets import Snippets

HOUR_MS = 3_600_000
BAD = b'{"customer":"ann"}'


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Follower:
    found = follower(tmp_path, monkeypatch)
    write_orders(found)
    return found


@pytest.mark.snippets("docs/how-to/bad-records.md")
def test_letter_comes_back_when_the_page_on_bad_records_is_followed(
    reader: Follower, snippets: Snippets
) -> None:
    for number, value in enumerate((GOOD, BAD)):
        reader.append("orders", value, str(number).encode())
    with pytest.raises(RecordError, match="orders-0@1"):
        reader.run("orders", Path("orders.py"), "monday", {})

    assert "monday" in reader.follow(snippets.take("shell").code)
    settings = values_of(snippets.take("python").code)["settings"]
    handlers = {name: value for name, value in settings.items() if name.endswith("handler")}
    assert handlers.items() <= ApplicationSettings.parse("orders", settings).to_dict().items()
    assert set(handlers.values()) == {"dead-letter"}

    reader.follow(snippets.take("shell").code)
    assert len(reader.kafka.records("orders-dead-letter")) == 1
    assert [record.value() for record in reader.kafka.records("customer-totals")]
    _, shown, dry, done = reader.followed(snippets.take("shell").code)
    assert "missing required field `cents`" in shown
    assert BAD.decode() in shown
    assert "Done." not in dry
    assert "Done." in done
    assert [record.value() for record in reader.kafka.records("orders")] == [GOOD, BAD, BAD]


@pytest.mark.snippets("docs/how-to/late-data.md")
def test_late_records_are_seen_and_taken_when_the_page_on_late_data_is_followed(
    reader: Follower, snippets: Snippets
) -> None:
    look, code = snippets.take("shell").code, snippets.take("python").code
    application, settings = reader.write(code), values_of(snippets.take("python").code)["settings"]
    for topic in ("cents", "hourly-totals"):
        reader.kafka.create_topic(topic)
    start = reader.clock.now_ms() // HOUR_MS * HOUR_MS - 24 * HOUR_MS
    minute = HOUR_MS // 60

    def came(*minutes: int) -> None:
        for at in minutes:
            one = (1).to_bytes(8, "big")
            reader.kafka.append("cents", one, b"ann", timestamp_ms=start + at * minute)

    came(5, 65)
    reader.run("hourly-totals", application, "sunday", {})
    came(55)  # the first hour waits until 70
    reader.run("hourly-totals", application, "again", settings)
    assert reader.kafka.records("hourly-totals") == []
    came(75)
    reader.run("hourly-totals", application, "closing", settings)
    came(10, 80)
    with pytest.raises(ConfigError, match="as late"):
        reader.run("hourly-totals", application, "monday", settings)
    reader.run("hourly-totals", application, "monday", {**settings, "late.share.exceeded": "warn"})

    (total,) = reader.kafka.records("hourly-totals")
    assert int.from_bytes(total.value() or b"", "big") == 2, "both records of the first hour"
    odd, shown = reader.followed(look)
    assert "monday" in odd
    assert "late" in shown


@pytest.mark.snippets("docs/how-to/only-new-records.md")
def test_old_records_are_left_when_the_page_on_new_records_is_followed(
    reader: Follower, snippets: Snippets
) -> None:
    reader.append("orders", GOOD, b"1")
    reader.follow(snippets.take("shell").code)
    reader.append("orders", GOOD, b"2")
    lag, _ = reader.followed(snippets.take("shell").code)
    assert "Offsets that wait in inputs: 1" in lag
    reader.run("orders", Path("orders.py"), "second", {})
    totals = [
        int.from_bytes(record.value() or b"", "big") for record in reader.kafka.records("customer-totals")
    ]
    assert totals == [250], "the old order is not in the total"

    reader.append("orders", GOOD, b"3")
    dry, _ = reader.followed(snippets.take("shell").code)
    assert "Dry run" in dry
    reader.run("orders", Path("orders.py"), "third", {})
    assert len(reader.kafka.records("customer-totals")) == 1
