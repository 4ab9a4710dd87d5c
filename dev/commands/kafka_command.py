"""``dev/kafka``: start, stop, look at and reset one embedded broker, and run Kafka's own tools against it."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from pathlib import Path

from dev.servers.embedded import Broker, BrokerError, tool_command

_ROOT = Path(__file__).parents[2]
_TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}
_OFFLINE_TOOLS = ("kafka-dump-log",)


def main(arguments: list[str]) -> int:
    """Run one command; the exit code is 0 on success, 1 on failure, 3 for ``status`` when nothing runs."""
    options = _parser().parse_args(arguments)
    broker = Broker(port=options.port, folder=Path(options.dir).resolve(), heap=options.heap)
    try:
        return _run(options, broker)
    except BrokerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace, broker: Broker) -> int:
    match options.command:
        case "start":
            news = "started" if broker.start() else "was running already"
            print(f"broker {news}: {broker.bootstrap} (SASL/PLAIN {broker.sasl_bootstrap}), pid {broker.pid}")
        case "stop":
            print("broker stopped" if broker.stop() else "no broker was running")
        case "status":
            if broker.pid is None:
                print("no broker is running")
                return 3
            print(
                f"broker is running: 127.0.0.1:{broker.running_port}, pid {broker.pid}, "
                f"folder {broker.folder}"
            )
        case "reset":
            was_running, port = broker.pid is not None, broker.running_port or broker.port
            broker.wipe()
            if was_running:
                dataclasses.replace(broker, port=port).start()
            print(
                f"broker reset: all topics are gone{f', it runs again on port {port}' if was_running else ''}"
            )
        case "tool":
            _exec_tool(options.tool, options.arguments, broker)
    return 0


def _exec_tool(tool: str, arguments: list[str], broker: Broker) -> None:
    port = broker.running_port or broker.port
    if tool not in _OFFLINE_TOOLS and "--bootstrap-server" not in arguments:
        arguments = ["--bootstrap-server", f"127.0.0.1:{port}", *arguments]
    command = tool_command(_TOOLS[tool], arguments)
    os.execv(command[0], command)  # noqa: S606 - the tool takes this process' place and terminal


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--port", type=int, default=9092, help="plain listener; also takes the next two (default 9092)"
    )
    common.add_argument("--dir", default=str(_ROOT / ".kafka" / "broker"), help="the broker's folder")
    common.add_argument("--heap", default="512m", help="Java's -Xmx (default 512m)")
    parser = argparse.ArgumentParser(prog="dev/kafka", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("start", "start the broker and wait until it answers"),
        ("stop", "stop it and wait for its end"),
        ("status", "exit code 0 when it runs, 3 when not"),
        ("reset", "delete all its topics"),
    ):
        commands.add_parser(name, help=text, parents=[common])
    tool = commands.add_parser("tool", help="run one of Kafka's own tools", parents=[common])
    tool.add_argument("tool", choices=sorted(_TOOLS))
    tool.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
