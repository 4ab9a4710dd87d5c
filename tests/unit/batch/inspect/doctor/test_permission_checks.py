"""What the doctor says of the permissions of its user, on a Kafka behind an authorizer."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from airflow_kstreams.batch.inspect.doctor import Finding, Level
from airflow_kstreams.batch.protocol.needed_permissions import doctor_permissions, run_permissions
from airflow_kstreams.streams.naming.permissions import Operation, Permission, Resource
from tests.support.kafka.authorizer import Authorizer
from tests.unit.batch.inspect.doctor.test_findings import APP, Rig

WRITES = Permission(operation=Operation.WRITE, resource=Resource.TOPIC, name="out")
CONFIGS = Permission(operation=Operation.DESCRIBE_CONFIGS, resource=Resource.TOPIC, name="in")


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.run()
    return made


def needed(rig: Rig) -> list[Permission]:
    return [*run_permissions(rig.app.topology.plan(APP), rig.app.checked)]


def looked(rig: Rig, given: Iterable[Permission]) -> list[Finding]:
    """The findings of permissions, of a user who may look at all as well."""
    may = [*given, *doctor_permissions(rig.app.topology.plan(APP))]
    rig.cluster = Authorizer(may).cluster(rig.kafka)
    return [found for found in rig.diagnose() if found.check == "permissions"]


def without(given: Iterable[Permission], lost: Permission) -> list[Permission]:
    same = (lost.operation, lost.resource, lost.name)
    return [each for each in given if (each.operation, each.resource, each.name) != same]


def test_user_with_all_permissions_is_told_what_brokers_do_not_tell(rig: Rig) -> None:
    unseen, well = looked(rig, needed(rig))
    assert (well.level, well.text.endswith("that can be looked at")) == (Level.OK, True)
    assert unseen.level is Level.UNSEEN
    assert unseen.text.startswith("Write on transactional id app-*: brokers do not tell")


@pytest.mark.remedy("permission_checks.check: {_commands}")
def test_missing_permission_is_an_error_until_the_command_gives_it(rig: Rig) -> None:
    given = without(needed(rig), WRITES)
    missing, _ = looked(rig, given)
    assert (missing.level, missing.code) == (Level.ERROR, "permission-missing")
    assert "lacks Write on topic out, without which its work fails" in missing.text
    assert missing.fix == (
        "have an administrator give them: kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal "
        "User:NAME --operation Write --topic out"
    )
    assert Level.ERROR not in {found.level for found in looked(rig, [*given, WRITES])}


def test_permission_that_runs_can_do_without_is_a_warning(rig: Rig) -> None:
    may = [each for each in doctor_permissions(rig.app.topology.plan(APP)) if each != CONFIGS]
    given = without([*needed(rig), *may], CONFIGS)
    rig.cluster = Authorizer(given).cluster(rig.kafka)
    (found,) = [each for each in rig.diagnose() if each.code == "permission-optional"]
    assert (found.level, "lacks DescribeConfigs on topic in" in found.text) == (Level.WARNING, True)
    assert "its max.message.bytes is taken to be the broker's default" in found.text


def test_topics_that_do_not_exist_cannot_be_looked_at() -> None:
    new = Rig()
    (unseen,) = [found for found in looked(new, needed(new)) if found.level is Level.UNSEEN]
    assert "Create on topic app-" in unseen.text


def test_other_work_of_the_user_counts_when_it_is_given(rig: Rig) -> None:
    plan = rig.app.topology.plan(APP)
    rig.cluster = Authorizer(doctor_permissions(plan)).cluster(rig.kafka)
    found = rig.diagnose(subject={"needs": lambda plan, _: doctor_permissions(plan)})
    assert {each.code for each in found if each.level is Level.ERROR} == set()
    assert "permission-missing" in {each.code for each in rig.diagnose()}
