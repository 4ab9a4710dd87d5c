"""What the page of settings says: application settings, and what is ours among the client's."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import griffe

from airflow_kstreams.streams.settings import SETTINGS, Setting
from dev.reference_pages.markup import escaped
from dev.reference_pages.public_api import PACKAGE, comment_above

_UNITS = {"ms": "milliseconds", "bytes": "bytes", "records": "records", "threads": "threads"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """An application setting, as Markdown.

    :param values: what it may be.
    :param reason: meaning, and the reason for the default.
    """

    name: str
    default: str
    values: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDefaults:
    """What a client is given unless the user says otherwise.

    :param client: ``reader`` or ``writer``.
    :param reason: why.
    """

    client: str
    reason: str
    settings: Mapping[str, str]


def application_settings() -> list[SettingRow]:
    """Return the application settings in the order of the source."""
    return [
        SettingRow(
            name=name,
            default=_default(setting),
            values=_values(name, setting),
            reason=escaped(setting.doc).replace("|", "\\|"),
        )
        for name, setting in SETTINGS.items()
    ]


def owned_by_engine(package: griffe.Module) -> Mapping[str, str]:
    """Return the client settings that the engine owns, with what to do instead."""
    constant = _constant(package, "configuration.client_settings.ENGINE_OWNED")
    owned: Mapping[str, str] = ast.literal_eval(str(constant.value))
    return owned


def running_code(package: griffe.Module) -> Sequence[str]:
    """Return the client settings that are refused, unless an administrator allows them, because they run
    code.
    """
    return tuple(ast.literal_eval(str(_constant(package, "configuration.code_settings.RUNS_CODE").value)))


def sending(package: griffe.Module) -> Sequence[str]:
    """Return the client settings that are refused, unless an administrator allows them, because they send
    what is the machine's own.
    """
    return tuple(ast.literal_eval(str(_constant(package, "configuration.code_settings.SENDS").value)))


def client_defaults(package: griffe.Module) -> list[ClientDefaults]:
    """Return what readers and writers are given unless the user says otherwise."""
    found: list[ClientDefaults] = []
    for client in ("reader", "writer"):
        constant = _constant(package, f"{client}._DEFAULTS")
        reason = " ".join(comment_above(constant).split())
        found.append(
            ClientDefaults(
                client=client,
                reason=reason.partition("Unless the user says otherwise. ")[2] or reason,
                settings=ast.literal_eval(str(constant.value)),
            )
        )
    return found


def _constant(package: griffe.Module, name: str) -> griffe.Attribute:
    found = package[f"kafka.{name}"]
    if not isinstance(found, griffe.Attribute):
        raise TypeError(f"{PACKAGE}.kafka.{name} is no constant")
    return found


def _default(setting: Setting) -> str:
    return f"`{setting.default}`" if setting.default != "" else "empty"


def _values(name: str, setting: Setting) -> str:
    if isinstance(setting.kind, tuple):
        return " or ".join(f"`{value}`" if value else "empty" for value in setting.kind)
    if setting.kind is str:
        return "text"
    if setting.maximum is not None:
        number = "decimal number" if setting.kind is float else "whole number"
        return f"{number}, {setting.minimum:,} to {setting.maximum:,}"
    unit = next((_UNITS[part] for part in reversed(name.split(".")) if part in _UNITS), "whole number")
    return f"{unit}, {setting.minimum:,} or more"
