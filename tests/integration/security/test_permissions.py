"""The list of ACLs is complete (a run passes with it) and minimal (it fails without any one of them, and says
which)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from airflow_kstreams.batch.protocol.needed_permissions import reset_permissions, run_permissions
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import AccessDeniedError
from airflow_kstreams.streams.naming.permissions import Operation, Permission
from airflow_kstreams.streams.settings import ApplicationSettings
from dev.servers.secured import SecuredBroker
from tests.support.kafka.access_control import Acls
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import execute, printed_commands

pytestmark = pytest.mark.promise("each-missing-acl-is-named")

Allow = Callable[[Iterable[Permission]], None]
DEAD_LETTERS = {"deserialization.exception.handler": "dead-letter"}
APP = "APP"


def stateless(app: str) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(int))
    builder.stream(f"in-{app}").map_values(lambda number: -number).send_to(f"out-{app}")
    return builder.build()


def stateful(app: str) -> Topology:
    """An intermediate topic, a repartition topic, a changelog."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(int))
    middle = builder.stream(f"in-{app}").through(f"middle-{app}")
    parity = middle.group_by(
        lambda _, number: "odd" if number % 2 else "even",
        key_serde=serdes.string(),
        value_serde=serdes.json(int),
        name="parity",
    )
    sums = parity.aggregate(
        int, lambda _, number, total: total + number, store="sums", value_serde=serdes.json(int)
    )
    sums.to_stream().send_to(f"out-{app}", key_serde=serdes.string(), value_serde=serdes.json(int))
    return builder.build()


def needed(topology: Callable[[str], Topology], app: str, **settings: str) -> tuple[Permission, ...]:
    checked = ApplicationSettings.parse(
        app, {name.replace("_", "."): each for name, each in settings.items()}
    )
    return run_permissions(topology(app).plan(app), checked)


@pytest.fixture
def make(
    secured_broker: SecuredBroker, application_id: str, create_topic: Callable[..., str]
) -> Callable[..., Application]:
    """``make(topology, **settings)``: an application of carol's, with its topics."""

    def made(topology: Callable[[str], Topology], **settings: object) -> Application:
        built = topology(application_id)
        plan = built.plan(application_id)
        internal = {*plan.repartition_topics}
        for topic in {*plan.sources, *plan.outputs} - internal:
            create_topic(topic, 1)
        return Application(
            bootstrap=secured_broker.scram_bootstrap,
            application_id=application_id,
            topology=built,
            settings={
                **DEAD_LETTERS,
                "settle.ms": 2_000,
                "client.timeout.ms": 10_000,
                **{name.replace("_", "."): each for name, each in settings.items()},
            },
            client=secured_broker.scram_config("carol"),
        )

    return made


def permissions_of(application: Application) -> tuple[Permission, ...]:
    return run_permissions(application.topology.plan(application.application_id), application.checked)


def two_runs(application: Application, produce: Callable[..., None]) -> None:
    """The second one finds state to restore and a previous run to fence."""
    for run, numbers in enumerate(((1, 2), (3, 4)), start=1):
        rows = [("key", number) for number in numbers]
        produce(f"in-{application.application_id}", [*rows, ("key", b"no number")])
        application.run(f"run-{run}")


@pytest.mark.parametrize("topology", [stateless, stateful])
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_runs_pass_when_the_user_has_exactly_the_listed_permissions(
    make: Callable[..., Application],
    allow: Allow,
    produce: Callable[..., None],
    consume_all: Callable[..., list[Any]],
    topology: Callable[[str], Topology],
    guarantee: str,
) -> None:
    application = make(topology, processing_guarantee=guarantee)
    allow(permissions_of(application))

    two_runs(application, produce)

    last = [row.json() for row in consume_all(f"out-{application.application_id}")][-2:]
    assert sorted(last) == ([-4, -3] if topology is stateless else [4, 6])
    assert len(consume_all(f"{application.application_id}-dead-letter")) == 2


ALL = needed(stateful, APP, deserialization_exception_handler="dead-letter")
EACH = [each for each in ALL if not each.without]


def test_runs_pass_and_say_what_is_not_checked_when_optional_permissions_are_missing(
    make: Callable[..., Application],
    allow: Allow,
    produce: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    application = make(stateful)
    listed = permissions_of(application)
    optional = [each for each in listed if each.without]
    assert optional
    allow(each for each in listed if each not in optional)

    two_runs(application, produce)

    assert "the settings of internal topics are not checked" in caplog.text
    assert f"needs the permission {optional[0].operation} on topic" in caplog.text


@pytest.mark.parametrize("missing", EACH, ids=map(str, EACH))
def test_run_fails_and_names_the_permission_when_it_alone_is_missing(
    make: Callable[..., Application],
    allow: Allow,
    produce: Callable[..., None],
    missing: Permission,
) -> None:
    application = make(stateful)
    missing = dataclasses.replace(missing, name=missing.name.replace(APP, application.application_id))
    listed = permissions_of(application)
    assert missing in listed
    allow(each for each in listed if each != missing)

    with pytest.raises(AccessDeniedError) as refused:
        two_runs(application, produce)

    error = refused.value
    named = error.permission
    assert (named.operation, named.resource, named.name, named.prefixed) == (
        missing.operation,
        missing.resource,
        missing.name,
        missing.prefixed,
    )
    assert f"User:carol needs the permission {missing}" in error.cause
    assert (
        f"--allow-principal User:carol --operation {missing.operation} --{missing.resource} {missing.name}"
        in (error.fix)
    )
    assert not error.is_retriable


@pytest.mark.remedy("errors.AccessDeniedError.__init__")
def test_runs_pass_when_an_administrator_runs_each_command_that_is_printed(
    secured_broker: SecuredBroker,
    make: Callable[..., Application],
    acls: Acls,
    produce: Callable[..., None],
    consume_all: Callable[..., list[Any]],
) -> None:
    application = make(stateful)
    app = application.application_id
    missing = {
        (Operation.CREATE, f"{app}-sums-changelog"),
        (Operation.READ, app),
        (Operation.WRITE, f"{app}-"),
    }
    listed = permissions_of(application)
    acls.allow(each for each in listed if (each.operation, each.name) not in missing)
    produce(f"in-{app}", [("key", 1), ("key", 2)])

    for number in range(len(missing)):
        with pytest.raises(AccessDeniedError) as refused:
            application.run("run-1", (0, number))
        (command, _) = printed_commands(refused.value.fix)
        assert secured_broker.scram_bootstrap in command
        address = {secured_broker.scram_bootstrap: secured_broker.bootstrap}
        execute([address.get(word, word) for word in command], secured_broker.bootstrap)
        acls.given_elsewhere(1)
        missing.remove((refused.value.permission.operation, refused.value.permission.name))

    application.run("run-1", (0, len(listed)))
    assert sorted(row.json() for row in consume_all(f"out-{app}")) == [1, 2]


def reset(application: Application) -> None:
    app = application.application_id
    request = ResetRequest(
        application_id=app, input_topics=(f"in-{app}",), intermediate_topics=(f"middle-{app}",)
    )
    with ApplicationReset(application.cluster, request) as tool:
        tool.run()


def with_reset(application: Application) -> list[Permission]:
    plan = application.topology.plan(application.application_id)
    listed = {(each.operation, each.resource, each.name): each for each in permissions_of(application)}
    for each in reset_permissions(plan):
        listed.setdefault((each.operation, each.resource, each.name), each)
    return list(listed.values())


def test_reset_passes_and_needs_each_of_them_when_the_user_has_exactly_the_listed_permissions(
    make: Callable[..., Application],
    allow: Allow,
    produce: Callable[..., None],
    consume_all: Callable[..., list[Any]],
) -> None:
    application = make(stateful)
    allow(permissions_of(application))
    two_runs(application, produce)
    (missing,) = [each for each in with_reset(application) if each not in permissions_of(application)]

    with pytest.raises(AccessDeniedError) as refused:
        reset(application)

    assert refused.value.permission.operation is missing.operation
    assert refused.value.permission.name == missing.name == f"{application.application_id}-sums-changelog"
    allow([missing])
    reset(application)
    before = len(consume_all(f"out-{application.application_id}"))
    application.run("run-3")
    again = [row.json() for row in consume_all(f"out-{application.application_id}")][before:]
    assert sorted(again)[-2:] == [4, 6], "everything was processed again from the beginning"
