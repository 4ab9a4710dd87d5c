"""Doctor as a user of a broker with an authorizer: what the user lacks is found, what it cannot see said."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from airflow_kstreams.batch.inspect.doctor import Finding, Level, Subject, diagnose
from airflow_kstreams.batch.protocol.needed_permissions import doctor_permissions, run_permissions
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.naming.permissions import Operation, Permission, Resource
from dev.servers.secured import SecuredBroker
from tests.support.kafka.access_control import Acls
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import execute, printed_commands


@pytest.mark.promise("doctor-finds-what-surrounds")
def test_permission_that_a_user_lacks_is_found_alone_until_the_command_gives_it(
    secured_broker: SecuredBroker,
    application_id: str,
    create_topic: Callable[..., str],
    allow: Callable[[Iterable[Permission]], None],
    acls: Acls,
) -> None:
    source, target = create_topic(f"in-{application_id}"), create_topic(f"out-{application_id}")
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream(source).send_to(target)
    application = Application(
        bootstrap=secured_broker.scram_bootstrap,
        application_id=application_id,
        topology=builder.build(),
        client=secured_broker.scram_config("carol"),
    )
    plan, settings = application.topology.plan(application_id), application.checked
    writes = (Operation.WRITE, Resource.TOPIC, target)

    def looked() -> list[Finding]:
        found = diagnose(application.cluster, Subject(plan=plan, settings=settings))
        return [each for each in found if each.check == "permissions"]

    every = [*run_permissions(plan, settings), *doctor_permissions(plan)]
    needed = {(each.operation, each.resource, each.name): each for each in every}
    allow(each for named, each in needed.items() if named != writes)
    application.begin("run-1")
    found = looked()
    (missing,) = (each for each in found if each.level is Level.ERROR)
    assert (missing.code, f"lacks Write on topic {target}," in missing.text) == ("permission-missing", True)
    (unseen,) = (each for each in found if each.level is Level.UNSEEN)
    assert unseen.text.startswith(f"Write on transactional id {application_id}-*: brokers do not tell")
    (command,) = printed_commands(missing.fix)
    given = {"HOST:PORT": secured_broker.bootstrap, "User:NAME": "User:carol"}
    execute([given.get(word, word) for word in command], secured_broker.bootstrap)
    acls.given_elsewhere(1)
    assert [each.level for each in looked()] == [Level.UNSEEN, Level.OK]
