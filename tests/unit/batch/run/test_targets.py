"""A begin looks at the tables that its run is to write to, and refuses those that are not as its runs left
them; what each refusal says to do ends in rows that are there once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from airflow_kstreams.batch.continuous.start import begin_continuous
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import (
    ConfigError,
    RunBusyError,
    TableRefusedError,
    TableUnavailableError,
    TopologyError,
)
from airflow_kstreams.streams.table_plan import Column
from airflow_kstreams.streams.tables.specs import IcebergTable
from airflow_kstreams.testing.faults import FaultyTables
from airflow_kstreams.testing.in_memory_tables import OtherWriter
from tests.support.kafka.interception import Once
from tests.support.remedies import walked
from tests.support.tables.scene import APP, TABLE, Down, Line, Noted, Scene, restored, topology
from tests.support.tables.sending import send_to_table


@pytest.fixture
def scene() -> Scene:
    return Scene()


class Calls:
    """Notes the calls of tables."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Make the call, see ``Interceptor``."""
        self.made.append(name)
        return effect()


def test_run_that_has_nothing_to_do_contacts_no_table(scene: Scene) -> None:
    scene.run("r1")
    calls = Calls()
    summary = scene.application(tables=FaultyTables(scene.tables, calls)).run("r2")
    assert (summary.empty, calls.made) == (True, [])
    assert summary.tables[TABLE].sequence == 1


def test_run_without_rows_makes_an_empty_snapshot(scene: Scene) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string())
    nothing = builder.stream("in", value_serde=serdes.json(Line)).filter(lambda key, value: False)
    send_to_table(nothing, IcebergTable(TABLE, row=Line))
    scene.run("r1", builder.build())
    (snapshot,) = scene.tables.state(TABLE).line()
    assert (scene.rows(), snapshot.snapshot.summary["kstreams.run-id"]) == ([], "r1")


def test_ledger_and_snapshot_say_what_a_run_landed(scene: Scene) -> None:
    scene.send()
    landed = scene.run("r1").tables[TABLE]
    assert (landed.sequence, landed.rows, landed.files, landed.run_id) == (1, 2, 1, "r1")
    (snapshot,) = scene.tables.state(TABLE).line()
    assert snapshot.snapshot.snapshot == landed.snapshot
    assert snapshot.snapshot.summary == {
        "kstreams.application-id": APP,
        "kstreams.run-id": "r1",
        "kstreams.sequence": "1",
        "kstreams.offsets": '{"in-0":[0,2]}',
    }


def test_two_applications_write_to_one_table(scene: Scene) -> None:
    scene.run("r1")
    scene.application(application_id="other").run("r1")
    scene.run("r2")
    assert scene.rows() == sorted([*scene.sent, scene.sent[0]])


def test_optional_column_is_added_and_others_of_the_table_stay(scene: Scene) -> None:
    scene.run("r1")
    scene.other.change_columns((Column("text", "text"), Column("theirs", "long", required=False)))
    scene.run("r2", topology(Noted))
    assert [str(column) for column in scene.tables.state(TABLE).columns] == [
        "text: text",
        "theirs: long?",
        "note: text?",
    ]
    assert scene.rows() == scene.sent


@pytest.mark.parametrize("call", ["table.look", "table.create"])
def test_nothing_is_frozen_while_the_catalogue_is_down(scene: Scene, call: str) -> None:
    scene.send()
    down = scene.application(tables=FaultyTables(scene.tables, Down(call)))
    with pytest.raises(TableUnavailableError):
        down.begin("r1")
    scene.run("r2")
    assert scene.rows() == scene.sent


class Moving:
    """Others change the table before each change of its columns."""

    def __init__(self, other: OtherWriter) -> None:
        self.other = other

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        """Make the call, see ``Interceptor``."""
        if name == "table.widen":
            self.other.append()
        return effect()


CASES = [
    walked(
        "targets._TableAtBegin._gone: restore the table",
        lambda s: s.other.drop(),
        TableRefusedError,
        restored,
    ),
    walked(
        "targets._TableAtBegin._refuse_other: restore the table",
        lambda s: s.other.make_anew(),
        TableRefusedError,
        restored,
    ),
    walked(
        "targets._TableAtBegin._refuse_other: bring the table forward",
        lambda s: s.other.roll_back(""),
        TableRefusedError,
        restored,
    ),
    walked(
        "targets._TableAtBegin._refuse_other: give the other deployment",
        lambda s: s.other.change(marks={(APP, TABLE): 7}),
        TableRefusedError,
        restored,
    ),
    walked(
        "targets._TableAtBegin._refuse_other: change the table",
        lambda s: s.other.change(refused=("its rows are deleted by equality",)),
        TableRefusedError,
        lambda s, state: s.other.change(refused=()),
    ),
    walked(
        "targets._TableAtBegin._unfit",
        lambda s: s.other.change_columns((Column("text", "long"),)),
        TopologyError,
        lambda s, state: s.other.change_columns((Column("text", "text"),)),
    ),
    walked(
        "targets._TableAtBegin._compared",
        lambda s: s.other.change_partitioning(("text",)),
        TopologyError,
        lambda s, state: {"partition_by": ["text"]},
    ),
]


@pytest.mark.parametrize(("wrong", "kind", "mend"), CASES)
def test_table_that_is_not_as_the_last_run_left_it_is_refused_until_it_is_mended(
    scene: Scene,
    wrong: Callable[[Scene], object],
    kind: type[Exception],
    mend: Callable[[Scene, Any], object],
) -> None:
    scene.run("r1")
    state = scene.tables.state(TABLE)
    wrong(scene)
    with pytest.raises(kind):
        scene.run("r2")
    more = mend(scene, state)
    scene.application(topology(**more) if isinstance(more, dict) else None).run("r2")
    assert scene.rows() == scene.sent


@pytest.mark.error_example("KS-TABLE-002")
@pytest.mark.remedy("targets._TableAtBegin._fitting")
def test_run_is_begun_again_when_others_kept_changing_the_columns(scene: Scene) -> None:
    scene.run("r1")
    scene.send()
    moving = scene.application(topology(Noted), tables=FaultyTables(scene.tables, Moving(scene.other)))
    with pytest.raises(TableUnavailableError, match="at each of 5 looks; the last one found: table 'lake"):
        moving.run("r2")
    scene.application(topology(Noted)).run("r2")
    assert scene.rows() == scene.sent


@pytest.mark.remedy("targets._TableAtBegin._gone: create it")
def test_table_is_made_by_begin_when_create_is_left_out(scene: Scene) -> None:
    with pytest.raises(TableRefusedError, match="does not exist"):
        scene.run("r1", topology(create=False))
    scene.application().run("r1")
    assert scene.rows() == scene.sent


def test_second_deployment_under_one_application_id_is_refused(scene: Scene) -> None:
    scene.run("r1")
    elsewhere = Scene(tables=scene.tables)
    with pytest.raises(TableRefusedError, match="mark 1 of application 'app', and the ledger has commit 0"):
        elsewhere.run("r1")
    scene.run("r2")
    assert scene.rows() == scene.sent


@pytest.mark.promise("rows-land-once")
def test_begin_that_slept_while_its_run_landed_has_lost_a_race(scene: Scene) -> None:
    scene.send()
    another = Once("table.look", 1, lambda: scene.application().run("r1"))
    app = scene.application(tables=FaultyTables(scene.tables, another))
    plan = topology().plan(APP)
    with closing(app.coordinator()) as coordinator:
        with pytest.raises(RunBusyError, match="at the same moment"):
            coordinator.begin("r1", plan, hold_lease=False)
        assert coordinator.begin("r1", plan, hold_lease=False).finished is not None
    assert scene.rows() == scene.sent


@pytest.mark.promise("rows-land-once")
def test_list_of_files_is_known_when_the_metadata_topic_is_gone(scene: Scene) -> None:
    scene.run("r1")
    scene.kafka.admin().delete_topics([f"{APP}-metadata"])
    request = ResetRequest(application_id=APP, delete_stop_offsets=True, force=True)
    with ApplicationReset(scene.kafka, request, clock=scene.clock) as reset:
        reset.run()
    scene.run("r2")
    assert scene.rows() == scene.sent


@pytest.mark.remedy("targets.require_tables")
def test_begin_asks_where_tables_are(scene: Scene) -> None:
    scene.send()
    app = scene.application()
    app.tables = None
    with pytest.raises(ConfigError, match="not said where tables are"):
        app.begin("r1")
    scene.application().run("r1")
    assert scene.rows() == scene.sent


@pytest.mark.remedy("runner.TaskAttempt._table_rows")
def test_task_asks_where_tables_are(scene: Scene) -> None:
    scene.send()
    app = scene.application()
    app.open_rows = None
    slice_ = app.begin("r1")
    with pytest.raises(ConfigError, match="not said where tables are"):
        app.tasks(slice_)
    whole = scene.application()
    whole.tasks(slice_)
    whole.finish("r1")
    assert scene.rows() == scene.sent


@pytest.mark.remedy("targets.refuse_unfit_run: set processing.guarantee")
def test_run_that_is_not_exactly_once_is_refused_before_anything_is_frozen(scene: Scene) -> None:
    scene.send()
    app = scene.application()
    app.settings = {"processing.guarantee": "at_least_once"}
    with pytest.raises(ConfigError, match=r"'app' writes to 'lake.lines', and has processing.guarantee=at_l"):
        app.begin("r1")
    assert scene.tables.states == {}
    assert [topic for topic in scene.kafka.topics() if topic.startswith(APP)] == []
    app.settings = {"processing.guarantee": "exactly_once"}
    app.run("r1")
    assert scene.rows() == scene.sent


@pytest.mark.remedy("targets.refuse_unfit_run: set autostop.at")
def test_continuous_run_is_refused_before_anything_is_written(scene: Scene) -> None:
    scene.send()
    app = scene.application()
    plan = app.topology.plan(APP)
    with (
        closing(app.coordinator()) as coordinator,
        pytest.raises(ConfigError, match=r"writes to 'lake.lines', and runs continuously"),
    ):
        begin_continuous(coordinator, "c-1", plan)
    assert [topic for topic in scene.kafka.topics() if topic.startswith(APP)] == []
    app.settings = {"autostop.at": "eol"}
    app.run("r1")
    assert scene.rows() == scene.sent
