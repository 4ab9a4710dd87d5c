"""One PostgreSQL server of its own, from the system's packages, for tests: a folder and a port."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.servers.embedded import HOST, free_port

_READY_SECONDS = 30.0
_STOP_SECONDS = 30.0
_USER = "airflow"
#: What is lost with the machine may be lost.
_CLUSTER = ("--no-sync", "--encoding", "UTF8", "--locale", "C")
_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")


class PostgresError(Exception):
    """The server could not be found or started; the text says what to do."""


@contextmanager
def postgres() -> Iterator[str]:
    """Run a server with an empty database for the duration of the block.

    :return: SQLAlchemy's address of the database.
    :raises PostgresError: PostgreSQL is not installed, or did not start.
    """
    programs = _programs()
    # The server's own account must reach it, which it could not below a folder of ours.
    folder = Path(tempfile.mkdtemp(prefix="kstreams-postgres-"))
    try:
        account = _account()
        if account is not None:
            os.chown(folder, account.pw_uid, account.pw_gid)
        data = folder / "data"
        _run(
            [programs / "initdb", "--pgdata", data, "--username", _USER, "--auth", "trust", *_CLUSTER],
            account,
        )
        port = free_port()
        options = [part for option in _FAST for part in ("-c", option)]
        command = [programs / "postgres", "-D", data, "-h", HOST, "-p", str(port), "-k", folder, *options]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                _dying_with_us([str(part) for part in command]),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                start_new_session=True,
                **_identity(account),  # type: ignore[call-overload]
            )
        try:
            _wait_until_ready(programs, port, server, folder / "log")
            _run([programs / "createdb", "-h", HOST, "-p", str(port), "-U", _USER, _USER], account)
            yield f"postgresql+psycopg://{_USER}@{HOST}:{port}/{_USER}"
        finally:
            # Its "immediate" shutdown: nobody needs the data any more.
            server.send_signal(signal.SIGQUIT)
            server.wait(_STOP_SECONDS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    """Return the folder of PostgreSQL's programs; Debian keeps them out of the PATH."""
    folders = [Path(found).resolve().parent] if (found := shutil.which("initdb")) else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if all((folder / name).exists() for name in ("initdb", "postgres", "createdb", "pg_isready")):
            return folder
    raise PostgresError(
        "PostgreSQL was not found: install postgresql (Debian, Ubuntu) or postgresql-server (Fedora, RHEL), "
        "or let dev/setup --postgres do it"
    )


def _account() -> pwd.struct_passwd | None:
    """Return the account to run it under: PostgreSQL refuses root. None means our own."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresError("PostgreSQL does not run as root, and there is no account postgres or nobody")


def _identity(account: pwd.struct_passwd | None) -> dict[str, object]:
    if account is None:
        return {}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _run(command: list[object], account: pwd.struct_passwd | None) -> None:
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd="/",
        **_identity(account),  # type: ignore[call-overload]
    )
    if done.returncode != 0:
        raise PostgresError(f"{command[0]} failed: {done.stdout.strip()}")


def _dying_with_us(command: list[str]) -> list[str]:
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "QUIT", *command] if setpriv else command


def _wait_until_ready(programs: Path, port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    ready = [str(programs / "pg_isready"), "-q", "-h", HOST, "-p", str(port), "-U", _USER]
    while subprocess.run(ready, check=False).returncode != 0:
        if server.poll() is not None or time.monotonic() > deadline:
            raise PostgresError(f"PostgreSQL did not start: {log.read_text(errors='replace').strip()}")
        time.sleep(0.1)
