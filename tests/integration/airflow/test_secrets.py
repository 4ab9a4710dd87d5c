"""Secrets stay secret: a canary in every secret setting, a run that succeeds, runs that fail, and a look at
everything that they left or showed on the way."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.batch.protocol.needed_permissions import run_permissions
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from dev.servers.secured import SecuredBroker
from tests.integration.airflow.word_totals import WordTotals, totals
from tests.support.airflow.airflow_environment import prepare
from tests.support.kafka import super_user
from tests.support.kafka.access_control import Acls
from tests.support.spark.leak_watch import LeakWatch

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.promise("no-secret-is-seen")]

CONNECTION = "kafka_secured"
_DEBUG = """
import logging
logging.basicConfig(level=logging.DEBUG)
logging.getLogger().setLevel(logging.DEBUG)
"""


kafka, kafka_admin, acls = super_user.kafka, super_user.kafka_admin, super_user.acls


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where every temporary file goes, and Spark's event log."""
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setenv("TMPDIR", str(made))
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


@pytest.fixture
def secured_extra(secured_broker: SecuredBroker) -> dict[str, str]:
    """The extra of a connection with a canary in every secret setting that may stand beside the others."""
    certificate = secured_broker.client_certificate("carol")
    return {
        **secured_broker.scram_config("carol"),
        "ssl.key.pem": certificate.locked_key("canary-key-password"),
        "ssl.key.password": "canary-key-password",
        "ssl.certificate.pem": certificate.certificate,
        "ssl.keystore.password": "canary-keystore-password",
        "sasl.oauthbearer.config": "canary-oauthbearer-config",
        "sasl.oauthbearer.client.secret": "canary-oauthbearer-client-secret",
        "sasl.oauthbearer.extensions": "canary=oauthbearer-extensions",
        "sasl.oauthbearer.assertion.private.key.passphrase": "canary-passphrase",
        "schema.registry.url": "https://registry.example",
        "schema.registry.basic.auth.user.info": "alice:canary-user-info",
        "schema.registry.bearer.auth.token": "canary-bearer-token",
        "schema.registry.bearer.auth.client.secret": "canary-bearer-client-secret",
        "schema.registry.ssl.key.password": "canary-registry-key-password",
        "schema.registry.proxy": "http://proxy:canary-proxy-password@proxy.example",
        "debug": "security,broker,conf",
    }


def canaries(extra: dict[str, str]) -> dict[str, str]:
    """What must not be seen, by setting; of a key in PEM a line of its middle."""
    shown = (
        "bootstrap.servers",
        "security.protocol",
        "sasl.mechanism",
        "sasl.username",
        "ssl.ca.location",
        "debug",
    )
    found = {}
    for name, value in extra.items():
        if name not in (*shown, "schema.registry.url", "ssl.certificate.pem"):
            found[name] = value.splitlines()[2] if "\n" in value else value
    return found


@pytest.fixture
def define(airflow_database: Path) -> Iterator[Callable[[dict[str, str]], None]]:
    """``define(extra)`` keeps the connection in Airflow's database, as its form does."""
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    def drop() -> None:
        with create_session() as session:
            session.query(Connection).filter(Connection.conn_id == CONNECTION).delete()

    def defined(extra: dict[str, str]) -> None:
        drop()
        with create_session() as session:
            session.add(Connection(conn_id=CONNECTION, conn_type="kafka", extra=json.dumps(extra)))

    yield defined
    drop()


def test_no_secret_is_seen_when_runs_succeed_and_fail_over_tls_with_a_login(
    secured_broker: SecuredBroker,
    secured_extra: dict[str, str],
    words: WordTotals,
    define: Callable[[dict[str, str]], None],
    run_dag: Callable[..., Any],
    consume_all: Callable[..., Any],
    produce: Callable[..., None],
    acls: Acls,
    folder: Path,
    free_port: int,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "airflow_kstreams")
    words.file.write_text(_DEBUG + words.file.read_text(encoding="utf-8"), encoding="utf-8")
    plan = ApplicationFile.read(words.file).topology().plan(words.application_id)
    acls.allow(run_permissions(plan, ApplicationSettings.parse(words.application_id)))
    conf = {**words.conf, "ui_port": str(free_port), "folder": str(folder)}
    hidden = canaries(secured_extra)
    ui = f"http://127.0.0.1:{free_port}"
    with LeakWatch(hidden, folder=folder, ui=ui) as watch:
        define(secured_extra)
        words.publish(200)
        passed = run_dag("increments_watched", conf)
        assert passed.state == "success", passed.error_text()
        assert totals(consume_all(words.sink)) == words.expected

        produce(words.source, [("key", b"a record that is no JSON")])
        bad_record = run_dag("increments_watched", conf)
        wrong_password = "canary-wrong-password"
        define({**secured_extra, "sasl.password": wrong_password})
        refused = run_dag("increments_watched", conf)

    texts = capfd.readouterr()
    assert "RecordError" in bad_record.error_text()
    assert "refused the credentials" in refused.error_text()
    hidden["wrong password"] = wrong_password
    watch.found_in(texts.out, "stdout, which has the log of tasks, driver and executors")
    watch.found_in(texts.err, "stderr")
    watch.found_in(caplog.text, "the log")
    for outcome in (passed, bad_record, refused):
        watch.found_in(outcome.error_text() + repr(outcome), "errors and XCom")
    watch.in_files(folder, prepare())
    assert watch.leaks == set()
    # It has looked: at the driver's JVM and Python, its file, Spark's pages, the client's own lines at DEBUG.
    assert {"java", "python"} <= {name.rstrip("0123456789.") for name in watch.processes}
    assert set(watch.modes.values()) == {0o600}
    assert "environment" in watch.pages
    assert any(
        record.name.endswith("spark_output") and record.levelno == logging.DEBUG for record in caplog.records
    )
    assert any(folder.glob("*")), "Spark's event log"
    assert not any(folder.glob("kstreams-kafka-*")), "files of client settings were left behind"
