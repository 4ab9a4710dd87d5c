"""The checkout of another revision that ``dev/bench --against`` measures with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dev.benchmarks.against import RevisionError, earlier
from dev.benchmarks.hosts import HOSTS


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two revisions of one file."""
    folder = tmp_path / "repository"
    folder.mkdir()
    _git(folder, "init", "--quiet")
    for text in ("before", "after"):
        (folder / "engine.txt").write_text(text)
        _git(folder, "add", "engine.txt")
        _git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", text)
    return folder


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def test_hosts_of_the_earlier_engine_run_from_a_checkout_that_does_not_stay(
    repository: Path, tmp_path: Path
) -> None:
    with earlier("HEAD~1", tmp_path, repository=repository):
        checkout = tmp_path / "earlier"
        assert (checkout / "engine.txt").read_text() == "before"
        for kind in ("engine-earlier", "airflow-earlier"):
            assert f"PYTHONPATH={checkout}" in HOSTS[kind](tmp_path)

    assert not checkout.exists()
    assert str(checkout) not in _git(repository, "worktree", "list")


def test_revision_is_named_when_git_does_not_know_it(repository: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(RevisionError, match=r"cannot check out 'no-such-revision': .*invalid reference"),
        earlier("no-such-revision", tmp_path, repository=repository),
    ):
        pass
