"""A real Kafka broker on this machine, in a separate process that tests may kill."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from integration.ports import free_ports

JARS = Path(sys.prefix) / "kafka"
_START_TIMEOUT_S = 90.0
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
_USER, _PASSWORD = "beam", "secret"


class Broker:
    """A broker that is its own controller (KRaft).

    Args:
        folder: for its log and settings; empty.
    """

    def __init__(self, folder: Path) -> None:
        if not (JARS / ".ready").exists():
            raise RuntimeError(f"the broker for tests is missing: make {JARS}/.ready")
        self._folder = folder
        self._output = folder / "output"
        self._settings = folder / "server.properties"
        self._authority = folder / "ca.pem"
        certificate = self._certificate(folder / "broker.pem")
        self._port, self._secured_port, controller = free_ports(3)
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},"
            f"SASL_SSL://127.0.0.1:{self._secured_port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "SASL_SSL:SASL_SSL",
            "listener.name.sasl_ssl.ssl.keystore.type": "PEM",
            "listener.name.sasl_ssl.ssl.keystore.location": certificate,
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": "org.apache.kafka.common."
            "security.plain.PlainLoginModule required "
            f'user_{_USER}="{_PASSWORD}";',
            "log.dirs": folder / "log",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.num.partitions": 3,
            "transaction.state.log.min.isr": 1,
            # A broker that was killed may come again when its session is over.
            "broker.session.timeout.ms": 1500,
            "broker.heartbeat.interval.ms": 300,
            "log.retention.check.interval.ms": 1000,
            "log.segment.delete.delay.ms": 0,
        }
        self._settings.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        format_ = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", self._settings]
        subprocess.run(self._java(*format_), check=True, stdout=subprocess.DEVNULL)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def config(self) -> dict[str, Any]:
        """What clients need."""
        return {"bootstrap.servers": f"127.0.0.1:{self._port}"}

    def _certificate(self, file: Path) -> Path:
        """Write the broker's key and certificate, and next to them that of the authority."""
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self._authority)
        pair = authority.issue_cert("127.0.0.1")
        key = load_pem_private_key(pair.private_key_pem.bytes(), None)
        # Kafka reads no other format.
        file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        for each in pair.cert_chain_pems:
            each.write_to_path(file, append=True)
        return file

    @property
    def secured_config(self) -> dict[str, Any]:
        """What clients need for the port with TLS and passwords."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self._secured_port}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._authority),
            "sasl.mechanism": "PLAIN",
            "sasl.username": _USER,
            "sasl.password": _PASSWORD,
        }

    def _java(self, *arguments: object) -> list[str]:
        options = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable"]
        return ["java", *options, "-cp", f"{JARS}/*", *map(str, arguments)]

    def start(self) -> None:
        """Start it, with the log that it has, and wait until it answers.

        Raises:
            RuntimeError: it does not.
        """
        from confluent_kafka import KafkaException

        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", self._settings), stdout=output, stderr=output
            )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(KafkaException):
                if self.admin().list_topics(timeout=1).brokers:
                    return
        raise RuntimeError(f"the broker does not answer: {self._output.read_text()[-2000:]}")

    def kill(self) -> None:
        """End it as the kernel does when memory is short."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def admin(self) -> Any:
        """Return a client that makes topics and asks for them."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({**self.config, "log_level": 0})

    def create(self, topic: str, partitions: int, **settings: Any) -> str:
        """Make a topic, with settings whose dots are underscores; return its name."""
        from confluent_kafka.admin import NewTopic

        config = {name.replace("_", "."): str(value) for name, value in settings.items()}
        admin = self.admin()  # its requests end with it
        made = admin.create_topics([NewTopic(topic, partitions, 1, config=config)])
        made[topic].result()
        return topic

    def add_partitions(self, topic: str, count: int) -> None:
        """Have a topic have so many."""
        from confluent_kafka.admin import NewPartitions

        admin = self.admin()
        admin.create_partitions([NewPartitions(topic, count)])[topic].result()

    def produce(self, topic: str, records: Iterator[Mapping[str, Any]]) -> None:
        """Write records: arguments of ``Producer.produce``."""
        from confluent_kafka import Producer

        producer = Producer({**self.config, "linger.ms": 5, "queue.buffering.max.messages": 10**6})
        for each in records:
            producer.produce(topic, **each)
            producer.poll(0)
        assert producer.flush(60) == 0

    def records(self, topic: str, *, is_committed: bool = True) -> list[Any]:
        """Return all messages of a topic, in the order of each partition.

        Args:
            topic: its name.
            is_committed: without those of transactions that are open or aborted.
        """
        from confluent_kafka import Consumer, TopicPartition

        level = "read_committed" if is_committed else "read_uncommitted"
        consumer = Consumer(
            {
                **self.config,
                "group.id": "reader",
                "isolation.level": level,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
            }
        )
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        found, ended = [], 0
        while ended < len(partitions):
            for message in consumer.consume(1000, 0.05):
                if message.error() is None:
                    found.append(message)
                else:
                    ended += 1
        consumer.close()
        return found

    def committed(self, group: str, topic: str, partitions: int) -> list[int]:
        """Return what a group has committed; negative: nothing."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({**self.config, "group.id": group})
        asked = [TopicPartition(topic, each) for each in range(partitions)]
        offsets = [each.offset for each in consumer.committed(asked, timeout=30)]
        consumer.close()
        return offsets


@contextlib.contextmanager
def start_broker(folder: Path) -> Iterator[Broker]:
    """Start a broker; it ends with the context."""
    broker = Broker(folder)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()
