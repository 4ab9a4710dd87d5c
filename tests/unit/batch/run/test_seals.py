"""The list of a run's files is sealed once, with the files into which small ones were merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from airflow_kstreams.batch.protocol.file_list import MergedFile
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.run.tables.merge_plan import Merge
from airflow_kstreams.streams.errors import KafkaClientError, RunError, RunSupersededError
from airflow_kstreams.streams.tables.table_port import FileFacts
from airflow_kstreams.testing.faults import FaultyTables
from tests.support.kafka.in_process import Application
from tests.support.tables.packed_rows import packed_merges
from tests.support.tables.scene import APP, TABLE, Down, Scene, topology

LIST = f"{APP}-table-files"


class Merges:
    """Merges files, and does something before or after.

    :ivar asked: number of files in each merge.
    """

    def __init__(
        self,
        scene: Scene,
        *,
        first: Callable[[], object] = lambda: None,
        change: Callable[[FileFacts], FileFacts] = lambda file: file,
    ) -> None:
        self._make, self._first, self._change = packed_merges(scene.tables), first, change
        self.asked: list[int] = []

    def __call__(self, slice_: Slice, merges: Sequence[Merge]) -> list[FileFacts]:
        self.asked += [len(merge.files) for merge in merges]
        self._first()
        return [self._change(file) for file in self._make(slice_, merges)]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def application(scene: Scene, **options: Any) -> Application:
    """An application whose tasks commit, and so close a file, after each record."""
    app = scene.application(topology(**options))
    app.settings = {"commit.every.records": 1}
    return app


def processed(scene: Scene, app: Application, run_id: str = "r1") -> Slice:
    for _ in range(3):
        scene.send()
    slice_ = app.begin(run_id)
    app.tasks(slice_)
    return slice_


def names(scene: Scene) -> list[str]:
    return sorted(path.rpartition("/")[2].partition("-")[0] for path in scene.tables.state(TABLE).files)


def test_run_adds_one_merged_file_when_its_driver_merges(scene: Scene) -> None:
    app = application(scene)
    slice_ = processed(scene, app)
    app.make_merges = merges = Merges(scene)
    app.seal(slice_)
    assert len(scene.tables.stored) == 4
    app.seal(slice_, (0, 10))
    summary = app.finish("r1")
    assert (merges.asked, names(scene), scene.rows()) == ([3], ["merged"], scene.sent)
    assert (summary.tables[TABLE].rows, summary.tables[TABLE].files) == (3, 1)
    assert len(scene.tables.stored) == 1


def test_next_run_begins_behind_the_merged_files(scene: Scene) -> None:
    app = application(scene)
    app.make_merges = merges = Merges(scene)
    for run_id in ("r1", "r2", "r3"):
        app.seal(processed(scene, app, run_id))
        app.finish(run_id)
    assert (merges.asked, names(scene), scene.rows()) == ([3, 3, 3], ["merged"] * 3, sorted(scene.sent))


def test_nothing_is_merged_when_finish_seals_or_the_table_says_so(scene: Scene) -> None:
    app = application(scene)
    app.make_merges = merges = Merges(scene)
    processed(scene, app)
    app.finish("r1")
    unmerged = application(scene, merge=False)
    unmerged.make_merges = merges
    unmerged.seal(processed(scene, unmerged, "r2"))
    unmerged.finish("r2")
    assert (merges.asked, len(names(scene)), scene.rows()) == ([], 6, sorted(scene.sent))


def test_run_lands_with_the_files_that_it_has_when_they_cannot_be_merged(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    app = application(scene)
    slice_ = processed(scene, app)
    app.make_merges = packed_merges(FaultyTables(scene.tables, Down("files.create")))
    app.seal(slice_)
    app.finish("r1")
    assert "its small files are not merged: no answer" in caplog.text
    assert (len(names(scene)), scene.rows()) == (3, scene.sent)


@pytest.mark.parametrize("wrong", [{"rows": 2}, {"partition": ("a",)}])
def test_merged_file_with_other_rows_or_another_partition_is_not_taken(
    scene: Scene, wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    app = application(scene)
    slice_ = processed(scene, app)
    app.make_merges = Merges(scene, change=lambda file: msgspec.structs.replace(file, **wrong))
    app.seal(slice_)
    app.finish("r1")
    assert "a merged file has the rows and the partition of its files" in caplog.text
    assert (len(names(scene)), scene.rows()) == (3, scene.sent)


def test_seal_of_the_driver_that_claims_the_run_counts_when_another_one_merges_too(scene: Scene) -> None:
    app, second = application(scene), application(scene)
    slice_ = processed(scene, app)
    second.make_merges = Merges(scene)
    app.make_merges = Merges(scene, first=lambda: second.seal(slice_, (0, 10)))
    with pytest.raises(RunSupersededError):
        app.seal(slice_)
    second.finish("r1")
    assert (names(scene), scene.rows()) == (["merged"], scene.sent)
    # What the first one merged, no list names.
    assert len(scene.tables.stored) == 2


class Died(BaseException):
    """The driver's process has ended."""


def test_finish_seals_what_is_listed_when_the_driver_died_while_it_merged(scene: Scene) -> None:
    app = application(scene)
    slice_ = processed(scene, app)
    made = packed_merges(scene.tables)

    def dies(slice_: Slice, merges: Sequence[Merge]) -> list[FileFacts]:
        made(slice_, merges)
        raise Died

    app.make_merges = dies
    with pytest.raises(Died):
        app.seal(slice_)
    app.finish("r1")
    assert (len(names(scene)), scene.rows()) == (3, scene.sent)
    # The merged file is in no list; it lies where the next look for such files finds it.
    assert len(scene.tables.stored) == 4


class LosesAnswerOfSeal:
    """The seal's transaction comes through, or not, and its answer is lost."""

    def __init__(self, *, comes_through: bool) -> None:
        self._comes_through, self.seals = comes_through, 0
        self._sealing = False

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Make the call, see ``Interceptor``."""
        self._sealing = self._sealing or (
            name == "writer.send_offsets" and any(LIST in str(a) for a in arguments)
        )
        if name == "writer.commit" and self._sealing:
            self._sealing, self.seals = False, self.seals + 1
            if self.seals == 1:
                if self._comes_through:
                    effect()
                raise KafkaClientError("no answer", kafka_code="_TIMED_OUT", retriable_code=True)
        return effect()


@pytest.mark.parametrize("comes_through", [False, True])
def test_driver_looks_for_its_seal_when_the_answer_was_lost(scene: Scene, comes_through: bool) -> None:
    app = application(scene)
    slice_ = processed(scene, app)
    app.make_merges = merges = Merges(scene)
    app.interceptor = loses = LosesAnswerOfSeal(comes_through=comes_through)
    app.seal(slice_)
    assert loses.seals == (1 if comes_through else 2)
    app.finish("r1")
    assert (merges.asked, names(scene), scene.rows()) == ([3], ["merged"], scene.sent)


def named_by_partition(file: FileFacts) -> FileFacts:
    return msgspec.structs.replace(file, path=f"{file.path}?text={file.partition[0]}")


class Spoils:
    """Another run's record stands where the second merged file of a transaction should."""

    def call(self, name: str, client: Any, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Make the call, see ``Interceptor``."""
        if name == "writer.produce" and b"merged" in (arguments[1] or b"") and b"text=b" in arguments[1]:
            topic, value, *others = arguments
            return client.produce(topic, value.replace(b"r1", b"r0"), *others)
        return effect()


def test_finish_says_so_when_merged_files_are_missing(scene: Scene) -> None:
    app = application(scene, partition_by=["text"])
    for text in "abab":
        scene.kafka.append("in", f'{{"text":"{text}"}}'.encode(), b"k")
    slice_ = app.begin("r1")
    app.tasks(slice_)
    app.make_merges = merges = Merges(scene, change=named_by_partition)
    app.interceptor = Spoils()
    app.seal(slice_)
    assert merges.asked == [2, 2]
    app.interceptor = None
    with pytest.raises(RunError, match="2 merged files were sealed, and 1 are there"):
        app.finish("r1")


def test_merged_files_of_a_run_that_was_dropped_are_passed_over(scene: Scene) -> None:
    app = application(scene)
    processed(scene, app)
    other = MergedFile("r0", 1, (0,), FileFacts("memory://gone", 1, 1))
    scene.kafka.append(LIST, msgspec.msgpack.encode(other), TABLE.encode())
    app.finish("r1")
    assert scene.rows() == scene.sent
