"""Local state whose process was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from airflow_kstreams.streams.state.files.state_folder import LocalFiles, StateFolder


def test_kernel_lets_go_of_the_claim_when_a_process_is_killed(tmp_path: Path) -> None:
    claiming = (
        "import sys, pathlib\n"
        "from airflow_kstreams.streams.state.files.state_folder import LocalFiles\n"
        "from airflow_kstreams.streams.state.files.state_folder import StateFolder\n"
        "folder = StateFolder.claim(pathlib.Path(sys.argv[1]), LocalFiles())\n"
        "print(folder.path, flush=True)\n"
        "sys.stdin.read()\n"
    )
    home = tmp_path / "0_1"
    command = [sys.executable, "-c", claiming, str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        claimed = Path(process.stdout.readline().strip())
        StateFolder.claim(home, LocalFiles()).discard()
        assert claimed.is_dir(), "its process is alive"
        process.kill()
        process.wait(30)
        StateFolder.claim(home, LocalFiles()).discard()
        assert list(tmp_path.iterdir()) == []
