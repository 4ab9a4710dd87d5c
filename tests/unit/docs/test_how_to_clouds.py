"""Settings of the how-to pages on clouds and Kubernetes: the product's own checks take them.

No account is there to log in with. What a page says of a cloud itself stands beside it as not run.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from airflow_kstreams.kafka.configuration.client_settings import check_client_settings
from airflow_kstreams.kafka.configuration.code_settings import AllowedSettings, with_callback
from airflow_kstreams.streams.errors import ConfigError
from tests.support.airflow import airflow_environment
from tests.support.docs.how_to_pages import Follower, command_lines, follower
from tests.support.docs.orders_application import write_orders
from tests.support.docs.snippets import Snippets
from tests.unit.docs.test_how_to_dags import dag_of

# Before the first module of the Airflow side is imported.
airflow_environment.prepare()


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Follower:
    found = follower(tmp_path, monkeypatch)
    write_orders(found)
    return found


def connected(text: str) -> dict[str, str]:
    """Return the client settings of a connection that is given as JSON, as operators read it."""
    from airflow.sdk import Connection

    from airflow_kstreams.hooks.kafka import checked_settings, settings_in

    connection = Connection.from_json(text, conn_id="kafka_default")
    assert connection.conn_type == "kafka"
    return checked_settings(settings_in(connection), conn_id="kafka_default")


def client_takes(settings: Mapping[str, Any]) -> None:
    """Make a client of the client library with settings, but for the address: it looks up no name."""
    ours = {name: value for name, value in settings.items() if not name.startswith("schema.registry")}
    AdminClient({**ours, "bootstrap.servers": "127.0.0.1:1", "log_level": 0})


@pytest.mark.snippets("docs/how-to/confluent-cloud.md")
def test_settings_of_the_page_on_confluent_cloud_are_accepted(reader: Follower, snippets: Snippets) -> None:
    client_takes(connected(snippets.take("json").code))
    listed = reader.follow(snippets.take("shell").code)
    for name in ("orders-metadata", "orders-totals-changelog", "transactional"):
        assert name in listed.lower()


@pytest.mark.snippets("docs/how-to/event-hubs.md")
def test_settings_of_the_page_on_event_hubs_are_accepted(reader: Follower, snippets: Snippets) -> None:
    settings = connected(snippets.take("json").code)
    assert settings["sasl.username"] == "$ConnectionString"
    client_takes(settings)
    assert "orders-totals-repartition" in reader.follow(snippets.take("shell").code)


@pytest.mark.snippets("docs/how-to/msk.md")
def test_settings_of_the_page_on_msk_are_accepted(
    tmp_path: Path, snippets: Snippets, monkeypatch: pytest.MonkeyPatch
) -> None:
    client_takes(check_client_settings(json.loads(snippets.take("json").code)))

    expires_ms = (int(time.time()) + 900) * 1_000
    # The signer of AWS, with the function and the form of its answer that it has.
    signer = ModuleType("aws_msk_iam_sasl_signer")
    signer.MSKAuthTokenProvider = ModuleType("MSKAuthTokenProvider")  # type: ignore[attr-defined]
    signer.MSKAuthTokenProvider.generate_auth_token = lambda region: (f"token of {region}", expires_ms)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", signer)
    (tmp_path / "kafka_tokens.py").write_text(snippets.take("python").code)
    monkeypatch.syspath_prepend(str(tmp_path))

    ((_, pair),) = command_lines(snippets.take("shell").code)
    name, _, value = pair.partition("=")
    assert name == "AIRFLOW__KSTREAMS__ALLOWED_CLIENT_SETTINGS"
    settings = json.loads(snippets.take("json").code)
    with pytest.raises(ConfigError, match="'oauth_cb' runs code"):
        check_client_settings(settings)
    client = with_callback(check_client_settings(settings, allowed=AllowedSettings.parse(value)))
    assert client["oauth_cb"]("") == ("token of eu-central-1", expires_ms / 1_000)
    client_takes(client)


@pytest.mark.snippets("docs/how-to/kubernetes.md")
def test_dag_of_the_page_on_kubernetes_has_the_fields_that_there_are(snippets: Snippets) -> None:
    dag = dag_of(snippets.take("python").code)
    run = dag.get_task("run")
    assert (run.upstream_task_ids, run.downstream_task_ids) == ({"begin"}, {"finish"})
    assert run._deploy_mode == "cluster"
    assert run.env_vars == {"KSTREAMS_KAFKA_CONFIG_FILE": "/etc/kafka/kafka.json"}
    assert set(run.conf) == {"spark.kubernetes.container.image", "spark.kubernetes.driver.secrets.kafka"}
