"""What development installs is pinned by hashes: Python packages in the lock, jars in a file of sums."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dev.commands import jar_checksums
from dev.installations.corners import CORNERS
from dev.reference_pages.licenses_page import PackageLicense, package_licenses
from tests.support.airflow.python_environment import ROOT

_LOCK = (ROOT / "dev" / "requirements.lock").read_text(encoding="utf-8")
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)==\S+(?P<marker> ; [^\\\n]+)?(?P<hashes>( \\\n    --hash=sha256:[0-9a-f]{64})+)"
)


def test_lock_holds_pinned_names_with_hashes_and_nothing_else() -> None:
    assert not [entry for entry in re.split(r"\n(?=\S)", _LOCK.rstrip()) if not _REQUIREMENT.fullmatch(entry)]


def test_lock_holds_what_is_asked_for() -> None:
    locked = {canonicalize_name(found["name"]) for found in _REQUIREMENT.finditer(_LOCK)}
    asked = (ROOT / "dev" / "requirements.in").read_text(encoding="utf-8").splitlines()
    names = {canonicalize_name(Requirement(line).name) for line in asked if line and not line.startswith("#")}
    assert names <= locked


def test_hashes_are_not_those_of_one_platform() -> None:
    """Of a package with compiled parts every wheel counts: there are more of them than a platform has."""
    hashes = {found["name"]: found["hashes"].count("sha256") for found in _REQUIREMENT.finditer(_LOCK)}
    assert min(hashes[name] for name in ("confluent-kafka", "msgspec", "numpy", "pyarrow", "rocksdict")) > 9


@pytest.mark.parametrize("folder", ["libs-9", "streams-9"])
def test_sums_are_those_of_the_folder_when_they_are_written_anew(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "a-1.jar").write_bytes(b"a")
    sums = tmp_path / "sums"
    sums.write_text(f"{'0' * 64}  {folder}/old.jar\n{'1' * 64}  other-1/a-1.jar\n")

    jar_checksums.write(tmp_path / folder, sums)

    assert [line.partition("  ")[2] for line in sums.read_text().splitlines()] == sorted(
        [f"{folder}/a-1.jar", "other-1/a-1.jar"]
    )


def test_every_folder_of_jars_that_setup_fetches_has_sums() -> None:
    """Those of dev/lib/env.sh, of which benchmarks alone fetch some, and of the brokers of dev/matrix."""
    env = (ROOT / "dev" / "lib" / "env.sh").read_text(encoding="utf-8")
    versions = dict(re.findall(r"^(\w+_version)=(?:\$\{\w+:-)?([\w.]+)\}?$", env, re.MULTILINE))
    folders = {
        f"{prefix}-{versions[version]}"
        for prefix, version in re.findall(r"\.kafka/([\w-]+)-\$(\w+_version)", env)
    }
    assert len(folders) == 5
    for folder in folders | {f"libs-{corner.broker}" for corner in CORNERS}:
        sums = jar_checksums.sums_of(Path(folder)).read_text()
        assert f"  {folder}/" in sums, folder


def test_all_brings_no_package_that_asks_for_the_users_own_code() -> None:
    found = package_licenses()
    assert {"apache-airflow", "confluent-kafka", "pyspark", "rocksdict"} <= {each.name for each in found}
    assert not [each for each in found if not each.permissive]


@pytest.mark.parametrize(
    ("stated", "permissive"),
    [
        ("MIT", True),
        ("MIT OR GPL-2.0-or-later", True),
        ("BSD-3-Clause AND (MIT OR GPL-2.0-only)", False),
        ("GNU General Public License (GPL)", False),
        ("", False),
    ],
)
def test_license_is_permissive_if_one_choice_is(stated: str, permissive: bool) -> None:
    assert PackageLicense(name="some", license=stated).permissive is permissive
