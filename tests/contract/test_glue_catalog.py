"""Tables of a Glue catalogue: Amazon's own client, and a Glue on this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from airflow_kstreams.streams.errors import ConfigError, TableMovedError, TableRefusedError
from tests.support.tables.object_store import (
    KEY,
    SECRET,
    ObjectStores,
    object_stores,
    python_of_object_stores,
)
from tests.support.tables.stands import APP, SINK, Stand, commit_of, iceberg_stand, looked, row

_CLIENT = ("boto3", "botocore", "s3transfer", "jmespath", "pyiceberg.catalog.glue")
_KEYS = {"iceberg.glue.access-key-id": KEY, "iceberg.glue.secret-access-key": SECRET}


@pytest.fixture(scope="module")
def glue() -> Iterator[ObjectStores]:
    with object_stores() as served:
        yield served


@pytest.fixture(scope="module")
def client() -> Iterator[None]:
    """Bring Amazon's client, which the tests' libraries lack; it finds no credentials of this machine."""
    with pytest.MonkeyPatch.context() as patched:
        if find_spec("boto3") is None:
            asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
            found = subprocess.run(
                [python_of_object_stores(), "-c", asked], capture_output=True, text=True, check=True
            )
            patched.setattr(sys, "path", [*sys.path, found.stdout.strip()])
        patched.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            patched.delenv(name, raising=False)
        for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            patched.setenv(name, "/nowhere")
        yield
    for name in [each for each in sys.modules if each.startswith(_CLIENT)]:
        del sys.modules[name]


def _stand(glue: ObjectStores, folder: Path, keys: dict[str, str]) -> Stand:
    """Return a table in a namespace of the test's own."""
    settings = {
        "iceberg.type": "glue",
        "iceberg.glue.endpoint": glue.url,
        "iceberg.glue.region": "us-east-1",
        "iceberg.warehouse": f"file://{folder}",
    }
    return iceberg_stand(settings | keys, name=folder.name)


@pytest.mark.usefixtures("client")
def test_run_lands_once_in_a_table_of_glue(glue: ObjectStores, tmp_path: Path) -> None:
    stand = _stand(glue, tmp_path, _KEYS)
    port = stand.created()
    stale = looked(port)
    file = stand.write(port, stale, row(1))
    port.commit(stale, commit_of(1, file))
    with pytest.raises(TableMovedError):
        stand.port().commit(stale, commit_of(1, file))
    assert looked(stand.port()).marks == {SINK: 1}
    assert stand.ids() == [1]


@pytest.mark.remedy("storage_errors.storage_error: {CREDENTIALS}")
@pytest.mark.usefixtures("client")
def test_table_of_glue_is_reached_once_the_connection_has_the_credentials(
    glue: ObjectStores, tmp_path: Path
) -> None:
    without = _stand(glue, tmp_path, {})
    for _ in range(2):
        with pytest.raises(TableRefusedError, match="credentials in the connection of the tables"):
            without.port().look(APP)
    assert _stand(glue, tmp_path, _KEYS).port().look(APP) is None


def test_client_of_glue_is_asked_for_where_it_is_missing(
    glue: ObjectStores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "pyiceberg.catalog.glue", raising=False)
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ConfigError, match=r"pyiceberg\[glue\]"):
        _stand(glue, tmp_path, _KEYS).port().look(APP)
