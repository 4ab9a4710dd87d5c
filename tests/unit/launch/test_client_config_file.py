"""Files of client settings: nobody forgets one, whatever is killed, and nobody removes one in use."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
from pathlib import Path

import pytest

from airflow_kstreams.launch.client_config_file import client_config_file, remove_left_behind

pytestmark = pytest.mark.promise("no-secret-is-seen", "client-files-are-removed")

CONFIG = {"bootstrap.servers": "h:1", "sasl.password": "secret"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_file_is_for_this_user_only_and_gone_after_the_block(folder: Path) -> None:
    with client_config_file(CONFIG) as made:
        path = Path(made.path)
        assert path.parent == folder
        assert json.loads(path.read_text()) == CONFIG
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(folder.iterdir()) == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(made.lock)


def test_file_in_use_stays_when_others_make_theirs(folder: Path) -> None:
    with client_config_file(CONFIG) as first, client_config_file(CONFIG) as second:
        assert {path.name for path in folder.iterdir()} == {Path(first.path).name, Path(second.path).name}


def test_block_ends_well_when_its_driver_has_removed_the_file() -> None:
    with client_config_file(CONFIG) as made:
        Path(made.path).unlink()


def test_only_files_of_ours_are_removed(folder: Path) -> None:
    kept = folder / "kept"
    kept.write_text("not ours")
    (folder / "kstreams-kafka-link.json").symlink_to(kept)
    (folder / "kstreams-kafka-other.txt").write_text("")
    os.mkfifo(folder / "kstreams-kafka-pipe.json")
    (folder / "kstreams-kafka-left.json").write_text("{}")

    remove_left_behind()

    assert {path.name for path in folder.iterdir()} == {
        "kept",
        "kstreams-kafka-link.json",
        "kstreams-kafka-other.txt",
        "kstreams-kafka-pipe.json",
    }


def test_file_is_made_again_when_it_was_removed_before_it_was_locked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock
    removed: list[str] = []

    def flock(descriptor: int, how: int) -> None:
        if not removed:
            (path,) = folder.iterdir()
            path.unlink()
            removed.append(path.name)
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with client_config_file(CONFIG) as made:
        assert Path(made.path).exists()
        assert Path(made.path).name not in removed
