"""Finds client settings that switch verification off, or send credentials where others may read them.

They are allowed: a person may want them for a while. ``airflow-kstreams doctor`` says so. What stays on this
machine (a loopback address) is not looked at.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from airflow_kstreams.kafka.configuration.registry_settings import PREFIX

#: What others can do with the login of each mechanism, once they have read it on its way.
_READABLE: Mapping[str, str] = {
    "PLAIN": "the password can be read",
    "SCRAM-SHA-256": "the password can be guessed from what can be read",
    "SCRAM-SHA-512": "the password can be guessed from what can be read",
    "OAUTHBEARER": "the token can be read and used",
}
_OFF = ("false", "f", "0")
_REGISTRY_SECRETS = ("basic.auth.user.info", "bearer.auth.token", "bearer.auth.client.secret")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weakness:
    """A setting that weakens the connection.

    :param text: setting and consequence; it holds no value that is secret.
    :param fix: the remedy.
    """

    text: str
    fix: str


def weaknesses(config: Mapping[str, object]) -> Iterator[Weakness]:
    """Yield what weakens the connections that these client settings make.

    :param config: librdkafka's names, and those of the schema registry -> value.
    """
    settings = {name: str(value).strip() for name, value in config.items()}
    if not all(map(_is_loopback, _hosts(settings.get("bootstrap.servers", "")))):
        yield from _of_brokers(settings)
    yield from _of_addresses(settings)


def _of_brokers(settings: Mapping[str, str]) -> Iterator[Weakness]:
    protocol = settings.get("security.protocol", "plaintext").upper()
    if protocol in ("SSL", "SASL_SSL"):
        if settings.get("enable.ssl.certificate.verification", "true").lower() in _OFF:
            yield Weakness(
                text="enable.ssl.certificate.verification=false: anyone on the way can be the broker, and "
                "read and write all",
                fix="remove the setting; ssl.ca.location names the authority of the brokers' certificates",
            )
        elif settings.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
            yield Weakness(
                text="ssl.endpoint.identification.algorithm=none: any host with a certificate of a trusted "
                "authority can be the broker",
                fix="remove the setting, and name the brokers as their certificates do",
            )
    mechanism = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms", "")
    readable = _READABLE.get(mechanism.upper())
    if protocol == "SASL_PLAINTEXT" and readable:
        yield Weakness(
            text=f"security.protocol=SASL_PLAINTEXT with {mechanism.upper()}: {readable} on the way",
            fix="set security.protocol=SASL_SSL, at a listener of the brokers that speaks TLS",
        )


def _of_addresses(settings: Mapping[str, str]) -> Iterator[Weakness]:
    """Yield each address of HTTP without TLS to which credentials go."""
    credentials = {
        f"{PREFIX}url": [f"{PREFIX}{name}" for name in _REGISTRY_SECRETS],
        f"{PREFIX}bearer.auth.issuer.endpoint.url": [f"{PREFIX}bearer.auth.client.secret"],
        "sasl.oauthbearer.token.endpoint.url": ["sasl.oauthbearer.client.secret"],
    }
    for name, secrets in credentials.items():
        sent = [secret for secret in secrets if settings.get(secret)]
        open_hosts = [
            host for host in _hosts(settings.get(name, ""), scheme="http") if sent and not _is_loopback(host)
        ]
        if open_hosts:
            yield Weakness(
                text=f"{name} is http:// at {', '.join(open_hosts)}: the login by {', '.join(sent)} can be "
                "read on the way",
                fix=f"let {name} begin with https://",
            )


def _hosts(addresses: str, *, scheme: str = "") -> Iterator[str]:
    """Yield the hosts of addresses with commas between.

    :param scheme: yield those of URLs of this scheme only.
    """
    for address in filter(None, map(str.strip, addresses.split(","))):
        try:
            split = urlsplit(address if "://" in address else f"//{address}")
        except ValueError:  # no client takes it either
            continue
        if split.hostname and (not scheme or split.scheme == scheme):
            yield split.hostname


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
