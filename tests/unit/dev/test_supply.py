"""What development installs is pinned by hashes: Python packages in the lock, jars in a file of sums."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dev.commands import jar_checksums
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


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "libs-1.partial"
    folder.mkdir()
    for name in ("a-1.jar", "b-2.jar"):
        (folder / name).write_bytes(name.encode())
    (tmp_path / "sums").write_text(f"{'0' * 64}  other-1/a-1.jar\n")
    jar_checksums.write(folder, tmp_path / "sums")
    return folder


def test_jars_pass_when_they_are_the_listed_ones(jars: Path) -> None:
    assert not list(jar_checksums.refusals(jars, jars.parent / "sums"))
    assert (jars.parent / "sums").read_text().count("\n") == 3


def test_jar_is_refused_by_name_when_it_differs(jars: Path) -> None:
    (jars / "b-2.jar").write_bytes(b"another")
    (refusal,) = jar_checksums.refusals(jars, jars.parent / "sums")
    assert re.fullmatch(r"libs-1/b-2\.jar: its SHA-256 is \w{64}, sums says \w{64}", refusal)


def test_jar_is_refused_by_name_when_it_is_one_more_or_one_less(jars: Path) -> None:
    (jars / "b-2.jar").rename(jars / "c-2.jar")
    gone, added = jar_checksums.refusals(jars, jars.parent / "sums")
    assert gone == "libs-1/b-2.jar: not fetched"
    assert added.startswith("libs-1/c-2.jar: not listed in sums, its SHA-256 is ")


def test_command_says_what_to_do_when_a_jar_is_refused(
    jars: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert jar_checksums.main([str(jars)]) == 1
    said = capsys.readouterr().err
    assert "libs-1/a-1.jar: not listed in jars.sha256" in said
    assert "What to do: run dev/setup again" in said
    assert said.endswith(f"--write {jars}\n")


def test_every_folder_of_jars_that_setup_fetches_has_sums() -> None:
    """The folders are those of dev/lib/env.sh; some are fetched by benchmarks alone."""
    env = (ROOT / "dev" / "lib" / "env.sh").read_text(encoding="utf-8")
    versions = dict(re.findall(r"^(\w+_version)=(\S+)$", env, re.MULTILINE))
    folders = {
        f"{prefix}-{versions[version]}"
        for prefix, version in re.findall(r"\.kafka/([\w-]+)-\$(\w+_version)", env)
    }
    assert len(folders) == 5
    listed = {
        line.partition("  ")[2].partition("/")[0] for line in jar_checksums.SUMS.read_text().splitlines()
    }
    assert listed == folders


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
