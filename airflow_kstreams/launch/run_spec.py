"""Defines the run spec, the versioned JSON that names to a Spark driver the run to make, and the target of
its metrics. It never holds a secret.
"""

from __future__ import annotations

import msgspec

from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.plan import decode_json


class MetricsTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a driver's metrics, and their names. OpenTelemetry's own environment variables come
    first.

    :param endpoint: URL of a collector that takes OTLP over HTTP; empty: only those variables name it.
    :param prefix: prefix of every name.
    :param service: name of the service.
    :param console: whether the driver also prints what it exports.
    :param left_out: figures that are not exported, by their names without the prefix.
    """

    endpoint: str = ""
    prefix: str = "airflow"
    service: str = "airflow"
    console: bool = False
    left_out: tuple[str, ...] = ()


VERSION = 1

#: Environment variable naming the JSON file with the Kafka client's configuration, secrets included.
CLIENT_CONFIG_FILE = "KSTREAMS_KAFKA_CONFIG_FILE"

#: Environment variable that is set where that file was made for the one driver, which removes it in the end.
CLIENT_CONFIG_IS_TEMPORARY = "KSTREAMS_KAFKA_CONFIG_FILE_IS_TEMPORARY"


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a driver makes.

    :param application_id: the application.
    :param run_id: the run; owner of the slice it begins.
    :param order: (clear number, try number) of the Airflow task that submits; a higher one claims the slice.
    :param owner: the name of the submitter in messages, e.g. ``dag flight_delays_hourly, task run.topology``.
    :param settings: application settings that differ from their defaults, by dotted name.
    :param topology_hash: hash of the topology when it was captured; the driver refuses another one. Empty if
        it was not captured.
    :param interval_ms: data interval of the run, epoch milliseconds; None if it has none.
    :param finish: whether the driver also writes the finished marker (no finish operator follows).
    :param subtopology: id of the only subtopology to run, None for all.
    :param dag_id: the DAG whose run it is; empty if none.
    :param metrics: target of the driver's metrics; None: they are not exported.
    :param version: version of this format.
    """

    application_id: str
    run_id: str
    order: tuple[int, int] = (0, 0)
    owner: str = ""
    settings: dict[str, str | int | float] = {}
    topology_hash: str = ""
    finish: bool = False
    interval_ms: tuple[int, int] | None = None
    subtopology: int | None = None
    dag_id: str = ""
    metrics: MetricsTarget | None = None
    version: int = VERSION

    def to_json(self) -> str:
        """Return the JSON text."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        """Parse JSON text.

        :raises ConfigError: it is not a run spec of a version this package knows.
        """
        try:
            spec = decode_json(text, cls)
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"the run spec is not valid: {error}", fix="pass the JSON that the operator made"
            ) from None
        if spec.version != VERSION:
            raise ConfigError(
                f"the run spec has version {spec.version}, this package reads version {VERSION}",
                fix="install the same airflow_kstreams version on the Airflow side and on the Spark side",
            )
        return spec
