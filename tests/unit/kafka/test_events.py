from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from confluent_kafka import KafkaError

from airflow_kstreams.kafka.events import ClientEvents


def callbacks(events: ClientEvents) -> dict[str, Any]:
    return events.callbacks()


def statistics(brokers: dict[str, tuple[int, int, int]]) -> str:
    return json.dumps(
        {
            "name": "rdkafka#producer-1",
            "brokers": {
                name: {"nodeid": node, "disconnects": lost, "req_timeouts": timeouts, "txretries": 3}
                for name, (node, lost, timeouts) in brokers.items()
            },
            "topics": {"t": {"partitions": {"0": {"disconnects": 99}}}},
        }
    )


def test_disconnects_are_counted_per_broker_when_statistics_arrive() -> None:
    events = ClientEvents()
    callbacks(events)["stats_cb"](statistics({"host:1/1": (1, 2, 0), "host:2/2": (2, 0, 5)}))
    assert events.disconnects == 7


def test_disconnects_are_counted_when_they_are_the_transaction_coordinators() -> None:
    events = ClientEvents()
    callbacks(events)["stats_cb"](statistics({"TxnCoordinator": (-1, 1, 2)}))
    assert (events.disconnects, events.statistics) == (3, 1)


def test_bootstrap_connections_are_not_counted_when_they_are_dropped() -> None:
    events = ClientEvents()
    callbacks(events)["stats_cb"](statistics({"host:1/bootstrap": (-1, 4, 0)}))
    assert events.disconnects == 0


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._RESOLVE])
def test_connection_errors_are_counted_when_they_are_told(code: int) -> None:
    events = ClientEvents()
    callbacks(events)["error_cb"](KafkaError(code, "refused"))
    assert (events.connection_errors, events.last_error, events.all_down_since) == (1, "refused", None)


def test_time_of_the_loss_is_the_first_when_all_brokers_stay_down() -> None:
    events = ClientEvents()
    down = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
    callbacks(events)["error_cb"](down)
    first = events.all_down_since
    assert first is not None
    callbacks(events)["error_cb"](down)
    assert events.all_down_since == first
    events.seen_connected()
    assert events.all_down_since is None


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError._SSL])
def test_refused_credentials_are_kept_when_they_are_told(code: int) -> None:
    events = ClientEvents()
    callbacks(events)["error_cb"](KafkaError(code, "first"))
    callbacks(events)["error_cb"](KafkaError(code, "second"))
    assert events.credentials_error == "first"


def test_log_line_goes_to_debug_when_its_content_is_raised_as_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "airflow_kstreams.kafka.client")
    logger = callbacks(ClientEvents())["logger"]
    logger.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#1", "refused")
    logger.log(logging.WARNING, "%s [%s] %s", "GETPID", "rdkafka#1", "refused")
    assert [record.levelname for record in caplog.records] == ["DEBUG", "WARNING"]


def test_claim_that_is_repeated_is_no_warning_and_its_reason_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events = ClientEvents()
    text = "[thrd:main]: Failed to acquire transactional PID from broker b/1: Broker: Loading: retrying"
    for _ in range(12):
        events.log(logging.WARNING, "%s [%s] %s", "GETPID", "rdkafka#1", text)
    assert [record for record in caplog.records if record.levelno >= logging.INFO] == []
    assert events.claim_error == text
