"""Client settings from a file: Java's properties and JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_kstreams.kafka.configuration.client_settings import check_client_settings
from airflow_kstreams.kafka.configuration.config_file import read_client_config
from airflow_kstreams.streams.errors import ConfigError

pytestmark = pytest.mark.promise("java-settings-are-named")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "client.properties"


def test_properties_are_read_as_java_reads_them_when_written_in_its_ways(file: Path) -> None:
    file.write_text(
        "# a comment\n! another\n\n"
        "bootstrap.servers=one:9092,two:9092\n"
        "  security.protocol : SASL_SSL\n"
        "client.id explorer\n"
        "sasl.username=a\\=b\\u0041\n"
        "sasl.password=two \\\n    lines=\\\\\n"
        "ssl.ca.location = /etc/ca.pem\n"
        "client.rack=\n"
    )
    assert read_client_config(file) == {
        "bootstrap.servers": "one:9092,two:9092",
        "security.protocol": "SASL_SSL",
        "client.id": "explorer",
        "sasl.username": "a=bA",
        "sasl.password": "two lines=\\",
        "ssl.ca.location": "/etc/ca.pem",
        "client.rack": "",
    }


@pytest.mark.promise("properties-are-read-as-java-does")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("p=two blanks  ", "two blanks  "),
        ("p=a blank\\ ", "a blank "),
        ("p = \\ at both ends\\ \t\n", " at both ends \t"),
        ("p\t\f:\f\tx", "x"),
        ("p=one\rq=2", "one"),
        ("p=one\r\nq=2", "one"),
        ("p=one\x0btwo\x1cthree\x85four\u2028five\fsix", "one\x0btwo\x1cthree\x85four\u2028five\fsix"),
        ("p=\u00a0x\u00a0", "\u00a0x\u00a0"),
        ("p=one\\\r\n \t two\\\n\n  q=2", "onetwo"),
        ("p=one\\\n#two\\\n!three", "one#two!three"),
        ("p=even\\\\\nq=odd\\", "even\\"),
        ("q=1\\\\\\\n  2\np=x", "x"),
        ("#no\\\np=x", "x"),
        (" \t\f\n\f!no\np=x", "x"),
        (r"p=\t\n\r\f\z\"\\\u00E9\u4f60\ud83d\ude00", '\t\n\r\fz"\\\u00e9\u4f60\U0001f600'),
        ("p==:=", "=:="),
        (r"\u0070 x", "x"),
        ("p=1\np=2", "2"),
        ("p=", ""),
        ("p=end\\", "end"),
    ],
)
def test_value_is_what_java_reads(file: Path, text: str, value: str) -> None:
    file.write_bytes(text.encode())
    assert read_client_config(file)["p"] == value


@pytest.mark.promise("properties-are-read-as-java-does")
@pytest.mark.parametrize("value", [r"\u12", r"x\uhush", r"\ud83d", r"\ude00\ud83d", r"C:\users\hush"])
def test_escape_that_is_no_character_is_refused_without_its_text(file: Path, value: str) -> None:
    file.write_text(f"client.id=a\n\np={value}\n")
    with pytest.raises(ConfigError, match=r"client\.properties:3 has an escape") as caught:
        read_client_config(file)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("module", ["plain.PlainLoginModule", "scram.ScramLoginModule"])
def test_login_is_taken_from_jaas_when_it_is_by_name_and_password(file: Path, module: str) -> None:
    file.write_text(
        "bootstrap.servers=one:9092\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required \\\n"
        '   username="alice" password="it\\\\"s secret";\n'
    )
    config = read_client_config(file)
    assert (config["sasl.username"], config["sasl.password"]) == ("alice", 'it"s secret')
    assert "sasl.jaas.config" not in config
    check_client_settings(config)


@pytest.mark.parametrize(
    "jaas",
    [
        "com.sun.security.auth.module.Krb5LoginModule required keyTab=hush;",
        "org.apache.kafka.common.security.plain.PlainLoginModule required username=hush;",
    ],
)
def test_jaas_is_refused_without_its_text_when_it_is_another_login(file: Path, jaas: str) -> None:
    file.write_text(f"sasl.jaas.config={jaas}\n")
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config") as caught:
        read_client_config(file)
    assert "hush" not in str(caught.value)


def test_java_only_setting_is_refused_with_its_counterpart_when_found(file: Path) -> None:
    file.write_text("ssl.truststore.location=/etc/trust.jks\n")
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location") as caught:
        read_client_config(file)
    assert "ssl.ca.location" in caught.value.fix


def test_json_is_read_when_the_file_holds_an_object(file: Path) -> None:
    file.write_text('\n{"bootstrap.servers": "one:9092", "socket.keepalive.enable": true, "retries": 3}')
    assert read_client_config(file) == {
        "bootstrap.servers": "one:9092",
        "socket.keepalive.enable": "true",
        "retries": "3",
    }


def test_line_is_named_without_its_text_when_it_cannot_be_understood(file: Path) -> None:
    file.write_text("client.id=a\n\nhunter2\n")
    with pytest.raises(ConfigError, match=r"client\.properties:3 has no value") as caught:
        read_client_config(file)
    assert "hunter2" not in str(caught.value)
    file.write_text('{"sasl.password": "hunter2"\n')
    with pytest.raises(ConfigError, match="not valid JSON") as caught:
        read_client_config(file)
    assert "hunter2" not in str(caught.value)


def test_file_is_named_when_it_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        read_client_config(tmp_path / "nowhere")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_client_config(tmp_path / "binary")
