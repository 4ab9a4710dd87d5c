"""The machine that figures come from, in a line."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import psutil

from dev.servers import embedded


def describe() -> str:
    """Return processor, memory and the versions that matter."""
    memory_gb = psutil.virtual_memory().total / 1e9
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return ", ".join(
        (
            f"{os.cpu_count()} cores of {_processor()}",
            f"{memory_gb:.0f} GB",
            f"Linux {platform.release().split('-')[0]}",
            f"Python {platform.python_version()}",
            java.splitlines()[0].replace('"', "") if java else "no Java",
            f"Kafka {embedded.libraries_version(embedded.kafka_libraries())}",
            f"Spark {version('pyspark')}",
            f"confluent-kafka {version('confluent-kafka')}",
        )
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
