"""The embedded broker with users, TLS and access control, for the tests of security.

Six ports: plain on ``port`` (who comes there is the super user, so tests make topics and ACLs there), the
controller on the next, then SCRAM over TLS, TLS with client certificates, and two TLS listeners that a
careful client must refuse: one with an expired certificate, one with a certificate for another host. Nobody
but the super user may do anything until an ACL says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from dev.servers.certificates import Authority, Signed
from dev.servers.embedded import HOST, Broker

_SECURED = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{plain},CONTROLLER://{host}:{controller},{secured_listeners}
advertised.listeners=PLAINTEXT://{host}:{plain},{secured_listeners}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SCRAM:SASL_SSL,MUTUAL:SSL,EXPIRED:SSL,\
ELSEWHERE:SSL
sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
listener.name.scram.scram-sha-256.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.scram.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
ssl.truststore.type=PEM
ssl.truststore.location={folder}/tls/authority.pem
listener.name.mutual.ssl.client.auth=required
"""
_KEYSTORE = """\
listener.name.{listener}.ssl.keystore.type=PEM
listener.name.{listener}.ssl.keystore.location={folder}/tls/{certificate}.pem
"""
#: Listener -> file name of its certificate, in the order of their ports.
_LISTENERS = {"SCRAM": "good", "MUTUAL": "good", "EXPIRED": "expired", "ELSEWHERE": "elsewhere"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredBroker(Broker):
    """A broker that lets nobody in without a name, and nobody do anything without an ACL.

    :param users: names and passwords; each can log in by SCRAM-SHA-256 and SCRAM-SHA-512.
    """

    PORTS: ClassVar[int] = 6

    users: Mapping[str, str] = field(repr=False)
    authority: Authority = field(default_factory=Authority, repr=False)

    @property
    def authority_file(self) -> Path:
        """PEM file of the authority that signed the broker's certificates: a client's ``ssl.ca.location``."""
        return self.folder / "tls" / "authority.pem"

    @property
    def scram_bootstrap(self) -> str:
        """``bootstrap.servers`` of SCRAM over TLS."""
        return f"{HOST}:{self.port + 2}"

    @property
    def mutual_bootstrap(self) -> str:
        """``bootstrap.servers`` of TLS with client certificates."""
        return f"{HOST}:{self.port + 3}"

    @property
    def expired_bootstrap(self) -> str:
        """``bootstrap.servers`` of the listener whose certificate has expired."""
        return f"{HOST}:{self.port + 4}"

    @property
    def elsewhere_bootstrap(self) -> str:
        """``bootstrap.servers`` of the listener whose certificate names another host."""
        return f"{HOST}:{self.port + 5}"

    def scram_config(self, user: str, *, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """Return the client settings of a user at SCRAM over TLS."""
        return {
            "bootstrap.servers": self.scram_bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": self.users[user],
            "ssl.ca.location": str(self.authority_file),
        }

    def client_certificate(self, common_name: str) -> Signed:
        """Sign a certificate that the listener for client certificates accepts."""
        return self.authority.sign(common_name)

    def _prepare(self) -> None:
        folder = self.folder / "tls"
        folder.mkdir(exist_ok=True)
        self.authority_file.write_text(self.authority.certificate)
        here = (HOST, "localhost")
        self.authority.sign("broker", hosts=here).write(folder / "good.pem")
        self.authority.sign("broker", hosts=here, expired=True).write(folder / "expired.pem")
        self.authority.sign("broker", hosts=("broker.elsewhere.example",)).write(folder / "elsewhere.pem")

    def _properties(self) -> str:
        listeners = [f"{name}://{HOST}:{self.port + 2 + n}" for n, name in enumerate(_LISTENERS)]
        return (
            _SECURED.format(
                host=HOST,
                plain=self.port,
                controller=self.port + 1,
                secured_listeners=",".join(listeners),
                folder=self.folder,
            )
            + "".join(
                _KEYSTORE.format(listener=name.lower(), folder=self.folder, certificate=certificate)
                for name, certificate in _LISTENERS.items()
            )
            + self._common_properties()
        )

    def _format_arguments(self) -> list[str]:
        return [
            argument
            for name, password in self.users.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
        ]
