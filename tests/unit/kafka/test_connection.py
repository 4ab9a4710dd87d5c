from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from airflow_kstreams.kafka import admin, reader, writer
from airflow_kstreams.kafka.cluster import KafkaCluster

#: Between its first connections librdkafka pauses for half of the setting, and for no less than 11 ms.
SHORTEST_PAUSE_MS = 11
PAUSE = "reconnect.backoff.ms"


class Client:
    """Stands in for any client of the library; knows no broker and answers everything at once."""

    made: list[dict[str, Any]]

    def __init__(self, config: Mapping[str, Any], **_: object) -> None:
        self.made.append({**config})

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Settings of the clients that were made."""
    monkeypatch.setattr(Client, "made", [], raising=False)
    for module, name in ((admin, "AdminClient"), (reader, "Consumer"), (writer, "Producer")):
        monkeypatch.setattr(module, name, Client)
    return Client.made


def make_all(cluster: KafkaCluster) -> None:
    cluster.reader(group_id="app")
    cluster.writer(transactional_id=None)
    cluster.writer(transactional_id="app-0_0")
    with pytest.raises(AttributeError):  # the answer of nobody
        cluster.admin().topic_names()


def test_first_connections_are_made_without_delay_by_every_client(made: list[dict[str, Any]]) -> None:
    make_all(KafkaCluster({"bootstrap.servers": "nowhere:9092"}))

    assert len(made) == 4
    assert all(int(config[PAUSE]) // 2 <= SHORTEST_PAUSE_MS for config in made)


def test_users_own_pause_is_kept_by_every_client(made: list[dict[str, Any]]) -> None:
    make_all(KafkaCluster({"bootstrap.servers": "nowhere:9092", PAUSE: "100"}))

    assert [config[PAUSE] for config in made] == ["100"] * 4
