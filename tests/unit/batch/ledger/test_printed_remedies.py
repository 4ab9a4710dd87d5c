"""A ledger that was refused is mended as the error says, and the next run counts on from there."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.batch.ledger import fold
from airflow_kstreams.batch.ledger.fold import CHECKPOINT_KEY
from airflow_kstreams.batch.protocol.checked_reading import UnreadableError
from airflow_kstreams.batch.protocol.slice import metadata_records
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from tests.unit.batch.run.test_printed_remedies import Scene

LEDGER = "app-runs"


@pytest.mark.remedy("fold.check_run_id")
@pytest.mark.parametrize("run_id", ["", "__last", "r" * 5_000], ids=["empty", "reserved", "long"])
def test_run_is_made_under_an_id_that_the_ledger_takes(run_id: str) -> None:
    scene = Scene()
    scene.send("a")
    with pytest.raises(ConfigError, match="cannot be used"):
        scene.app.run(run_id)
    scene.app.run("last")
    assert scene.counted == scene.sent


@pytest.mark.remedy("fold.decode")
def test_next_run_counts_on_when_the_version_that_wrote_the_ledger_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def older(value: bytes, kind: Any) -> Any:
        raise UnreadableError("a value that came with a later version")

    scene = Scene()
    scene.send("a", "b")
    scene.app.run("first")
    scene.send("a")
    with monkeypatch.context() as installed:
        installed.setattr(fold, "read_json", older)
        with pytest.raises(KafkaClientError, match="is not a ledger record that this version reads"):
            scene.app.run("second")
    scene.app.run("second")
    assert scene.counted == scene.sent


@pytest.mark.remedy("fold._refuse_lost_checkpoint")
def test_next_run_counts_on_when_the_checkpoint_was_restored() -> None:
    scene = Scene()
    scene.send("a", "b")
    scene.app.run("first")
    kept = [record for record in scene.kafka.records(LEDGER) if record.key() == CHECKPOINT_KEY.encode()][-1]
    scene.kafka.append(LEDGER, None, kept.key())
    scene.kafka.compact(LEDGER)
    scene.send("a")
    with pytest.raises(KafkaClientError, match="checkpoint of app-runs is gone"):
        scene.app.run("second")
    scene.kafka.append(LEDGER, kept.value(), kept.key(), headers=kept.headers())
    scene.app.run("second")
    assert scene.counted == scene.sent


@pytest.mark.remedy("fold.decode_checkpoint")
def test_next_run_counts_on_when_the_pieces_of_the_checkpoint_were_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata_records, "PIECE_BYTES", 200)
    scene = Scene()
    scene.send("a", "b")
    scene.app.run("first")
    kept = {
        record.key(): record
        for record in scene.kafka.records(LEDGER)
        if (record.key() or b"").startswith(CHECKPOINT_KEY.encode()) and record.value() is not None
    }
    assert len(kept) > 2
    scene.kafka.append(LEDGER, b"another", f"{CHECKPOINT_KEY}#0".encode())
    scene.kafka.compact(LEDGER)
    scene.send("a")
    with pytest.raises(KafkaClientError, match="pieces of the checkpoint are missing"):
        scene.app.run("second")
    for record in sorted(kept.values(), key=lambda record: record.offset()):
        scene.kafka.append(LEDGER, record.value(), record.key(), headers=record.headers())
    scene.app.run("second")
    assert scene.counted == scene.sent
