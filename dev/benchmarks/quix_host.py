"""Runs the benchmarks' topologies in Quix Streams; started by the Python of an environment of its own.

Each line of standard input is a request, each line of standard output its answer, both JSON. A run lasts from
``run`` until it returns: as soon as the last record is processed the application is told to stop, which
commits at once, so nothing of the commit interval is waited for.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

HOUR_MS = 3_600_000


def main() -> int:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever the library prints is no answer
    # It is in an environment of its own. Importing it is a part of the start.
    import quixstreams  # type: ignore[import-not-found]  # noqa: F401

    _answer(answers, {"ready": True})
    for line in sys.stdin:
        _answer(answers, {"seconds": _run(json.loads(line))})
    return 0


def _answer(answers: Any, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _run(request: dict[str, Any]) -> float:
    from quixstreams import Application

    counted, left = _counted(request), request["records"]

    def note(topic: str, _partition: int, _offset: int) -> None:
        nonlocal left
        if counted in topic:
            left -= 1
            if left == 0:
                application.stop()

    started = time.monotonic()
    application = Application(
        broker_address=request["bootstrap"],
        consumer_group=request["application_id"],
        processing_guarantee=request["guarantee"].replace("_", "-"),
        auto_offset_reset="earliest",
        # With exactly once, the second stage sees nothing before the first has committed.
        commit_interval=1.0 if request["topology"] == "two_stage" else 5.0,
        state_dir=request["folder"],
        loglevel="WARNING",
        on_message_processed=note,
        **({} if request["system"].endswith("-plain") else _tuned(request["codec"])),
    )
    _TOPOLOGIES[request["topology"]](application, request)
    if left == 0:
        # Nothing is new: it starts, is given its partitions, finds nothing, and ends.
        application.run(timeout=0.01)
    else:
        application.run(collect=False)
    return time.monotonic() - started


def _tuned(codec: str) -> dict[str, Any]:
    return {
        "producer_extra_config": {"linger.ms": 20, "batch.size": 1_000_000, "compression.type": codec},
        "consumer_extra_config": {"fetch.message.max.bytes": 4_194_304, "queued.max.messages.kbytes": 32_768},
    }


def _counted(request: dict[str, Any]) -> str:
    """Return what the topics have in their names whose records count."""
    return "repartition__" if request["topology"] == "two_stage" else ""


def _stateless(application: Any, request: dict[str, Any]) -> None:
    (
        _stream(application, request, "events")
        .filter(lambda event: event["amount"] % 10 != 0)
        .apply(lambda event: {"id": event["id"], "user": event["user"], "cents": event["amount"] * 100})
        .to_topic(_output(application, request))
    )


def _padded(application: Any, request: dict[str, Any]) -> None:
    (
        _stream(application, request, "events")
        .filter(lambda event: event["amount"] % 10 != 0)
        .apply(
            lambda event: {
                "id": event["id"],
                "user": event["user"],
                "cents": event["amount"] * 100,
                "note": event["note"],
            }
        )
        .to_topic(_output(application, request))
    )


def _sum_by_key(application: Any, request: dict[str, Any]) -> None:
    (
        _stream(application, request, "events")
        .apply(lambda event, state: _add(event["amount"], state), stateful=True)
        .to_topic(_output(application, request))
    )


def _two_stage(application: Any, request: dict[str, Any]) -> None:
    (
        _stream(application, request, "events")
        .group_by(lambda event: f"{event['kind']}-{event['amount']}", name="kind")
        .apply(lambda event, state: _add(event["amount"], state), stateful=True)
        .to_topic(_output(application, request))
    )


def _join(application: Any, request: dict[str, Any]) -> None:
    weather = _stream(application, request, "weather")
    (
        _stream(application, request, "flights")
        .join_interval(weather, how="inner", on_merge=_departure, grace_ms=HOUR_MS, backward_ms=HOUR_MS - 1)
        .to_topic(_output(application, request))
    )


def _departure(flight: Any, observation: Any) -> Any:
    return {
        "carrier": flight["carrier"],
        "flight": flight["flight"],
        "dep_delay": flight["dep_delay"],
        "weather": observation["time_hour"],
    }


def _add(amount: int, state: Any) -> int:
    total: int = state.get("total", 0) + amount
    state.set("total", total)
    return total


def _stream(application: Any, request: dict[str, Any], name: str) -> Any:
    topic = application.topic(request["inputs"][name], key_deserializer="bytes", value_deserializer="json")
    return application.dataframe(topic)


def _output(application: Any, request: dict[str, Any]) -> Any:
    return application.topic(request["output"], key_serializer="bytes", value_serializer="json")


_TOPOLOGIES = {
    "stateless": _stateless,
    "padded": _padded,
    "sum_by_key": _sum_by_key,
    "two_stage": _two_stage,
    "join": _join,
}


if __name__ == "__main__":
    sys.exit(main())
