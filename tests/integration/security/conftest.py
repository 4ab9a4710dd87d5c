"""Tests here run on the secured broker: the usual fixtures reach its plain listener, where anybody is the
super user; who logs in over TLS may do nothing until an ACL says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from airflow_kstreams.streams.naming.permissions import Permission
from tests.support.kafka import super_user
from tests.support.kafka.access_control import Acls

kafka, kafka_admin, acls = super_user.kafka, super_user.kafka_admin, super_user.acls


@pytest.fixture
def allow(acls: Acls) -> Callable[[Iterable[Permission]], None]:
    """``allow(permissions)`` gives them to carol until the end of the test."""
    return acls.allow
