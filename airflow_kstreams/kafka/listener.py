"""Finds out why the client cannot talk to a listener that answers, with a connection of its own.

The client library has one text for every certificate it does not accept, and none for a listener that closes
the connection because it expects another protocol. So when the first contact fails, this module connects
without the library and without sending credentials. A certain finding is named together with the setting to
correct; otherwise the client's own text remains.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass

_SECONDS = 3.0
#: A listener's address; it begins where a word does, so that a long text is searched once.
_ADDRESS = re.compile(
    r"(?<![^/\s\[\]:,])(?P<host>\[[0-9a-fA-F:]++\]|[^/\s\[\]:,]++):(?P<port>\d{1,5}+)(?=[/:,\s]|\Z)"
)
_API_VERSIONS, _METADATA = 18, 3
_MAX_ANSWER_BYTES = 1 << 20

#: OpenSSL's numbers of what can be wrong with a certificate.
_EXPIRED, _NOT_YET_VALID = 10, 9
_OTHER_HOST = (62, 64)
_UNTRUSTED = (2, 18, 19, 20, 21)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerFinding:
    """A contradiction between a client's settings and a listener, and its remedy."""

    cause: str
    fix: str


def look_at(config: Mapping[str, str], complaint: str) -> ListenerFinding | None:
    """Find out what is wrong with the listener that the client complains of.

    :param config: the client's settings.
    :param complaint: the client's error text; it may name the listener.
    :return: None without a certain finding. The look takes a few seconds at most.
    """
    address = _address(config, complaint)
    if address is None:
        return None
    protocol = config.get("security.protocol", "plaintext").upper()
    view = _Listener(*address, config=config)
    try:
        if protocol.endswith("SSL"):
            return view.through_tls(login=protocol.startswith("SASL"), complaint=complaint)
        return view.plain(login=protocol.startswith("SASL"), protocol=protocol)
    except OSError:
        return None  # gone meanwhile, as the client's own text says


def _address(config: Mapping[str, str], complaint: str) -> tuple[str, int] | None:
    """Return the listener that a complaint names, else the first bootstrap server."""
    for text in (complaint.partition("://")[2], config.get("bootstrap.servers", "")):
        found = _ADDRESS.search(text)
        if found is not None:
            return found["host"].strip("[]"), int(found["port"])
    return None


class _Listener:
    """One listener, as this machine reaches it."""

    def __init__(self, host: str, port: int, *, config: Mapping[str, str]) -> None:
        self._host = host
        self._port = port
        self._config = config

    def plain(self, *, login: bool, protocol: str) -> ListenerFinding | None:
        """Find out what is wrong with the listener for a client without TLS."""
        if self._answers(tls=None, login=True):
            if not login and not self._answers(tls=None, login=False):
                return self._wants_login("SASL_PLAINTEXT")
            return None
        with suppress(OSError), self._connected(_unverified()):
            return ListenerFinding(
                cause=f"{self._name} speaks TLS, but security.protocol is {protocol}",
                fix=f"set security.protocol to {'SASL_SSL' if login else 'SSL or SASL_SSL'}, and "
                "ssl.ca.location to the authority of the broker's certificate",
            )
        return None

    def through_tls(self, *, login: bool, complaint: str) -> ListenerFinding | None:
        """Find out what is wrong with the listener for a client with TLS."""
        context = self._context()
        if context is None:
            return None
        try:
            with self._connected(context):
                pass
        except ssl.SSLCertVerificationError as error:
            return self._refused_certificate(error)
        except (ssl.SSLError, ConnectionError, TimeoutError):
            return self._without_tls()
        if "alert" in complaint and "certificate" in complaint:
            given = "does not trust the one given" if _names_key(self._config) else "none is given"
            return ListenerFinding(
                cause=f"{self._name} demands a client certificate, and {given}",
                fix="set ssl.certificate.location and ssl.key.location (or ssl.keystore.location) to a "
                "certificate that the brokers trust",
            )
        if (
            not login
            and self._answers(tls=context, login=True)
            and not self._answers(tls=context, login=False)
        ):
            return self._wants_login("SASL_SSL")
        return None

    @property
    def _name(self) -> str:
        return f"the listener at {self._host}:{self._port}"

    def _wants_login(self, protocol: str) -> ListenerFinding:
        return ListenerFinding(
            cause=f"{self._name} demands a login, but security.protocol is "
            f"{self._config.get('security.protocol', 'PLAINTEXT').upper()}",
            fix=f"set security.protocol to {protocol}, with sasl.mechanism, sasl.username and sasl.password",
        )

    def _without_tls(self) -> ListenerFinding | None:
        if not self._answers(tls=None, login=True):
            return None
        open_to_all = self._answers(tls=None, login=False)
        return ListenerFinding(
            cause=f"{self._name} does not speak TLS, but security.protocol is "
            f"{self._config['security.protocol'].upper()}",
            fix="set bootstrap.servers to the port of the TLS listener, or security.protocol to "
            + ("PLAINTEXT" if open_to_all else "SASL_PLAINTEXT, with a login"),
        )

    def _refused_certificate(self, error: ssl.SSLCertVerificationError) -> ListenerFinding | None:
        whose = f"the certificate of {self._name}"
        if error.verify_code == _EXPIRED:
            return ListenerFinding(
                cause=f"{whose} has expired",
                fix="have the broker's certificate renewed",
            )
        if error.verify_code == _NOT_YET_VALID:
            return ListenerFinding(
                cause=f"{whose} is not valid yet", fix="correct the clock of this machine or of the broker"
            )
        if error.verify_code in _OTHER_HOST:
            return ListenerFinding(
                cause=f"{whose} is for another host: {error.verify_message}",
                fix="set bootstrap.servers to a name that the certificate holds, or have that name added to "
                "it (ssl.endpoint.identification.algorithm=none would accept any broker)",
            )
        if error.verify_code in _UNTRUSTED:
            return ListenerFinding(
                cause=f"{whose} is signed by an authority that this client does not trust: "
                f"{error.verify_message}",
                fix="set ssl.ca.location to the PEM file of the authority that signed it",
            )
        return None

    def _context(self) -> ssl.SSLContext | None:
        """Return the TLS context of the client's settings; None if they cannot be used here."""
        checks = self._config.get("enable.ssl.certificate.verification", "true").lower() != "false"
        if not checks:
            return _unverified()
        location = self._config.get("ssl.ca.location", "")
        pem = self._config.get("ssl.ca.pem", "")
        try:
            if location and location != "probe":
                context = ssl.create_default_context(cafile=location)
            else:
                context = ssl.create_default_context(cadata=str(pem) or None)
        except (OSError, ValueError):
            return None
        algorithm = self._config.get("ssl.endpoint.identification.algorithm", "https")
        context.check_hostname = algorithm.lower() != "none"
        return context

    def _connected(self, tls: ssl.SSLContext | None) -> closing[socket.socket]:
        plain = socket.create_connection((self._host, self._port), timeout=_SECONDS)
        if tls is None:
            return closing(plain)
        with ExitStack() as failure:
            failure.callback(plain.close)
            wrapped = tls.wrap_socket(plain, server_hostname=self._host)
            failure.pop_all()
        return closing(wrapped)

    def _answers(self, *, tls: ssl.SSLContext | None, login: bool) -> bool:
        """Return True if the listener answers a request.

        :param tls: context of the connection's TLS; None for none.
        :param login: whether the request may come before a login.
        """
        question = _request(_API_VERSIONS) if login else _request(_METADATA, struct.pack(">i", 0))
        try:
            with self._connected(tls) as connection:
                connection.sendall(question)
                return _correlation(connection) == _OURS
        except OSError:
            return False


_OURS = 0x6B737472


def _request(api: int, body: bytes = b"") -> bytes:
    """Return a request of version 0 without a client id."""
    header = struct.pack(">hhih", api, 0, _OURS, -1)
    return struct.pack(">i", len(header) + len(body)) + header + body


def _correlation(connection: socket.socket) -> int | None:
    """Return the correlation id of an answer, None if this is no answer."""
    head = b""
    while len(head) < 8:
        more = connection.recv(8 - len(head))
        if not more:
            return None
        head += more
    size, correlation = struct.unpack(">ii", head)
    return correlation if 4 <= size <= _MAX_ANSWER_BYTES else None


def _unverified() -> ssl.SSLContext:
    """Return a context that accepts any broker: nothing but the handshake is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _names_key(config: Mapping[str, str]) -> bool:
    return any(config.get(name) for name in ("ssl.key.location", "ssl.key.pem", "ssl.keystore.location"))
