"""Looks at the connections of a client: its settings, the listeners of the brokers, and the schema registry.

A broker tells each client where to find every broker. A name that resolves in the brokers' own network and
nowhere else is the fault that beginners meet first: the first address answers, and every record fails.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial

from airflow_kstreams.batch.inspect.doctor.looks import (
    DoctorLook,
    Finding,
    Level,
    error,
    ok,
    side_by_side,
    unseen,
    warning,
)
from airflow_kstreams.streams.partitioning.partition_groups import first_few

_LISTENERS = "listeners"
#: For one broker: name and connection. Names that no server knows may take as long as the resolver tries.
_RESOLVE_SECONDS, _CONNECT_SECONDS = 6.0, 4.0


def look_at_client_settings(config: Mapping[str, object]) -> Iterator[Finding]:
    """Look for settings that switch verification off, or show a login to others."""
    from airflow_kstreams.kafka.configuration.weak_settings import weaknesses

    check, found = "client settings", list(weaknesses(config))
    yield from (warning(check, "weak-client-setting", weakness.text, weakness.fix) for weakness in found)
    if not found:
        yield ok(check, "servers are verified, and credentials travel by TLS, where they leave this machine")


def look_at_listeners(brokers: Mapping[int, tuple[str, int]]) -> Iterator[Finding]:
    """Look whether every broker can be reached from here, where it says that clients find it.

    :param brokers: id of a broker -> the host and port that it advertises.
    """
    if not brokers:
        yield unseen(_LISTENERS, "the cluster has no network")
        return
    looks = [
        DoctorLook(
            check=f"broker {broker} at {host}:{port}", findings=partial(_look_at_listener, broker, host, port)
        )
        for broker, (host, port) in sorted(brokers.items())
    ]
    found = side_by_side(looks, seconds=_RESOLVE_SECONDS)
    yield from (each for each in found if each.level is not Level.OK)
    reached = [each.text for each in found if each.level is Level.OK]
    if reached:
        yield ok(_LISTENERS, f"reached from here: {first_few(reached)}")


def _look_at_listener(broker: int, host: str, port: int) -> Iterator[Finding]:
    where = f"broker {broker} is advertised at {host}:{port}"
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as fault:
        yield error(
            _LISTENERS,
            "listener-unresolved",
            f"{where}, and that name does not resolve on this machine ({_reason(fault)}): the first address "
            "answers, and what is read or written there fails",
            f"let advertised.listeners of broker {broker} name it as this machine and the executors know it, "
            f"or make {host} known to their name servers or in /etc/hosts",
        )
        return
    refused = None
    for family, kind, protocol, _, address in addresses:
        try:
            with closing(socket.socket(family, kind, protocol)) as tried:
                tried.settimeout(_CONNECT_SECONDS)
                tried.connect(address)
        except OSError as fault:
            refused = fault
        else:
            yield ok(_LISTENERS, f"{host}:{port}")
            return
    yield error(
        _LISTENERS,
        "listener-unreachable",
        f"{where}, and takes no connection from this machine ({_reason(refused)}): what is read or written "
        "there fails",
        f"start broker {broker}, open the way to its port, or let its advertised.listeners name an address "
        "that this machine and the executors reach",
    )


def _reason(fault: OSError | None) -> str:
    return "no address" if fault is None else fault.strerror or str(fault)


def look_at_registry(config: Mapping[str, object]) -> Iterator[Finding]:
    """Look whether the schema registry of the client settings answers, and takes the login."""
    from airflow_kstreams.kafka.schema_registry.reachable import ask_registry
    from airflow_kstreams.streams.errors import KStreamsError

    check = "schema registry"
    try:
        url = ask_registry({name: str(value) for name, value in config.items()})
    except KStreamsError as fault:
        yield error(check, "registry-unfit", fault.cause, fault.fix)
    else:
        yield unseen(check, "client settings name none") if url is None else ok(check, f"{url} answers")
