"""An Airflow home of the test session's own. Airflow reads its environment once, at its first import, so test
folders that use Airflow call ``prepare`` from their conftest.
"""

from __future__ import annotations

import atexit
import json
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.fernet import Fernet

from dev.flight_demo.local_airflow import EXAMPLES, add_local_settings, dag_bundles

if TYPE_CHECKING:
    import pytest

_HOME_PREFIX = "kstreams-airflow-"
#: Folder of the DAGs that integration tests run.
TEST_DAGS = Path(__file__).parents[2] / "integration" / "airflow" / "dags"
#: Folder of the example DAGs, which they run, too.
EXAMPLE_DAGS = EXAMPLES["examples"]
#: Both, by the names of their bundles.
DAG_FOLDERS = {"tests": TEST_DAGS, **EXAMPLES}


def add_connection(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the connection that a text's ``airflow connections add ...`` adds, to the environment."""
    _, _, _, conn_id, *options = shlex.split(text[text.index("airflow connections add") :])
    names = {"--conn-type": "conn_type", "--conn-host": "host", "--conn-extra": "extra"}
    fields = {names[name]: value for name, value in zip(options[::2], options[1::2], strict=True)}
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))


def prepare() -> Path:
    """Point Airflow at a fresh home, once per process, and return it: workers of pytest that inherit the home
    of the process that starts them must not share its database.
    """
    home, prefix = os.environ.get("AIRFLOW_HOME", ""), f"{_HOME_PREFIX}{os.getpid()}-"
    if Path(home).name.startswith(prefix):
        return Path(home)
    if "airflow.configuration" in sys.modules:
        raise RuntimeError("Airflow was imported before its home was prepared")
    made = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    add_local_settings(made)
    for name in [name for name in os.environ if name.startswith(("AIRFLOW__", "AIRFLOW_CONN_"))]:
        del os.environ[name]
    os.environ.update(
        {
            "AIRFLOW_HOME": str(made),
            "AIRFLOW__CORE__DAGS_FOLDER": str(TEST_DAGS),
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": dag_bundles(DAG_FOLDERS),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            # As in any deployment: without a key, Airflow keeps connections in its database as they are.
            "AIRFLOW__CORE__FERNET_KEY": Fernet.generate_key().decode(),
            "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{made / 'airflow.db'}",
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(made / "logs"),
        }
    )
    return made
