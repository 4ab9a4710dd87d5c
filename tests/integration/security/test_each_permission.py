"""All work that a Kafka user may be allowed to do, on a broker with an authorizer: each permission that
``airflow-kstreams acls`` lists is needed for what it is listed for, and nothing else is.

That no list holds too much, ``unit/cli/test_least_acls.py`` says, by an authorizer in front of the in-memory
Kafka. Here a broker says that this one decides as it does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.naming.permissions import Permission
from dev.servers.secured import SecuredBroker
from tests.support.kafka.access_control import Acls
from tests.support.kafka.permission_trials import attempt, listed, missed, tried
from tests.support.kafka.permitted_work import WORK, Scene, Work

pytestmark = pytest.mark.promise(
    "each-missing-acl-is-named", "each-acl-serves-what-it-says", "catch-ups-need-what-is-listed"
)

#: Of each kind of client and of request, what is done quickly; the long proof has all of it.
_QUICK = ("run", "run at least once", "status", "dead-letters replay", "reset")


Prepare = Callable[[Work], Scene]


@pytest.fixture
def prepare(secured_broker: SecuredBroker, topic_name: Callable[[str], str]) -> Prepare:
    """``prepare(work)``: the scene of new work, which carol is to do."""

    def made(work: Work) -> Scene:
        scene = work.scene(topic_name("app"), KafkaCluster({"bootstrap.servers": secured_broker.bootstrap}))
        settings = scene.application(owner=True).checked
        scene.user = KafkaCluster(secured_broker.scram_config("carol"), settings=settings)
        return scene

    return made


def here(permission: Permission, scene: Scene) -> Permission:
    """Return a permission on what is the application's in memory as one on what is the scene's."""
    name, app = permission.name, scene.application_id
    if name == "app" or name.startswith("app-"):
        name = app + name.removeprefix("app")
    elif name.endswith("-app"):
        name = name.removesuffix("app") + app
    return dataclasses.replace(permission, name=name)


@pytest.mark.parametrize(
    "work",
    [pytest.param(each, marks=[] if each.name in _QUICK else [pytest.mark.prove]) for each in WORK],
    ids=str,
)
def test_work_is_done_with_its_list(prepare: Prepare, acls: Acls, work: Work) -> None:
    scene = prepare(work)
    acls.allow(listed(scene, work))
    outcome = attempt(work, scene)
    assert outcome is None, f"{work} is not done with its list: {outcome}"


@pytest.mark.prove
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("work", WORK, ids=str)
def test_work_fails_as_in_memory_without_each_permission(prepare: Prepare, acls: Acls, work: Work) -> None:
    differences = []
    for missing, expected in tried(work).outcomes.items():
        scene = prepare(work)
        permission = here(missing, scene)
        given = listed(scene, work)
        assert permission in given
        acls.allow(each for each in given if each != permission)
        outcome = attempt(work, scene)
        if expected is None:
            alike = outcome is None
        else:
            alike = outcome is not None and missed(work, permission, outcome)
        if not alike:
            differences.append(f"without {permission}: {outcome}; in memory: {expected}")
        acls.withdraw()
    assert not differences, "\n".join(differences)
