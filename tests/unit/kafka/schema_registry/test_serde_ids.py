from __future__ import annotations

import json
import pickle

import msgspec
import pytest

from airflow_kstreams.kafka import schema_registry
from airflow_kstreams.kafka.schema_registry import SchemaRegistry
from airflow_kstreams.streams import serdes
from airflow_kstreams.streams.errors import ConfigError, TopologyError
from tests.support.kafka.registries import FLIGHT, FLIGHT_2, all_different, copy_topology, new_registry

pytestmark = pytest.mark.promise("registry-credentials-stay-out")


def test_serdes_differ_when_format_schema_or_options_do() -> None:
    made = all_different(new_registry())
    assert len({serde.id for serde in made}) == len(made)
    assert len(set(made)) == len(made)


def test_serdes_are_equal_when_only_the_registry_or_the_layout_differs() -> None:
    loose = json.dumps(json.loads(FLIGHT), indent=4, sort_keys=True)
    assert new_registry().avro(FLIGHT) == SchemaRegistry().avro(loose)
    assert all_different(new_registry()) == all_different(SchemaRegistry("https://registry"))


def test_id_stays_the_same_when_a_serde_is_bound() -> None:
    for serde in all_different(new_registry()):
        bound = serde.bound("flights", "value")
        assert bound == serde
        assert bound is not serde
        assert bound.bound("elsewhere", "key") is bound


def test_topology_hash_changes_when_the_schema_does() -> None:
    registry = new_registry()
    assert copy_topology(registry.avro(FLIGHT)).topology_hash() != (
        copy_topology(registry.avro(FLIGHT_2)).topology_hash()
    )


def test_no_address_and_no_secret_shows_when_a_topology_is_printed_or_planned() -> None:
    schema_registry.configure(
        {
            "schema.registry.url": "https://canary-host",
            "schema.registry.basic.auth.user.info": "canary-name:canary-password",
        }
    )
    try:
        registry = SchemaRegistry("https://canary-host")
        for serde in all_different(registry):
            topology = copy_topology(serde)
            plan = topology.plan("app")
            shown = [repr(serde), serde.id, repr(topology), topology.describe(), repr(plan)]
            shown += [msgspec.json.encode(plan).decode(), topology.topology_hash(), repr(topology.nodes)]
            shown += [repr(serde.bound("flights", "value"))]
            assert "canary" not in "".join(shown)
    finally:
        schema_registry.configure({})


def test_registry_never_travels_when_somebody_pickles_a_serde() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(new_registry().avro(FLIGHT))


def test_use_is_refused_with_a_remedy_when_a_serde_was_not_bound() -> None:
    serde = new_registry().avro(FLIGHT)
    with pytest.raises(ConfigError, match=r"avro\(demo\.Flight, \w+\) is used without a topic") as caught:
        serde.serialize({"carrier": "UA"})
    assert "serde.bound(" in caught.value.fix
    with pytest.raises(ConfigError, match="without a topic"):
        serde.deserialize(b"\x00")


def test_url_is_refused_with_the_users_line_when_it_holds_credentials() -> None:
    with pytest.raises(
        TopologyError, match=r"SchemaRegistry at .*test_serde_ids\.py:\d+ holds cred"
    ) as caught:
        SchemaRegistry("https://alice:canary@registry")
    assert "canary" not in str(caught.value)
    assert "schema.registry.basic.auth.user.info" in caught.value.fix
    with pytest.raises(TopologyError, match="is no URL of a schema registry"):
        SchemaRegistry("registry:8081")


def test_plain_serde_serves_every_topic_when_bound() -> None:
    for serde in (serdes.string(), serdes.json(), serdes.int64()):
        assert serde.bound("flights", "key") is serde
