"""A backfill writes the tables that it is allowed to write, and leaves no mark in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pytest

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.batch.run.tables.replacing import ReplacedInterval
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import TableRefusedError, TopologyError
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.tables.specs import IcebergTable
from airflow_kstreams.streams.tables.table_port import FileFacts
from airflow_kstreams.streams.topology.outputs import with_outputs
from airflow_kstreams.testing.faults import FaultyTables
from airflow_kstreams.testing.in_memory_tables import InMemoryTables
from tests.support.kafka.in_process import Application
from tests.support.remedies import walked
from tests.support.tables.packed_rows import packing, unpacked
from tests.support.tables.scene import APP, TABLE, Down, Scene, topology
from tests.support.tables.sending import send_to_table

ID, OTHER = f"{APP}-backfill-1", "lake.again"
pytestmark = pytest.mark.promise("rows-land-once")
INTERVAL_MS = (0, 10)


def backfill(
    scene: Scene, tables: InMemoryTables | FaultyTables | None = None, **settings: str
) -> RunSummary:
    given: Mapping[str, object] = {
        "autostop.at": "interval",
        "backfill.of": APP,
        "backfill.runs": "one",
        "output.topics": f"table:{TABLE}={OTHER}",
        **{name.replace("_", "."): text for name, text in settings.items()},
    }
    application = Application(
        application_id=ID,
        topology=with_outputs(topology(), ApplicationSettings.parse(ID, given)),
        settings=given,
        on=scene.kafka,
        clock=scene.clock,
        tables=tables or scene.tables,
        open_rows=packing(scene.tables),
    )
    return application.run("again", interval_ms=INTERVAL_MS)


@pytest.fixture
def scene() -> Scene:
    """Two records of the interval that the live application has processed, and one behind it."""
    scene = Scene()
    for at in (1, 2, 20):
        text = f"line {at}"
        scene.sent.append(text)
        scene.kafka.append("in", f'{{"text":"{text}"}}'.encode(), b"k", timestamp_ms=at)
    scene.application().run("live")
    return scene


def rows(scene: Scene, table: str) -> list[str]:
    return sorted(row[0] for row in scene.tables.rows(table, unpacked))


def test_backfill_writes_the_named_table_alone_and_leaves_no_mark(scene: Scene) -> None:
    before = scene.tables.state(TABLE)
    done = backfill(scene)
    assert done.tables[TABLE].location == OTHER
    assert rows(scene, OTHER) == ["line 1", "line 2"]
    assert scene.tables.state(OTHER).marks == {}
    assert scene.tables.state(TABLE) is before


def test_backfill_may_add_to_the_live_table_that_it_names(scene: Scene) -> None:
    backfill(scene, output_topics=f"table:{TABLE}")
    assert rows(scene, TABLE) == sorted([*scene.sent, "line 1", "line 2"])
    assert list(scene.tables.state(TABLE).marks) == [(APP, TABLE)], "that of the live application stays"
    scene.run("next")


def test_runs_in_order_keep_their_mark(scene: Scene) -> None:
    backfill(scene, backfill_runs="in_order")
    assert scene.tables.state(OTHER).marks == {(ID, TABLE): 1}


def test_mark_stays_when_the_catalogue_does_not_answer_any_more(scene: Scene) -> None:
    backfill(scene, FaultyTables(scene.tables, Down("table.drop_mark")))
    assert rows(scene, OTHER) == ["line 1", "line 2"]
    assert scene.tables.state(OTHER).marks == {(ID, TABLE): 1}


@pytest.mark.promise("backfill-outputs-are-named")
@pytest.mark.parametrize(
    ("outputs", "refused"),
    [
        walked("outputs._refuse_tables: name one for each", "", "no table is named to take its place"),
        walked(
            "outputs._refuse_tables: correct the name",
            f"table:{TABLE}={OTHER},table:lake.line=lake.x",
            "names 'table:lake.line', and the topology writes to 'table:lake.lines'",
        ),
    ],
)
def test_backfill_is_refused_when_its_tables_are_not_named(scene: Scene, outputs: str, refused: str) -> None:
    with pytest.raises(TopologyError, match=refused) as error:
        backfill(scene, output_topics=outputs)
    proposed = error.value.fix.rpartition("output.topics=")[2]
    backfill(scene, output_topics=proposed if "=" in proposed else f"table:{TABLE}={OTHER}")
    assert rows(scene, TABLE) == sorted(scene.sent)


# replace="interval"

DAY_MS = 86_400_000
DATED = "lake.dated"


@dataclass
class Dated:
    text: str
    day: date


class Days:
    """A live application whose table is partitioned by day, and the backfill of the second day."""

    def __init__(self, partition_by: Sequence[str] = ("day",)) -> None:
        self.scene = Scene()
        builder = KStreamBuilder(default_key_serde=serdes.string())
        lines = builder.stream("in", value_serde=serdes.json(Dated))
        send_to_table(lines, IcebergTable(DATED, row=Dated, partition_by=partition_by))
        self.topology = builder.build()
        for number, at_ms in enumerate((0, DAY_MS, DAY_MS + 1, 2 * DAY_MS)):
            self.send(f"line {number}", at_ms)
        self.scene.application(self.topology).run("live")

    def send(self, text: str, at_ms: int, day: str = "") -> None:
        shown = day or datetime.fromtimestamp(at_ms / 1000, tz=UTC).date().isoformat()
        value = f'{{"text":"{text}","day":"{shown}"}}'.encode()
        self.scene.kafka.append("in", value, b"k", timestamp_ms=at_ms)

    def rows(self) -> list[str]:
        return rows(self.scene, DATED)

    def application(self, application_id: str = ID, **settings: str) -> Application:
        given = {
            "autostop.at": "interval",
            "backfill.of": APP,
            "backfill.runs": "one",
            "backfill.replace": "interval",
            "output.topics": f"table:{DATED}",
            **{name.replace("_", "."): text for name, text in settings.items()},
        }
        return Application(
            application_id=application_id,
            topology=with_outputs(self.topology, ApplicationSettings.parse(application_id, given)),
            settings=given,
            on=self.scene.kafka,
            clock=self.scene.clock,
            tables=self.scene.tables,
            open_rows=packing(self.scene.tables),
        )

    def backfill(self, start_ms: int = DAY_MS, stop_ms: int = 2 * DAY_MS) -> RunSummary:
        return self.application().run("again", interval_ms=(start_ms, stop_ms))


def test_backfill_replaces_what_the_table_has_of_its_interval_in_one_snapshot() -> None:
    days = Days()
    before = len(list(days.scene.tables.state(DATED).line()))
    days.send("late", DAY_MS + 2)
    days.backfill()
    assert days.rows() == ["late", "line 0", "line 1", "line 2", "line 3"]
    assert len(list(days.scene.tables.state(DATED).line())) == before + 1
    days.scene.application(days.topology).run("next")
    assert days.rows().count("late") == 2, "the live run reads it, too"


def test_interval_without_records_is_emptied() -> None:
    days = Days()
    file = next(
        file
        for file in days.scene.tables.state(DATED).files.values()
        if file.partition == (date(1970, 1, 2),)
    )
    other = FileFacts(path="memory://other", size=file.size, rows=2, partition=(date(1970, 1, 6),))
    days.scene.tables.stored["memory://other"] = days.scene.tables.stored[file.path]
    days.scene.tables.other_writer(DATED).append(other)
    days.send("a day later", 6 * DAY_MS)
    days.backfill(5 * DAY_MS, 6 * DAY_MS)
    assert days.rows() == ["line 0", "line 1", "line 2", "line 3"]


@pytest.mark.remedy("replacing.ReplacedInterval.of")
@pytest.mark.parametrize(
    ("partition_by", "interval_ms", "refused"),
    [
        (("day",), (DAY_MS + 3_600_000, 2 * DAY_MS), "cuts a partition"),
        (("month(day)",), (DAY_MS, 2 * DAY_MS), "cuts a partition"),
        (("text",), (DAY_MS, 2 * DAY_MS), "of which one must be a time"),
    ],
)
def test_interval_that_partitions_do_not_show_is_refused_before_the_run(
    partition_by: tuple[str, ...], interval_ms: tuple[int, int], refused: str
) -> None:
    table = IcebergTable(DATED, row=Dated, partition_by=partition_by).plan
    with pytest.raises(TableRefusedError, match=refused) as error:
        ReplacedInterval.of(table, interval_ms)
    assert "backfill into another table" in error.value.fix


@pytest.mark.parametrize(
    ("field", "value", "held"),
    [
        ("hour(at)", 24, True),
        ("hour(at)", 23, False),
        ("day(at)", 1, True),
        ("day(at)", 2, False),
        ("at", datetime(1970, 1, 2, 23, tzinfo=UTC), True),
        ("at", datetime(1970, 1, 3, tzinfo=UTC), False),
        ("at", None, False),
    ],
)
def test_partition_lies_in_the_interval_if_it_begins_there(field: str, value: Any, held: bool) -> None:
    @dataclass
    class Row:
        text: str
        at: datetime | None

    table = IcebergTable(DATED, row=Row, partition_by=(field,)).plan
    part = ReplacedInterval.of(table, (DAY_MS, 2 * DAY_MS))
    assert part._holds((value,)) is held
    months = IcebergTable(DATED, row=Row, partition_by=("text", "month(at)")).plan
    january = ReplacedInterval.of(months, (0, 31 * DAY_MS))
    assert january._holds(("a", 0))
    assert not january._holds(("a", 1))
    years = ReplacedInterval.of(
        IcebergTable(DATED, row=Row, partition_by=("year(at)",)).plan, (365 * DAY_MS, 730 * DAY_MS)
    )
    assert (years._holds((0,)), years._holds((1,))) == (False, True)


@pytest.mark.remedy("replacing.ReplacedInterval.refuse_outside")
def test_rows_outside_of_the_interval_are_refused_by_the_name_of_their_partition() -> None:
    days = Days()
    days.send("misdated", DAY_MS + 2, day="1970-01-09")
    before = days.rows()
    with pytest.raises(TableRefusedError, match=r"1970, 1, 9.* they would come twice"):
        days.backfill()
    assert days.rows() == before
    elsewhere = days.application("other", backfill_replace="", output_topics=f"table:{DATED}={OTHER}")
    elsewhere.run("again", interval_ms=(DAY_MS, 2 * DAY_MS))
    assert rows(days.scene, OTHER) == ["line 1", "line 2", "misdated"]


@pytest.mark.remedy("landing.Landing._replacing")
def test_interval_that_others_change_meanwhile_is_not_replaced() -> None:
    days = Days()
    app = days.application()
    app.tasks(app.begin("again", interval_ms=(DAY_MS, 2 * DAY_MS)))
    days.send("late", DAY_MS + 2)
    days.scene.application(days.topology).run("next")
    with pytest.raises(TableRefusedError, match="others have changed what the table has of it"):
        app.finish("again")
    # Dropped, it adds and takes out nothing; begun anew, it reads what came.
    asked = ResetRequest(application_id=ID, delete_stop_offsets=True)
    with ApplicationReset(days.scene.kafka, asked, clock=days.scene.clock, tables=days.scene.tables) as tool:
        tool.run()
    assert days.rows() == ["late", "line 0", "line 1", "line 2", "line 3"]
    again = days.backfill()
    assert again.tables[DATED].sequence == 2
    assert days.rows() == ["late", "line 0", "line 1", "line 2", "line 3"]


@pytest.mark.remedy("replacing.ReplacedInterval.files")
def test_interval_of_a_table_with_files_of_another_partitioning_is_not_replaced() -> None:
    days = Days()
    state = days.scene.tables.state(DATED)
    (path, file), *_ = state.files.items()
    other = msgspec.structs.replace(file, path="memory://other", partition=())
    days.scene.tables.stored["memory://other"] = days.scene.tables.stored[path]
    writer = days.scene.tables.other_writer(DATED)
    writer.compact(removed=[path], added=[other])
    with pytest.raises(TableRefusedError, match="files of another partitioning"):
        days.backfill()
    writer.compact(removed=["memory://other"], added=[file])
    days.backfill()
    assert days.rows() == ["line 0", "line 1", "line 2", "line 3"]


def test_run_of_the_live_application_adds_its_rows_whatever_its_backfills_do() -> None:
    days = Days()
    days.send("more", 0)
    replace(days.scene.application(days.topology), settings={"backfill.replace": "interval"}).run("next")
    assert days.rows() == ["line 0", "line 1", "line 2", "line 3", "more"]
