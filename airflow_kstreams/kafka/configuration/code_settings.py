"""Refuses client settings that run code here, or send elsewhere what is the machine's own, unless
an administrator allows them.

Rule: a user who may edit a connection must not thereby be able to run code, to read files of a worker or an
executor, or to act as the machine. The editor chooses the servers that a client talks to, so a setting by
which the client sends a file's content, a token that is signed with a file, or one that the machine's cloud
gives it, shows it to the editor. So does an address that the client asks for tokens: it may be one that only
the machine reaches. Settings by which a file is read and not sent are allowed: authorities to trust, and keys
and keytabs, of which the client proves that it has them.

The others are refused wherever client settings are read, on the Airflow side, in the driver and on
executors, unless the deployment allows them: by Airflow's option ``[kstreams] allowed_client_settings``,
elsewhere by the environment variable ``KSTREAMS_ALLOWED_CLIENT_SETTINGS`` of the driver. The driver's list
holds on its executors. Neither is within reach of a connection.

The list is names with commas between (any value is allowed), or a JSON object of names and the one value that
is allowed, which is safer: ``{"plugin.library.paths": "monitoring-interceptor"}``.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from airflow_kstreams.streams.errors import ConfigError

#: Environment variable with the list, for everything that does not run inside Airflow.
ALLOWED_VARIABLE = "KSTREAMS_ALLOWED_CLIENT_SETTINGS"

#: The one callback that a client can be given: it fetches tokens for OAUTHBEARER.
TOKEN_CALLBACK = "oauth_cb"  # noqa: S105 - a setting's name
#: Settings that an administrator can allow, and the code that each runs.
RUNS_CODE: Mapping[str, str] = {
    "plugin.library.paths": "loads libraries",
    "ssl.engine.location": "loads a library",
    "ssl.engine.id": "loads a library",
    "ssl.providers": "loads libraries",
    "sasl.kerberos.kinit.cmd": "runs a command in a shell",
    "oauth_cb": "calls a Python function",
}
#: Settings that an administrator can allow, and what each sends to servers that an editor chooses.
SENDS: Mapping[str, str] = {
    "sasl.oauthbearer.assertion.file": "sends the content of a file",
    "sasl.oauthbearer.assertion.jwt.template.file": "sends the content of a file",
    "sasl.oauthbearer.assertion.private.key.file": "signs with a key of this machine",
    "sasl.oauthbearer.metadata.authentication.type": "sends a token that this machine's cloud gives it",
    "sasl.oauthbearer.token.endpoint.url": "sends requests from this machine to any address",
    "schema.registry.bearer.auth.credentials.source": "sends a token that this machine's cloud gives it",
    "schema.registry.bearer.auth.issuer.endpoint.url": "sends requests from this machine to any address",
}
#: Values of them that send nothing of the kind.
_HARMLESS: Mapping[str, frozenset[str]] = {
    "sasl.oauthbearer.metadata.authentication.type": frozenset({"none"}),
    "schema.registry.bearer.auth.credentials.source": frozenset({"STATIC_TOKEN", "OAUTHBEARER"}),
}
#: Callbacks and classes that no client of this package takes, and that no administrator can allow.
_NEVER = re.compile(
    r"_cb$|^logger$|^on_(delivery|commit|assign|revoke|lost)$|^ssl_engine_callback_data$"
    r"|\.class$|callback\.handler|^interceptor\.classes$|^metric\.reporters$|^security\.providers$"
    r"|\.(de)?serializer$"
)
#: The client puts these into a shell command without quoting them.
_IN_SHELL = ("sasl.kerberos.principal", "sasl.kerberos.keytab", "sasl.kerberos.service.name")
_SHELL_SAFE = re.compile(r"[\w@%+=:,./-]*\Z", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedSettings:
    """The settings that run code, or send what is the machine's, and that the deployment's administrator
    allows.

    :param values: setting -> its one allowed value, None for any.
    """

    values: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the list.

        :raises ConfigError: the text is not a list of settings that can be allowed.
        """
        if text.lstrip().startswith("{"):
            values = _json(text)
        else:
            values = dict.fromkeys((name for name in map(str.strip, text.split(",")) if name), None)
        for name in values:
            if name not in (*RUNS_CODE, *SENDS):
                raise ConfigError(
                    f"allowed_client_settings names {name!r}, which is allowed anyway or cannot be allowed",
                    fix=f"name only: {', '.join((*RUNS_CODE, *SENDS))}",
                )
        return cls(values=values)

    @classmethod
    def of_environment(cls) -> Self:
        """Read the list in this process's environment.

        :raises ConfigError: the same errors as :meth:`parse`.
        """
        return cls.parse(os.environ.get(ALLOWED_VARIABLE, ""))

    def to_text(self) -> str:
        """Return the list for :meth:`parse`."""
        if any(value is not None for value in self.values.values()):
            return json.dumps(self.values)
        return ",".join(self.values)

    def check(self, config: Mapping[str, object]) -> None:
        """Refuse settings that run code, or send what is the machine's.

        :raises ConfigError: a setting does and is not allowed; its value is not shown.
        """
        for name, value in config.items():
            if name in RUNS_CODE:
                self._check_allowed(name, value, f"runs code in this process ({RUNS_CODE[name]})")
            elif name in SENDS and str(value) not in _HARMLESS.get(name, ()):
                self._check_allowed(name, value, SENDS[name])
            elif _NEVER.search(name):
                raise ConfigError(
                    f"client setting {name!r} names code to run, which no client of this package takes",
                    fix="remove it; logs and errors go to the logger airflow_kstreams.kafka.client",
                )
            elif name in _IN_SHELL and not _SHELL_SAFE.match(str(value)):
                raise ConfigError(
                    f"client setting {name!r} holds characters that mean something to a shell, to which the "
                    "client gives it",
                    fix="use letters, digits and @%+=:,./-_ only",
                )

    def _check_allowed(self, name: str, value: object, does: str) -> None:
        if name in self.values and self.values[name] in (None, str(value)):
            return
        found = "another value of it is allowed" if name in self.values else "it is not allowed here"
        raise ConfigError(
            f"client setting {name!r} {does} and is refused: {found}",
            fix="remove it; or have an administrator of this deployment allow it by Airflow's option "
            f"[kstreams] allowed_client_settings, outside Airflow by the environment variable "
            f"{ALLOWED_VARIABLE}",
        )


def with_callback(config: Mapping[str, str]) -> dict[str, Any]:
    """Return checked settings in the client's form: the token callback as a function.

    :raises ConfigError: it cannot be imported.
    """
    client: dict[str, Any] = dict(config)
    if TOKEN_CALLBACK in client:
        client[TOKEN_CALLBACK] = _function(client[TOKEN_CALLBACK])
    return client


def _json(text: str) -> dict[str, str | None]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ConfigError(
            f"allowed_client_settings is not valid JSON: {error}",
            fix='write names with commas between, or {"NAME": "VALUE", ...}',
        ) from None
    return {str(name): None if value is None else str(value) for name, value in content.items()}


def _function(path: str) -> Callable[..., Any]:
    module, _, name = path.rpartition(".")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"client setting {TOKEN_CALLBACK!r}: {path!r} cannot be imported: {error}",
            fix="name a function as package.module.function that is installed wherever clients run",
        ) from None
    if not callable(function):
        raise ConfigError(
            f"client setting {TOKEN_CALLBACK!r}: {path!r} is no function", fix="name a function"
        )
    return function  # type: ignore[no-any-return]
