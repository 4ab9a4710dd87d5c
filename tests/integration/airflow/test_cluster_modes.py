"""The run operator where a cluster manager runs the driver: a fake resource manager of YARN over HTTP, a fake
API of Kubernetes, and a ``spark-submit`` that hands over to them. Drivers work on an in-memory Kafka.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from airflow.providers.apache.spark.hooks import spark_submit as provider_hook
from airflow.providers.apache.spark.operators import spark_submit as provider_operator
from airflow.sdk import DAG, BaseOperator, Context, task

from airflow_kstreams.hooks.airflow_versions import AirflowFailException
from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.launch.processes import session_members
from airflow_kstreams.operators.run_topology import RunTopologyOperator
from tests.support.kafka.reset_scene import APP, ResetScene

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.promise("killed-tasks-leave-resumable-runs")]

_ACTIVE = ("RUNNING", "UNDEFINED")
_SUCCEEDED = ("FINISHED", "SUCCEEDED")
_FAILED = ("FINISHED", "FAILED")
_CLUSTER = {"env_vars": {"KSTREAMS_KAFKA_CONFIG_FILE": "/etc/kstreams/kafka.json"}}
_YARN = {**_CLUSTER, "yarn_track_via_rm_api": True}
_KUBERNETES = {**_CLUSTER, "track_driver_via_k8s_api": True}


class WorkerDied(BaseException):
    """The Airflow worker is gone, nothing cleans up."""


@dataclass(kw_only=True)
class Deployment:
    """A cluster, as ``spark-submit`` and the provider see it, and the application on its Kafka.

    :ivar states: driver -> what the cluster manager says of it.
    :ivar on_wait: what happens when the provider waits for its next look.
    """

    folder: Path
    scene: ResetScene
    states: dict[str, tuple[str, str]] = field(default_factory=dict)
    killed_by_api: list[str] = field(default_factory=list)
    on_wait: Callable[[], None] = lambda: None
    store: dict[str, Any] = field(default_factory=dict)

    @property
    def submitted(self) -> list[str]:
        """The drivers that were submitted."""
        file = self.folder / "submitted"
        return file.read_text().split() if file.exists() else []

    @property
    def killed(self) -> list[str]:
        """The drivers that were killed, by an API or by YARN's own command."""
        file = self.folder / "killed"
        return [*self.killed_by_api, *(file.read_text().split() if file.exists() else [])]

    def state(self, driver: str) -> tuple[str, str]:
        return self.states.get(driver, _ACTIVE)

    def driver_ends_well(self) -> None:
        """The driver of the run does all that there is to do."""
        slice_ = self.scene.begin("r1", order=len(self.submitted))
        self.scene.tasks(slice_)
        self.scene.finish("r1")
        self.states[self.submitted[-1]] = _SUCCEEDED

    def context(self, try_number: int) -> Context:
        def pop(key: str) -> None:
            self.store.pop(key, None)

        store = SimpleNamespace(get=self.store.get, set=self.store.__setitem__, delete=pop)
        instance = SimpleNamespace(
            dag_id="d", task_id="run", try_number=try_number, map_index=-1, stats_tags={}
        )
        dag_run = SimpleNamespace(
            run_id="r1", clear_number=0, data_interval_start=None, data_interval_end=None
        )
        return cast("Context", {"ti": instance, "dag_run": dag_run, "task_state_store": store})

    def attempt(self, operator: BaseOperator, try_number: int) -> Any:
        return operator.execute(self.context(try_number))


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """A run of two records has begun."""
    scene = ResetScene()
    scene.send("a", "b")
    scene.begin("r1", order=0)
    made = Deployment(folder=tmp_path, scene=scene)
    binary = tmp_path / "spark-submit"
    binary.write_text(
        "#!/bin/sh\n"
        f"printf 'application_7_%s\\n' $(($(cat {tmp_path}/submitted 2>/dev/null | wc -l) + 1)) "
        f">> {tmp_path}/submitted\n"
        f"last=$(tail -n 1 {tmp_path}/submitted)\n"
        'echo "Submitted application $last"\n'
        'echo "submission ID spark:$last-driver"\n'
        f"if [ -e {tmp_path}/waits ]; then exec sleep 600; fi\n"
    )
    yarn = tmp_path / "yarn"
    yarn.write_text(f'#!/bin/sh\n[ "$1 $2" = "application -kill" ] && echo "$3" >> {tmp_path}/killed\n')
    for script in (binary, yarn):
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(KafkaHook, "cluster", lambda *_, **__: scene.kafka)
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": "in-memory:9092"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(kafka))
    monkeypatch.setattr(provider_hook, "time", SimpleNamespace(sleep=lambda _: made.on_wait()))
    return made


def connection(monkeypatch: pytest.MonkeyPatch, master: str, **extra: str) -> None:
    text = json.dumps({"conn_type": "spark", "host": master, "extra": {"deploy-mode": "cluster", **extra}})
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", text)


@pytest.fixture
def yarn(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    """A resource manager that speaks as much of its REST API as the provider asks for."""

    class ResourceManager(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state, final = deployment.state(self.path.rpartition("/")[2])
            self._answer({"app": {"state": state, "finalStatus": final, "diagnostics": "said by YARN"}})

        def do_PUT(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert asked == {"state": "KILLED"}
            deployment.killed_by_api.append(self.path.split("/")[-2])
            self._answer(asked)

        def log_message(self, *_: object) -> None:
            """Say nothing on stderr."""

        def _answer(self, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), ResourceManager)
    serving = threading.Thread(target=server.serve_forever, args=(0.02,))
    serving.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    connection(monkeypatch, "yarn", yarn_resourcemanager_webapp_address=address)
    try:
        yield deployment
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


class ApiError(Exception):
    status = 404


@pytest.fixture
def kubernetes(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """As much of the API as the provider asks for; its client is not among this project's packages."""
    phases = {_ACTIVE: "Running", _SUCCEEDED: "Succeeded", _FAILED: "Failed"}

    def read(pod: str, namespace: str) -> Any:
        assert namespace == "spark"
        phase = phases[deployment.state(pod.removesuffix("-driver"))]
        return SimpleNamespace(status=SimpleNamespace(phase=phase, container_statuses=None))

    def delete(pod: str, namespace: str, **_: Any) -> None:
        deployment.killed_by_api.append(pod.removesuffix("-driver"))

    client = SimpleNamespace(read_namespaced_pod=read, delete_namespaced_pod=delete)
    module = SimpleNamespace(get_kube_client=lambda: client, ApiException=ApiError)
    for provider in (provider_hook, provider_operator):
        monkeypatch.setattr(provider, "kube_client", module, raising=False)
    library = cast("Any", ModuleType("kubernetes"))
    library.client = SimpleNamespace(V1DeleteOptions=object)
    monkeypatch.setitem(sys.modules, "kubernetes", library)
    connection(monkeypatch, "k8s://https://cluster", namespace="spark")
    return deployment


def plain(**arguments: Any) -> BaseOperator:
    with DAG("d", schedule=None):
        return RunTopologyOperator(task_id="run", application_id=APP, application="app.py", **arguments)


def decorated(**arguments: Any) -> BaseOperator:
    with DAG("d", schedule=None):

        @task.kstreams(task_id="run", application_id=APP, **arguments)
        def topology():  # type: ignore[no-untyped-def]
            from airflow_kstreams.streams import KStreamBuilder

            return KStreamBuilder().build()

        made: Any = topology()
        return cast("BaseOperator", made.operator)


OPERATORS = pytest.mark.parametrize("operator", [plain, decorated])
Make = Callable[..., BaseOperator]


@pytest.fixture(params=["yarn", "kubernetes"])
def cluster(request: pytest.FixtureRequest) -> tuple[Deployment, dict[str, Any]]:
    arguments = {"yarn": _YARN, "kubernetes": _KUBERNETES}[request.param]
    return request.getfixturevalue(request.param), arguments


Cluster = tuple[Deployment, dict[str, Any]]


def submit_and_die(deployment: Deployment, operator: BaseOperator) -> None:
    def die() -> None:
        raise WorkerDied

    deployment.on_wait = die
    with pytest.raises(WorkerDied):
        deployment.attempt(operator, 1)
    assert len(deployment.submitted) == 1


@OPERATORS
def test_retry_waits_for_the_driver_that_runs_when_the_worker_died(cluster: Cluster, operator: Make) -> None:
    deployment, arguments = cluster
    submit_and_die(deployment, operator(**arguments))
    assert deployment.killed == []
    deployment.on_wait = deployment.driver_ends_well

    result = deployment.attempt(operator(**arguments), 2)

    assert len(deployment.submitted) == 1, "no second driver"
    assert (result["run_id"], result["finished"], result["generation"]) == ("r1", True, 2)


def test_nothing_is_submitted_when_kafka_says_that_the_run_was_finished_meanwhile(cluster: Cluster) -> None:
    deployment, arguments = cluster
    submit_and_die(deployment, plain(**arguments))
    deployment.driver_ends_well()

    assert deployment.attempt(plain(**arguments), 2)["finished"]
    assert len(deployment.submitted) == 1


@pytest.mark.parametrize("said", [_SUCCEEDED, _FAILED])
def test_another_driver_is_submitted_when_the_first_one_ended_without_finishing_the_work(
    cluster: Cluster, said: tuple[str, str]
) -> None:
    deployment, arguments = cluster
    submit_and_die(deployment, plain(**arguments))
    deployment.states[deployment.submitted[0]] = said
    deployment.store["k8s_driver_status"] = "Succeeded" if said == _SUCCEEDED else None
    deployment.on_wait = deployment.driver_ends_well

    assert deployment.attempt(plain(**arguments), 2)["finished"]
    assert len(deployment.submitted) == 2


def test_second_driver_is_found_again_when_an_earlier_one_had_ended(kubernetes: Deployment) -> None:
    submit_and_die(kubernetes, plain(**_KUBERNETES))
    kubernetes.states[kubernetes.submitted[0]] = _SUCCEEDED
    kubernetes.store["k8s_driver_status"] = "Succeeded"
    with pytest.raises(WorkerDied):
        kubernetes.attempt(plain(**_KUBERNETES), 2)
    kubernetes.on_wait = kubernetes.driver_ends_well

    kubernetes.attempt(plain(**_KUBERNETES), 3)

    assert len(kubernetes.submitted) == 2, "the end of the first was not taken for that of the second"


def test_task_fails_when_the_driver_ended_well_and_left_work(cluster: Cluster) -> None:
    deployment, arguments = cluster

    def end_early() -> None:
        deployment.states[deployment.submitted[-1]] = _SUCCEEDED

    deployment.on_wait = end_early

    with pytest.raises(Exception, match="tasks 0_0, 0_1 of run 'r1' are not at their stop offsets"):
        deployment.attempt(plain(**arguments), 1)


@OPERATORS
@pytest.mark.parametrize("tries", [1, 2])
def test_driver_is_killed_when_the_task_is(cluster: Cluster, operator: Make, tries: int) -> None:
    deployment, arguments = cluster
    if tries > 1:
        submit_and_die(deployment, operator(**arguments))
    killed = operator(**arguments)

    def kill() -> None:
        killed.on_kill()
        raise WorkerDied

    deployment.on_wait = kill
    with pytest.raises(WorkerDied):
        deployment.attempt(killed, tries)

    assert deployment.killed == deployment.submitted
    assert len(deployment.submitted) == 1
    assert deployment.scene.ledger.all_runs() == {}, "the run stays resumable"


@pytest.mark.parametrize("tracked", [True, False])
def test_driver_and_spark_submit_are_ended_when_the_task_is_killed_while_submitting(
    cluster: Cluster, tracked: bool, wait_until: Callable[..., Any]
) -> None:
    deployment, arguments = cluster
    if not tracked:
        arguments = {**_CLUSTER, "durable": False}
    (deployment.folder / "waits").touch()
    operator = cast("RunTopologyOperator", plain(**arguments))
    failures: list[BaseException] = []

    def attempt() -> None:
        try:
            deployment.attempt(operator, 1)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    wait_until(
        lambda: (
            operator._hook and (operator._hook._yarn_application_id or operator._hook._kubernetes_driver_pod)
        ),
        "the driver's id",
    )

    operator.on_kill()

    thread.join(30)
    assert not thread.is_alive()
    assert failures
    assert set(deployment.killed) == set(deployment.submitted)
    assert operator._hook is not None
    assert operator._hook._submit_sp is not None
    assert session_members(operator._hook._submit_sp.pid) == []


def test_deployments_that_cannot_work_are_refused_for_good(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection(monkeypatch, "spark://master:7077")
    with pytest.raises(AirflowFailException, match=r"no Python driver(?s:.)*use deploy mode 'client'"):
        deployment.attempt(plain(**_CLUSTER), 1)
    connection(monkeypatch, "yarn")
    with pytest.raises(AirflowFailException, match=r"yarn_track_via_rm_api=True(?s:.)*durable=False"):
        deployment.attempt(plain(**_CLUSTER), 1)
    assert deployment.submitted == []
