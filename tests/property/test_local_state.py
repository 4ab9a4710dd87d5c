"""A store equals the fold of its changelog, whatever ends its task's attempts came to."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams.state.files.state_folder import LocalFiles
from tests.support.examples import examples
from tests.support.topology.crashing_files import CrashingFiles
from tests.support.topology.task_life import Life

pytestmark = pytest.mark.promise("stores-are-their-changelogs", "local-files-are-checked")

CHANGES = st.dictionaries(st.sampled_from("abcdef"), st.none() | st.integers(0, 9), max_size=6)
ENDS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.sampled_from(["before the commit", "before keeping"]).map(lambda death: {"death": death}),
    st.tuples(st.integers(0, 25), st.booleans()).map(
        lambda crash: {"files": CrashingFiles(crash[0], torn=crash[1])}
    ),
)
#: Something that happens to the machine between two attempts.
EVENTS = st.sampled_from(["nothing", "nothing", "long pause", "clock set back", "checkpoint corrupted"])


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(CHANGES, ENDS, EVENTS), max_size=6))
def test_store_equals_the_fold_of_its_changelog_when_attempts_end_in_any_way(
    attempts: list[tuple[dict[str, Any], dict[str, Any], str]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        life = Life(root=Path(folder))
        for changes, end, event in attempts:
            options = {"files": LocalFiles(), **end}
            life.attempt(changes, **options)
            match event:
                case "long pause":
                    life.now_ms += 10_000
                case "clock set back":
                    life.now_ms -= 5
                case "checkpoint corrupted":
                    for path in Path(folder).rglob("checkpoint"):
                        path.write_bytes(path.read_bytes()[:-1])
        assert life.attempt({"z": 1})
        assert life.attempt({})
        assert life.replayed[-1] == 0
        assert life.folders() == ["0_1"]
