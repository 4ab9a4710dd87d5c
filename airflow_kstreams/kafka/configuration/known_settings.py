"""Reads ``known_settings.toml``: names of librdkafka's settings, for hints, Java's with what to write in
their place, and those of a schema registry's client.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources

_FILE = resources.files(__package__).joinpath("known_settings.toml")
_NAMES = tomllib.loads(_FILE.read_text(encoding="utf-8"))

KNOWN_SETTINGS: tuple[str, ...] = tuple(_NAMES["librdkafka"])
#: Java's settings that librdkafka lacks, and what to write instead.
JAVA_SETTINGS: Mapping[str, str] = _NAMES["java"]
#: The settings of a schema registry's client that are ``texts``, and those that are whole ``numbers``.
REGISTRY_SETTINGS: Mapping[str, Sequence[str]] = _NAMES["registry"]
