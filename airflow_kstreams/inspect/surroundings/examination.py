"""Makes all looks at an application and its surroundings, side by side."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from airflow_kstreams.batch.inspect.diagnosis import Diagnosis
from airflow_kstreams.batch.inspect.doctor import Finding, Subject, diagnose
from airflow_kstreams.batch.inspect.doctor.looks import DoctorLook, side_by_side, unseen
from airflow_kstreams.inspect.surroundings.airflow_checks import look_at_airflow
from airflow_kstreams.inspect.surroundings.connection_checks import (
    look_at_client_settings,
    look_at_listeners,
    look_at_registry,
)
from airflow_kstreams.inspect.surroundings.executor_checks import look_at_executors
from airflow_kstreams.inspect.surroundings.machine_checks import (
    look_at_java,
    look_at_releases,
    look_at_state_dir,
)
from airflow_kstreams.streams.ports import ClusterPort

_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What surrounds an application, as far as it is given.

    :param client_config: client settings, those of the schema registry included; None if a cluster was given
        in their place.
    :param seconds: time for all looks together.
    :param spark: whether to run a tiny job on Spark, as a run does.
    :param environment: variables of this process.
    """

    client_config: Mapping[str, object] | None = None
    seconds: float = _SECONDS
    spark: bool = False
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)


def examine(cluster: ClusterPort, subject: Subject, around: Surroundings) -> Diagnosis:
    """Look at an application and what surrounds it.

    :raises KafkaClientError: no broker answers, or they refuse the login.
    """
    with closing(cluster.admin()) as admin:
        brokers = admin.broker_addresses()
    looks = [
        DoctorLook(check="listeners", findings=partial(look_at_listeners, brokers)),
        *_looks(subject, around),
    ]
    found = diagnose(
        cluster, subject, looking=lambda look: side_by_side([look, *looks], seconds=around.seconds)
    )
    return Diagnosis(application_id=subject.plan.application_id, findings=tuple(found))


def _looks(subject: Subject, around: Surroundings) -> Iterator[DoctorLook]:
    app, environment, seconds = subject.plan.application_id, around.environment, around.seconds
    if around.client_config is None:
        yield DoctorLook(check="client settings", findings=partial(_unseen, "client settings"))
    else:
        config = around.client_config
        yield DoctorLook(check="client settings", findings=partial(look_at_client_settings, config))
        yield DoctorLook(check="schema registry", findings=partial(look_at_registry, config))
    yield DoctorLook(check="releases", findings=look_at_releases)
    yield DoctorLook(check="Java and Spark", findings=partial(look_at_java, environment))
    yield DoctorLook(check="disk", findings=partial(look_at_state_dir, subject.settings))
    yield DoctorLook(check="Airflow", findings=partial(look_at_airflow, app, environment, seconds=seconds))
    yield DoctorLook(
        check="executors",
        findings=partial(look_at_executors, environment, asked=around.spark, seconds=seconds),
    )


def _unseen(check: str) -> Iterator[Finding]:
    yield unseen(check, "a cluster was given in their place")
