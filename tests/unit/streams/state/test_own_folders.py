"""Local state on a machine with other users: links, folders of others, and folders that they may write."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from airflow_kstreams.streams.errors import ConfigError
from tests.support.topology.task_life import Life

pytestmark = pytest.mark.promise("state-folders-are-this-users")

_HOME = "app-state/0_1"


@pytest.fixture
def life(tmp_path: Path) -> Life:
    life = Life(root=tmp_path / "state")
    assert life.attempt({"a": 1, "b": 2, "c": 3})
    return life


def precious(tmp_path: Path) -> Path:
    """Return a folder of the same user with a file that no task may touch."""
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "file").write_text("kept")
    return folder


@pytest.mark.parametrize("link", ["", "app-state", _HOME, f"{_HOME}/totals-store", f"{_HOME}/other"])
def test_nothing_behind_a_link_is_read_or_removed(life: Life, tmp_path: Path, link: str) -> None:
    target, place = precious(tmp_path), life.root / link
    if place.exists():
        place.rename(tmp_path / "away")
    place.symlink_to(target)

    with pytest.raises(ConfigError) as refused:
        life.attempt({"d": 4})

    assert f"{place} is a link to {target}" in refused.value.cause
    assert [path.name for path in target.iterdir()] == ["file"]
    assert place.is_symlink()


@pytest.mark.parametrize("kind", ["lock", "folder"])
def test_nothing_behind_a_link_is_removed_when_it_has_the_name_of_a_dead_attempt(
    life: Life, tmp_path: Path, kind: str
) -> None:
    target = precious(tmp_path)
    if kind == "lock":
        (life.root / f"{_HOME}.dead.lock").symlink_to(target / "file")
    else:
        (life.root / f"{_HOME}.dead.lock").write_text("")
        (life.root / f"{_HOME}.dead").symlink_to(target)
    with pytest.raises(ConfigError, match="is a link to"):
        life.attempt({"d": 4})
    assert (target / "file").read_text() == "kept"


def test_links_in_the_folder_of_a_dead_attempt_are_removed_and_not_followed(
    life: Life, tmp_path: Path
) -> None:
    target = precious(tmp_path)
    dead = life.root / f"{_HOME}.dead"
    dead.mkdir()
    (dead / "link").symlink_to(target)
    dead.with_name(f"{dead.name}.lock").write_text("")
    assert life.attempt({"d": 4})
    assert life.folders() == ["0_1"]
    assert (target / "file").read_text() == "kept"


@pytest.mark.parametrize("place", ["", "app-state", _HOME, f"{_HOME}/totals-store"])
@pytest.mark.parametrize("mode", [0o770, 0o757, 0o777])
def test_state_that_others_could_exchange_is_refused(life: Life, place: str, mode: int) -> None:
    (life.root / place).chmod(mode)
    with pytest.raises(ConfigError, match=rf"may be written by other users \(mode {mode:04o}\)"):
        life.attempt({"d": 4})
    assert life.folders() == ["0_1"]


@pytest.mark.parametrize("place", ["app-state", _HOME, f"{_HOME}/checkpoint"])
def test_state_of_another_user_is_refused(life: Life, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, lstat = life.root / place, Path.lstat

    def of_another(path: Path) -> os.stat_result:
        status = lstat(path)
        return os.stat_result((*status[:4], 4711, *status[5:])) if path == found else status

    monkeypatch.setattr(Path, "lstat", of_another)
    with pytest.raises(
        ConfigError, match=rf"{place} belongs to user 4711, and the task runs as {os.geteuid()}"
    ):
        life.attempt({"d": 4})


@pytest.mark.parametrize(
    ("owner", "mode", "refused"),
    [
        (0, 0o755, False),
        (0, 0o1777, False),
        (0, 0o777, True),
        (4711, 0o755, True),
        (4711, 0o1777, True),
    ],
)
def test_state_dir_may_be_roots_or_sticky(
    life: Life, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, refused: bool
) -> None:
    lstat = Path.lstat

    def of_another(path: Path) -> os.stat_result:
        status = lstat(path)
        return (
            os.stat_result((mode | stat.S_IFDIR, *status[1:4], owner, *status[5:]))
            if path == life.root
            else status
        )

    monkeypatch.setattr(Path, "lstat", of_another)
    if refused:
        with pytest.raises(ConfigError):
            life.attempt({"d": 4})
    else:
        assert life.attempt({"d": 4})


def test_folders_are_for_their_user_alone_whatever_the_umask_says(tmp_path: Path) -> None:
    life = Life(root=tmp_path / "new" / "state")
    umask = os.umask(0)
    try:
        assert life.attempt({"a": 1})
    finally:
        os.umask(umask)
    folders = [tmp_path / "new", *(path for path in (tmp_path / "new").rglob("*") if path.is_dir())]
    assert len(folders) == 5
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}
    assert life.attempt({})


@pytest.mark.remedy("state_folder._refuse")
@pytest.mark.parametrize("way", ["mend it", "a new folder"])
@pytest.mark.parametrize("fault", ["open", "link", "linked state.dir"])
def test_state_is_used_again_when_the_refusal_is_followed(
    life: Life, tmp_path: Path, fault: str, way: str
) -> None:
    target = precious(tmp_path)
    if fault == "open":
        (life.root / "app-state").chmod(0o777)
    elif fault == "link":
        (life.root / f"{_HOME}/link").symlink_to(target)
    else:
        life.root = tmp_path / "linked"
        life.root.symlink_to(tmp_path / "state")
    with pytest.raises(ConfigError) as refused:
        life.attempt({"d": 4})

    told, _, otherwise = refused.value.fix.removeprefix("if all that lies there is yours: ").partition(
        "; else "
    )
    assert otherwise.startswith("let state.dir name a new folder")
    if way == "a new folder":
        life.root = life.root / "mine"
    elif told.startswith("let state.dir name "):
        life.root = Path(told.split()[3])
    else:
        command, *arguments = told.split()
        assert command in ("rm", "chmod")
        path = Path(arguments[-1])
        path.unlink() if command == "rm" else path.chmod(path.stat().st_mode & ~0o022)

    assert life.attempt({"d": 4})
    assert life.replayed[-1] == (0 if way == "mend it" else 3)
    assert (target / "file").read_text() == "kept"
