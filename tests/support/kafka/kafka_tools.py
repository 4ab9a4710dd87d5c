"""Kafka's own command line tools, asked by tests."""

from __future__ import annotations

import subprocess
from collections.abc import Collection

from dev.servers.embedded import tool_command

_BROKER_ID = "1"


def hanging_transactions(bootstrap: str) -> list[str]:
    """Return what ``kafka-transactions find-hanging`` lists, however young: one line per open transaction on
    a partition that its coordinator knows nothing of.

    The tool reads the partitions first and the coordinator later, so it also lists what a live writer ends in
    between. What really hangs is there when it is asked again.
    """
    found = _listed(bootstrap)
    if found:
        again = _listed(bootstrap).keys()
        found = {transaction: line for transaction, line in found.items() if transaction in again}
    return list(found.values())


def _listed(bootstrap: str) -> dict[tuple[str, ...], str]:
    """Return the lines by topic, partition, producer id, its epoch, that of its coordinator, and the
    transaction's first offset.
    """
    arguments = ["--bootstrap-server", bootstrap, "find-hanging", "--broker-id", _BROKER_ID]
    arguments += ["--max-transaction-timeout", "0"]
    command = tool_command("org.apache.kafka.tools.TransactionsCommand", arguments)
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    header, *lines = [line for line in told.stdout.splitlines() if line.strip()]
    if not header.startswith("Topic"):
        raise AssertionError(f"not the table of transactions: {told.stdout}{told.stderr}")
    return {tuple(line.split()[:6]): line for line in lines}


def group_lag(bootstrap: str, group: str, topics: Collection[str]) -> int:
    """Return the sum of what ``kafka-consumer-groups --describe`` prints as the lag of a group in topics."""
    arguments = ["--bootstrap-server", bootstrap, "--describe", "--group", group]
    command = tool_command("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", arguments)
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    lines = [line.split() for line in told.stdout.splitlines() if line.strip()]
    header = next(line for line in lines if line[0] == "GROUP")
    topic, lag = header.index("TOPIC"), header.index("LAG")
    return sum(int(line[lag]) for line in lines if line[topic] in topics)
