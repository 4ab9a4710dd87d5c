"""The ways by which something of others comes in, each with cases that are drawn from a seed.

A case goes the product's own way in: a whole run on Kafka in memory, a registry over HTTP, a file that is
read. It raises an error of ours, or it is taken or left out, and then what it must not touch is still right.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.protocol.slice.metadata_records import MetadataRecord
from airflow_kstreams.kafka import schema_registry
from airflow_kstreams.kafka.configuration.client_settings import check_client_settings
from airflow_kstreams.kafka.configuration.config_file import read_client_config
from airflow_kstreams.kafka.configuration.known_settings import REGISTRY_SETTINGS
from airflow_kstreams.kafka.schema_registry import SchemaRegistry
from airflow_kstreams.streams import KStreamBuilder, StoreSpec, Topology, serdes
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.windows import TumblingWindow
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.fuzzing.lane import Feed, Outcome
from tests.support.fuzzing.poison import drawn_bytes, drawn_json, drawn_text, poisoned
from tests.support.kafka.in_process import Application
from tests.support.kafka.registries import FLIGHT, FLIGHT_JSON, avro_string, framed, zigzag
from tests.support.kafka.registry_server import registry_server
from tests.support.kafka.reset_scene import APP, LEDGER, METADATA, ResetScene, counting

_NOW_MS = 1_700_000_000_000
_HANDLERS = ("deserialization.exception.handler", "processing.exception.handler")


def _reading() -> Topology:
    """Read each format, count in windows, and write letters where a record is at fault."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    numbers = builder.stream("numbers", value_serde=serdes.int64())
    numbers.map_values(lambda value: {"number": value}).send_to("out")
    found = builder.stream("in").filter(lambda key, value: value["keep"] is not None)
    found.map(lambda key, value: (str(value["keep"]), value)).through("mid").send_to("out")
    builder.stream("mid").group_by_key().windowed_by(
        TumblingWindow(size_ms=1_000, grace_ms=1_000)
    ).count().to_stream().map(lambda key, value: (key.key, value)).send_to("out")
    return builder.build()


def _record(random: Random, folder: Path, *, with_headers: bool) -> Outcome:
    clock = ManualClock(now_ms=_NOW_MS)
    kafka = InMemoryKafka(clock=clock)
    for topic in ("in", "numbers", "mid", "out", "app-dead-letter"):
        kafka.create_topic(topic)
    handler = random.choice(("fail", "skip", "skip", "dead-letter", "dead-letter"))
    kafka.append("in", b'{"keep": 1}', b"good", timestamp_ms=_NOW_MS)
    for _ in range(random.randrange(1, 4)):
        headers: Headers | None = None
        value: bytes | None = random.choice((drawn_bytes, drawn_json))(random)
        if with_headers:
            value = random.choice((b'{"keep": 2}', b'{"keep": 2}', value))
            names = ("kstreams.first.place", "kstreams.run", "kstreams.exception", "traceparent")
            headers = [
                (
                    random.choice((*names, drawn_text(random)[:300])),
                    random.choice((None, drawn_bytes(random))),
                )
                for _ in range(random.randrange(1, 5))
            ]
        kafka.append(
            random.choice(("in", "in", "numbers")),
            random.choice((value, value, value, None)),
            random.choice((b"key", None, drawn_bytes(random))),
            headers=headers,
            timestamp_ms=random.choice((_NOW_MS, _NOW_MS, 0, -1, 2**62, 2**63 - 1)),
        )
    kafka.append("in", b'{"keep": 3}', b"good", timestamp_ms=_NOW_MS)
    app = Application(
        application_id=APP,
        topology=_reading(),
        settings=dict.fromkeys(_HANDLERS, handler),
        on=kafka,
        clock=clock,
    )
    summary = app.run("first")
    written = [record.value() for record in kafka.records("out")]
    if not {b'{"keep": 1}', b'{"keep": 3}'} <= {
        json.dumps(json.loads(value)).encode() for value in written if value
    }:
        raise AssertionError("a good record is missing")
    left_out = summary.records_skipped or kafka.records("app-dead-letter")
    return "skipped" if left_out else "taken"


def _registry(random: Random, _: Path) -> Outcome:
    texts = (FLIGHT, FLIGHT_JSON, 'syntax = "proto3"; message A { string a = 1; }')
    schema = random.choice((*texts, drawn_json(random).decode(), drawn_text(random)[:2_000]))
    if random.random() < 0.4:
        at = random.randrange(len(schema) + 1)
        schema = schema[:at] + drawn_text(random)[:50] + schema[at + random.randrange(9) :]
    told: Any = {"schema": schema, "schemaType": random.choice(("AVRO", "JSON", "PROTOBUF", "X", 5, None))}
    if random.random() < 0.3:
        told["references"] = [
            {"name": "a", "subject": drawn_text(random)[:20], "version": random.choice((1, -1))}
        ]
    told.update(id=random.choice((5, -1, "x")), version=random.choice((1, None, [])))
    answer = random.choice((told, told, told, told, drawn_bytes(random), drawn_json(random)))
    with registry_server() as answers:
        for request in (("GET", "/schemas/ids/5"), ("POST", "/subjects/in-value/versions")):
            answers.by_request[request] = (random.choice((200, 200, 200, 200, 204, 302, 404, 500)), answer)
        schema_registry.configure({"schema.registry.url": answers.url, "schema.registry.max.retries": "0"})
        registry = SchemaRegistry()
        serde = random.choice((registry.avro(), registry.avro(FLIGHT), registry.json_schema())).bound(
            "in", "value"
        )
        try:
            good = avro_string("UA") + zigzag(12)
            serde.deserialize(
                framed(5, random.choice((good, b'{"carrier":"UA"}', drawn_bytes(random)[:100_000])))
            )
        except ValueError:
            return "skipped"
    return "taken"


def _own_topic(random: Random, folder: Path, *, topic: str) -> Outcome:
    scene = ResetScene()
    scene.send("a", "b")
    scene.run("first")
    scene.send("a")
    scene.begin("second")
    written = scene.kafka.records(topic)
    for _ in range(random.choice((1, 1, 2, 4))):
        found = random.choice(written)
        good = MetadataRecord(topic, found.value(), found.key() or b"", found.headers())
        drawn = MetadataRecord(topic, drawn_bytes(random), drawn_bytes(random)[:100], None)
        record = drawn if random.random() < 0.2 else poisoned(good, random)
        scene.kafka.append(topic, record.value, record.key, headers=record.headers)
    if random.random() < 0.3:
        scene.kafka.compact(topic)
    refused = False
    for look in (lambda: read_status(scene.kafka, APP, clock=scene.clock), lambda: scene.begin("third")):
        try:
            look()
        except KStreamsError as error:
            refused = True
            if not error.fix:
                raise
    scene.reset(repair_ledger=True, force=True)
    with suppress(KStreamsError):
        scene.reset(delete_stop_offsets=True, force=True)
    scene.reset(inputs="in", force=True)
    scene.run("last")
    if "out" not in scene.kafka.topics():
        raise AssertionError("a topic of others is gone")
    return "refused" if refused else "taken"


_NAMES = (
    *(
        "bootstrap.servers",
        "security.protocol",
        "sasl.mechanism",
        "sasl.username",
        "sasl.password",
        "ssl.ca.pem",
    ),
    *(
        "debug",
        "client.id",
        "socket.timeout.ms",
        "plugin.library.paths",
        "sasl.jaas.config",
        "oauth_cb",
        "group.id",
    ),
    *(
        "ssl.key.pem",
        "ssl.ca.location",
        "client.rack",
        "enable.ssl.certificate.verification",
        "statistics.interval.ms",
    ),
    *(f"schema.registry.{name}" for name in (*REGISTRY_SETTINGS["texts"], *REGISTRY_SETTINGS["numbers"])),
)


def _settings(random: Random) -> dict[str, object]:
    values: tuple[object, ...] = (
        "true",
        "1",
        "-1",
        "9" * 5_000,
        "SASL_SSL",
        "http://u:p@h:1/?a#b",
        "http://[",
        None,
        1,
        1.5,
        [],
        {},
    )
    drawn: dict[str, object] = {"bootstrap.servers": "127.0.0.1:1"}
    for _ in range(random.randrange(4)):
        name = random.choice((*_NAMES, drawn_text(random)[:300]))
        drawn[name] = random.choice((*values, drawn_text(random)))
    return drawn


def _connection(random: Random, _: Path) -> Outcome:
    checked = check_client_settings(_settings(random))
    schema_registry.configure(checked)
    return "taken"


def _settings_file(random: Random, folder: Path) -> Outcome:
    path = folder / random.choice(("client.json", "client.properties"))
    lines = [f"{name}{random.choice('=: ')}{value}" for name, value in _settings(random).items()]
    properties = random.choice(("\n", "\r", "\\\n")).join(lines).encode(errors="surrogatepass")
    as_json = json.dumps(_settings(random)).encode()
    path.write_bytes(
        random.choice((properties, properties, as_json, drawn_bytes(random), drawn_json(random)))
    )
    taken: Outcome = "refused"
    with suppress(KStreamsError):
        check_client_settings(read_client_config(path))
        taken = "taken"
    names = ("commit.every.records", "state.dir", "autostop.at", "growth.moves.keys", "num.threads.per.task")
    given: dict[str, object] = {
        random.choice(names): random.choice((drawn_text(random), 1, -1, None, [], "1" * 5_000, 1e308))
    }
    with suppress(KStreamsError):
        ApplicationSettings.parse(APP, given)
    return taken


def _state_folder(random: Random, folder: Path) -> Outcome:
    store = StoreSpec(name="counts", key_serde=serdes.string(), value_serde=serdes.int64(), storage="rocksdb")
    target = folder / "others"
    target.mkdir(mode=0o700)
    (target / "kept").write_bytes(b"kept")
    scene = ResetScene(topology=counting(store), settings={"state.dir": str(folder / "state")})
    (folder / "state").mkdir(mode=0o700)
    scene.send("a", "b", "a")
    scene.run("first")
    files = sorted(path for path in (folder / "state").rglob("*"))
    for _ in range(random.choice((1, 1, 3))):
        path = random.choice(files)
        with suppress(OSError):
            _change(path, random, target)
    scene.send("a")
    try:
        scene.run("second")
    finally:
        if (target / "kept").read_bytes() != b"kept":
            raise AssertionError("a file of others was changed")
    if dict(scene.counts()) != {"a": 3, "b": 1}:
        raise AssertionError("the counts are wrong")
    return "taken"


def _change(path: Path, random: Random, target: Path) -> None:
    """Change a file or folder as an accident, or another user, may; nothing that lies behind a link."""
    if path.is_symlink():
        return
    match random.randrange(5):
        case 0 if path.is_file():
            path.write_bytes(drawn_bytes(random))
        case 1 if path.is_file():
            os.truncate(path, random.randrange(path.stat().st_size + 1))
        case 2 if path.is_file():
            data = bytearray(path.read_bytes() or b"\x00")
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            path.write_bytes(data)
        case 3:
            path.rename(path.with_name(path.name + "-gone"))
            path.symlink_to(random.choice((target, target / "kept", Path("/dev/zero"), path)))
        case _:
            path.chmod(random.choice((0o777, 0o000, 0o666)))


def _topic_name(random: Random, _: Path) -> Outcome:
    names = ["in", "by-value", "mid", "out"]
    for place in range(4):
        if random.random() < 0.3:
            odd = drawn_text(random).encode(errors="replace").decode()
            names[place] = random.choice(
                (odd, "in", "a.b", "x" * 249, "..", "__consumer_offsets", f"app-{odd}")
            )
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    found = builder.stream(names[0]).map(lambda key, value: (value, value), name=names[1]).through(names[2])
    found.send_to(names[3])
    topology = builder.build()
    application_id = random.choice(("app", "app", drawn_text(random)[:300]))
    topology.plan(application_id)
    topology.describe(application_id=application_id)
    topology.to_mermaid(application_id=application_id)
    ApplicationSettings.parse(application_id)
    clock = ManualClock(now_ms=_NOW_MS)
    kafka = InMemoryKafka(clock=clock)
    for topic in {names[0], names[2], names[3]}:
        kafka.create_topic(topic)
    kafka.append(names[0], b"v", b"k", timestamp_ms=_NOW_MS)
    Application(application_id=application_id, topology=topology, on=kafka, clock=clock).run("first")
    return "taken"


#: Name -> the entry.
ENTRIES: Mapping[str, Feed] = {
    "input record": partial(_record, with_headers=False),
    "header": partial(_record, with_headers=True),
    "registry answer": _registry,
    "metadata": partial(_own_topic, topic=METADATA),
    "ledger": partial(_own_topic, topic=LEDGER),
    "connection": _connection,
    "settings file": _settings_file,
    "state folder": _state_folder,
    "topic name": _topic_name,
}
