"""An object store on this machine: moto's S3, with what tests ask of it."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

import requests
from pyarrow.fs import FileSelector, FileType, S3FileSystem

KEY, SECRET = "tests-key-id", "tests-secret-key"
_numbers = itertools.count(1)


@dataclass
class ObjectStore:
    """A bucket.

    :param url: address of the server.
    :param bucket: its name.
    :param folder: where copies of it are put for readers without S3.
    """

    url: str
    bucket: str
    folder: Path

    @property
    def files(self) -> S3FileSystem:
        """A client of its own."""
        return S3FileSystem(
            endpoint_override=self.url,
            access_key=KEY,
            secret_key=SECRET,
            region="us-east-1",
            allow_bucket_creation=True,
            allow_bucket_deletion=True,
        )

    @property
    def iceberg(self) -> dict[str, str]:
        """Settings of a connection for files of Iceberg tables."""
        return {
            "iceberg.s3.endpoint": self.url,
            "iceberg.s3.access-key-id": KEY,
            "iceberg.s3.secret-access-key": SECRET,
            "iceberg.s3.region": "us-east-1",
        }

    @property
    def delta(self) -> dict[str, str]:
        """Settings of a connection for Delta tables."""
        return {
            "delta.aws_endpoint_url": self.url,
            "delta.aws_access_key_id": KEY,
            "delta.aws_secret_access_key": SECRET,
            "delta.aws_region": "us-east-1",
            "delta.aws_allow_http": "true",
        }

    def keys(self) -> list[str]:
        """Return the names of all objects."""
        found = self.files.get_file_info(FileSelector(self.bucket, recursive=True))
        return [each.path.removeprefix(f"{self.bucket}/") for each in found if each.type == FileType.File]

    def local(self, location: str) -> str:
        """Copy the bucket into a folder, and return where a location of it is there."""
        copy = self.folder / f"copy-{next(_numbers)}"
        for key in self.keys():
            file = copy / key
            file.parent.mkdir(parents=True, exist_ok=True)
            with self.files.open_input_stream(f"{self.bucket}/{key}") as stored:
                file.write_bytes(stored.read())
        return str(copy / urlparse(location).path.lstrip("/"))

    def answer(self, status: int, code: str, message: str = "", *, writes_only: bool = True) -> None:
        """Let the store answer requests with an error of S3 from now on.

        :param status: of HTTP; 0 to let it do what it is asked for again.
        :param code: name of the error.
        :param writes_only: whether requests that read are answered as ever.
        """
        body = f"<Error><Code>{code}</Code><Message>{message}</Message><RequestId>1</RequestId></Error>"
        plan = {"bucket": self.bucket, "status": f"{status} {code}" if status else "", "body": body}
        told = requests.post(f"{self.url}/tests-plan", json={**plan, "writes": writes_only}, timeout=10)
        told.raise_for_status()

    def delete(self, location: str) -> None:
        """Delete all objects below a location."""
        self.files.delete_dir(f"{self.bucket}/{urlparse(location).path.strip('/')}")


@dataclass
class ObjectStores:
    """The server."""

    url: str

    def bucket(self, folder: Path) -> ObjectStore:
        """Make an empty bucket.

        :param folder: for copies of it.
        """
        store = ObjectStore(self.url, f"tests-bucket-{next(_numbers)}", folder)
        store.files.create_dir(store.bucket)
        return store

    def new_user(self, name: str) -> tuple[str, str]:
        """Make a user who may do nothing yet, and return id and secret of a key."""
        self._administer(Action="CreateUser", UserName=name)
        made = self._administer(Action="CreateAccessKey", UserName=name)
        key, secret = (
            made.partition(f"<{part}>")[2].partition("<")[0] for part in ("AccessKeyId", "SecretAccessKey")
        )
        return key, secret

    def allow(self, name: str) -> None:
        """Let a user do everything, and check credentials from then on."""
        rule = {"Effect": "Allow", "Action": "*", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [rule]})
        self.check_credentials(after=1_000)
        self._administer(Action="PutUserPolicy", UserName=name, PolicyName="all", PolicyDocument=policy)
        self.check_credentials()

    def _administer(self, **asked: str) -> str:
        signed = f"AWS4-HMAC-SHA256 Credential={KEY}/20240101/us-east-1/iam/aws4_request"
        form = {"Version": "2010-05-08", **asked}
        answer = requests.post(self.url, data=form, headers={"Authorization": signed}, timeout=10)
        answer.raise_for_status()
        return answer.text

    def check_credentials(self, *, after: int = 0) -> None:
        """Let the server refuse requests without known credentials from now on: those of users."""
        requests.post(f"{self.url}/moto-api/reset-auth", data=str(after).encode(), timeout=10)


_ROOT = Path(__file__).parents[3]
# Not in the tests' own process: moto has an environment of its own (dev/lib/object-store.in), and deltalake
# holds Python's lock while it waits for an answer about a file.
_SERVER = """
import json, sys
from moto.moto_server import threaded_moto_server as threaded

planned, make_server = {}, threaded.make_server

def may_fail(app):
    def answer(environ, respond):
        bucket, writes = environ["PATH_INFO"].split("/")[1], environ["REQUEST_METHOD"] in ("PUT", "POST")
        if bucket == "tests-plan":
            told = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
            planned[told["bucket"]] = told
            respond("200 OK", [("Content-Length", "0")])
            return [b""]
        plan = planned.get(bucket)
        if plan is None or not plan["status"] or (plan["writes"] and not writes):
            return app(environ, respond)
        body = plan["body"].encode()
        headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
        respond(plan["status"], [*headers, ("Connection", "close")])
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    return answer

def made(host, port, app, *arguments, **named):
    return make_server(host, port, may_fail(app), *arguments, **named)

threaded.make_server = made
server = threaded.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


def python_of_object_stores() -> str:
    """Return the Python that has moto."""
    named = os.environ.get("KSTREAMS_DEV_OBJECT_STORE_PYTHON")
    return named or str(_ROOT / ".setup" / "object-store" / "bin" / "python")


@contextmanager
def object_stores() -> Iterator[ObjectStores]:
    """Serve buckets until the block ends."""
    server = subprocess.Popen(
        [python_of_object_stores(), "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with server:
        port = server.stdout.readline().strip()  # type: ignore[union-attr]
        try:
            yield ObjectStores(f"http://127.0.0.1:{port}")
        finally:
            server.stdin.close()  # type: ignore[union-attr]
            server.terminate()
