"""What a task finds of its local state after a clean end, and after a crash at every step."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from airflow_kstreams.streams.errors import StateStoreError
from airflow_kstreams.streams.records.record_context import TaskRecordContext
from airflow_kstreams.streams.state.files.local_state import LocalState
from airflow_kstreams.streams.state.files.state_folder import LocalFiles, StateFolder
from airflow_kstreams.streams.state.stores.rocksdb.rocksdb import RocksDBKeyValueStore
from tests.support.crash import Crash
from tests.support.topology.crashing_files import CrashingFiles, let_go_of_locks
from tests.support.topology.records import FakeRecord
from tests.support.topology.task_life import OWNER, RETENTION_MS, SPEC, Life

pytestmark = pytest.mark.promise("local-files-are-checked")


@pytest.fixture
def life(tmp_path: Path) -> Life:
    life = Life(root=tmp_path)
    assert life.attempt({"a": 1, "b": 2, "c": 3})
    return life


def home(life: Life) -> Path:
    return life.root / "app-state" / "0_1"


def test_nothing_is_replayed_when_the_last_end_was_clean(life: Life) -> None:
    assert life.attempt({"a": None, "d": 4})
    assert life.attempt({})
    assert life.replayed == [0, 0, 0]
    assert life.folders() == ["0_1"]


def test_only_what_came_later_is_replayed_when_another_machine_ran_meanwhile(life: Life) -> None:
    life.log.append(FakeRecord(at=3, key_bytes=b"a", value_bytes=None))
    life.log.append(FakeRecord(at=4, key_bytes=b"x", value_bytes=b"9"))
    assert life.attempt({})
    assert life.replayed == [0, 2]


@pytest.mark.parametrize("torn", [False, True])
def test_store_is_the_fold_of_its_changelog_when_an_attempt_died_at_any_step(
    tmp_path: Path, torn: bool
) -> None:
    for crash_at in itertools.count():
        life = Life(root=tmp_path / str(crash_at))
        assert life.attempt({"a": 1, "b": 2, "c": 3})
        survived = life.attempt({"a": None, "b": 5, "d": 6}, CrashingFiles(crash_at, torn=torn))
        assert life.attempt({"e": 7})
        assert life.attempt({})
        assert life.replayed[-1] == 0
        assert life.folders() == ["0_1"], "dead attempts leave nothing behind"
        if survived:
            break
    assert crash_at >= 11, "an attempt has at least so many steps"


@pytest.mark.parametrize("torn", [False, True])
def test_store_is_the_fold_of_its_changelog_when_the_clearing_attempt_dies_too(
    tmp_path: Path, torn: bool
) -> None:
    for crash_at in itertools.count():
        life = Life(root=tmp_path / str(crash_at))
        assert life.attempt({"a": 1, "b": 2})
        assert not life.attempt({"a": 9, "b": None}, death="before the commit")
        survived = life.attempt({"c": 3}, CrashingFiles(crash_at, torn=torn))
        assert life.attempt({})
        assert life.folders() == ["0_1"]
        if survived:
            break
    assert crash_at >= 11


@pytest.mark.parametrize("death", ["before the commit", "before keeping"])
def test_everything_is_replayed_when_an_attempt_died_with_changes_in_its_files(
    life: Life, death: str
) -> None:
    assert not life.attempt({"a": None, "b": 7, "z": 8}, death=death)  # type: ignore[arg-type]
    assert life.attempt({})
    assert life.replayed[-1] == len(life.log)


@pytest.mark.parametrize("flaw", ["empty", "cut", "bit", "another version", "missing"])
def test_everything_is_replayed_when_the_checkpoint_is_corrupt(life: Life, flaw: str) -> None:
    path = home(life) / "checkpoint"
    data = path.read_bytes()
    match flaw:
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(data[:-3])
        case "bit":
            path.write_bytes(data.replace(b'"offset":3', b'"offset":2'))
        case "another version":
            path.write_bytes(data.replace(b'"version":1', b'"version":0'))
        case "missing":
            path.unlink()
    assert life.attempt({})
    assert life.replayed == [0, 3]


def test_everything_is_replayed_when_the_topic_is_another_one(life: Life) -> None:
    life.topic_id = "id-2"
    assert life.attempt({})
    assert life.replayed == [0, 3]


def test_everything_is_replayed_when_the_offset_is_below_the_log(life: Life) -> None:
    life.log_start = 4
    assert life.attempt({})
    assert life.replayed == [0, 3]


def test_everything_is_replayed_when_the_log_lost_its_end(life: Life) -> None:
    del life.log[2:]
    assert life.attempt({})
    assert life.replayed == [0, 2]


@pytest.mark.parametrize(
    ("now_ms", "replayed"), [(RETENTION_MS // 2 - 1, 0), (RETENTION_MS // 2, 3), (-1, 3)]
)
def test_age_decides_when_tombstones_may_be_gone(life: Life, now_ms: int, replayed: int) -> None:
    life.now_ms = now_ms
    assert life.attempt({})
    assert life.replayed == [0, replayed]


def test_everything_is_replayed_when_the_files_are_damaged(life: Life) -> None:
    for manifest in (home(life) / "totals-store").glob("MANIFEST-*"):
        manifest.write_bytes(b"junk")
    assert life.attempt({})
    assert life.attempt({})
    assert life.replayed == [0, 3, 0]


def test_everything_is_replayed_when_a_table_file_is_missing(life: Life) -> None:
    for table in (home(life) / "totals-store").glob("*.sst"):
        table.unlink()
    assert life.attempt({})
    assert life.replayed == [0, 3]


def test_checkpoint_is_gone_when_an_attempt_works_on_the_files(life: Life) -> None:
    assert not life.attempt({"a": 2}, death="before keeping")
    assert list(life.root.rglob("totals-store"))
    assert not list(life.root.rglob("checkpoint"))


def test_two_attempts_work_apart_when_both_are_alive(tmp_path: Path) -> None:
    files = LocalFiles()
    older = StateFolder.claim(tmp_path / "0_1", files)
    newer = StateFolder.claim(tmp_path / "0_1", files)
    neighbour = StateFolder.claim(tmp_path / "0_11", files)
    (older.path / "mark").write_text("older")
    (newer.path / "mark").write_text("newer")
    assert newer.give_back()
    assert older.path.is_dir(), "a living attempt keeps its files"
    assert not older.give_back(), "the home that a later attempt left stays"
    assert (tmp_path / "0_1" / "mark").read_text() == "newer"
    neighbour.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["0_1"]


def test_folder_of_a_living_attempt_stays_when_a_dead_ones_is_swept(tmp_path: Path) -> None:
    files = LocalFiles()
    dead = StateFolder.claim(tmp_path / "0_1", files)
    let_go_of_locks(tmp_path)
    living = StateFolder.claim(tmp_path / "0_1", files)
    assert not dead.path.exists()
    third = StateFolder.claim(tmp_path / "0_1", files)
    assert living.path.is_dir()
    living.discard()
    third.discard()
    assert list(tmp_path.iterdir()) == []


def test_setting_is_named_when_the_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "app-state").write_text("not a folder")
    store = RocksDBKeyValueStore(SPEC, TaskRecordContext())
    state = LocalState(tmp_path, OWNER, {"totals": store})
    with pytest.raises(StateStoreError, match="0_1") as caught:
        state.claim()
    assert "state.dir" in caught.value.fix


def test_lock_is_let_go_when_the_claim_fails(tmp_path: Path) -> None:
    class FullDisk(LocalFiles):
        def rename(self, source: Path, target: Path) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        StateFolder.claim(tmp_path / "0_1", FullDisk())
    assert list(tmp_path.iterdir()) == []


def test_files_are_left_to_the_next_attempt_when_they_cannot_be_removed(tmp_path: Path) -> None:
    class Stubborn(LocalFiles):
        def remove_tree(self, path: Path) -> None:
            raise OSError(5, "Input/output error")

    store = RocksDBKeyValueStore(SPEC, TaskRecordContext())
    state = LocalState(tmp_path, OWNER, {"totals": store}, Stubborn())
    state.claim()
    state.open({})
    state.discard()
    let_go_of_locks(tmp_path)
    assert len(list((tmp_path / "app-state").iterdir())) == 2
    StateFolder.claim(tmp_path / "app-state" / "0_1", LocalFiles()).discard()
    assert list((tmp_path / "app-state").iterdir()) == []


def test_nothing_is_touched_when_the_task_has_no_persistent_store(tmp_path: Path) -> None:
    state = LocalState(tmp_path, OWNER, {}, CrashingFiles(0))
    assert state.claim() is None
    assert state.open({}) == {}
    state.discard()
    assert list(tmp_path.iterdir()) == []


def test_crashing_files_die_at_every_step_when_told() -> None:
    with pytest.raises(Crash):
        CrashingFiles(0).make_folder(Path("/nowhere"))
