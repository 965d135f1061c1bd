"""A real S3 server on this machine, and what Spark and Beam need to reach it."""

import contextlib
import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pyspark

from integration.ports import free_ports

BUCKET = "beam-tests"
_START_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class ObjectStore:
    """A running server.

    Attributes:
        endpoint: its URL.
        log: of its requests.
    """

    endpoint: str
    log: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """What finds the server's clients in the environment of a process."""
        return {
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    @property
    def spark_conf(self) -> Mapping[str, str]:
        """Settings of Hadoop's connector, which is a package of Maven's."""
        s3a = "spark.hadoop.fs.s3a"
        return {
            "spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{hadoop_version()}",
            f"{s3a}.endpoint": self.endpoint,
            f"{s3a}.endpoint.region": "us-east-1",
            f"{s3a}.path.style.access": "true",
            f"{s3a}.access.key": "tests",
            f"{s3a}.secret.key": "tests",
            **{f"spark.executorEnv.{key}": value for key, value in self.environment.items()},
        }

    @property
    def flags(self) -> list[str]:
        """Options of a pipeline that has its files there."""
        return [f"--temp_location=s3://{BUCKET}/tmp", f"--s3_endpoint_url={self.endpoint}"]

    @property
    def checkpoint_flags(self) -> Sequence[str]:
        """Options of a pipeline that has its checkpoint there."""
        return [f"--s3_endpoint_url={self.endpoint}"]

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """The same for ``UrlFolder``."""
        return (("endpoint", self.endpoint),)

    def folder(self, name: str) -> str:
        """Return the URL of a folder, as users write it."""
        return f"s3://{BUCKET}/{name}"

    def objects(self) -> list[str]:
        """Return the names of all objects, without those that stand for folders."""
        found = self.client().list_objects_v2(Bucket=BUCKET)
        names = [each["Key"] for each in found.get("Contents", ())]
        return [name for name in names if not name.endswith("/")]

    def count(self, method: str, path: str) -> int:
        """Return how many requests there were of a method, to paths with a regular expression."""
        return len(re.findall(rf'"\S*{method} /\S*{path}\S* HTTP', self.log.read_text()))

    def client(self) -> Any:
        """Return a client of the AWS SDK."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="tests",
            aws_secret_access_key="tests",
        )


def hadoop_version() -> str:
    """Return the version of Hadoop that PySpark brings."""
    jars = Path(pyspark.__file__).parent / "jars"
    (jar,) = jars.glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


@contextlib.contextmanager
def start_object_store(log: Path) -> Iterator[ObjectStore]:
    """Start a server with an empty bucket; it ends with the context.

    Raises:
        RuntimeError: moto, whose server it is, is not installed, or does not start.
    """
    if importlib.util.find_spec("moto") is None:
        raise RuntimeError("the S3 server for tests is missing: pip install -e '.[integration]'")
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        store = ObjectStore(f"http://127.0.0.1:{port}", log)
        _wait_for(store, server, log)
        store.client().create_bucket(Bucket=BUCKET)
        yield store
    finally:
        server.kill()
        server.wait()


def _wait_for(store: ObjectStore, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(URLError, OSError), urlopen(store.endpoint):
            return
        time.sleep(0.1)
    raise RuntimeError(f"the S3 server does not answer: {log.read_text()[-2000:]}")
