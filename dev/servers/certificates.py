"""Certificates for the secured broker of the tests: an authority, and whatever it signs, made where they are
used.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A certificate with its private key, both as PEM text.

    :param key: unencrypted PKCS#8.
    """

    certificate: str
    key: str

    def write(self, path: Path, *, password: str = "") -> Path:
        """Write key and certificate into one PEM file, as Java's PEM keystores want it.

        :param password: encrypts the key.
        """
        path.write_text(
            self.locked_key(password) + self.certificate if password else self.key + self.certificate
        )
        path.chmod(0o600)
        return path

    def locked_key(self, password: str) -> str:
        """Return the key encrypted with a password, as PEM."""
        key = serialization.load_pem_private_key(self.key.encode(), password=None)
        return key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password.encode()),
        ).decode()


class Authority:
    """A certificate authority of its own.

    :param name: its common name.
    """

    def __init__(self, name: str = "kstreams test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self._certificate = (
            _dated(x509.CertificateBuilder())
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> str:
        """Its own certificate as PEM, which clients are to trust."""
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def sign(
        self,
        common_name: str,
        *,
        hosts: tuple[str, ...] = (),
        expired: bool = False,
        early: bool = False,
    ) -> Signed:
        """Make a key and sign a certificate for it.

        :param hosts: names and addresses that it is valid for.
        :param expired: whether its time is over.
        :param early: whether its time is yet to come.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _dated(x509.CertificateBuilder(), expired=expired, early=early)
            .subject_name(_named(common_name))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return Signed(
            certificate=builder.sign(self._key, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
            .decode(),
            key=key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ).decode(),
        )


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _dated(
    builder: x509.CertificateBuilder, *, expired: bool = False, early: bool = False
) -> x509.CertificateBuilder:
    now = datetime.now(tz=UTC)
    end = now - _DAY if expired else now + _DAY
    if early:
        end += 30 * _DAY
    return builder.not_valid_before(end - 30 * _DAY).not_valid_after(end)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
