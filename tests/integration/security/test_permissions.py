"""Runs without some of their ACLs: what they say, and what an administrator does about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from airflow_kstreams.batch.protocol.needed_permissions import run_permissions
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import AccessDeniedError
from airflow_kstreams.streams.naming.permissions import Operation, Permission
from dev.servers.secured import SecuredBroker
from tests.support.kafka.access_control import Acls
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import execute, printed_commands

pytestmark = pytest.mark.promise("each-missing-acl-is-named")

Allow = Callable[[Iterable[Permission]], None]
DEAD_LETTERS = {"deserialization.exception.handler": "dead-letter"}


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
