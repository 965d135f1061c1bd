"""How large the records of a topic may be, as brokers report it."""

import concurrent.futures
from collections.abc import Mapping
from typing import Any

from beam_spark_runner.transforms.kafka.client import LOG, Outages, confluent
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.outgoing import Outgoing, size_alone

_TIMEOUT_S = 30.0
_SETTING = "max.message.bytes"
_OF_ALL_CLIENTS = (
    *("bootstrap.", "metadata.broker.", "security.", "sasl.", "ssl.", "enable.ssl.", "client."),
    *("socket.", "broker.", "api.", "reconnect.", "oauth", "plugin.", "debug", "log"),
)


def of_all_clients(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a producer that consumers and other clients have, too."""
    return {name: config[name] for name in config if name.startswith(_OF_ALL_CLIENTS)}


class TopicLimits:
    """Knows ``max.message.bytes`` of topics. Brokers are asked once for each. Threads: one.

    With compression, the limit is not known: what brokers compare is compressed.

    Args:
        config: The configuration of the producer.
        transform: The label of the transform, for errors.
    """

    def __init__(self, config: Mapping[str, Any], transform: str) -> None:
        self._config, self._transform = config, transform
        names = ("compression.type", "compression.codec")
        self._compresses = any(config.get(name, "none") != "none" for name in names)
        self._limits: dict[str, int | None] = {}

    def check(self, record: Outgoing) -> None:
        """Check that brokers accept the size of a record.

        Raises:
            KafkaAccessError: They do not.
        """
        topic = str(record[0])
        limit, size = self.of(topic), size_alone(record)
        if limit is not None and size > limit:
            raise KafkaAccessError(
                f"a record for topic {topic}: it has {size} bytes, but {_SETTING} of the topic is "
                f"{limit}",
                self._transform,
            )

    def of(self, topic: str) -> int | None:
        """Return the limit of a topic; None: it is not known."""
        if self._compresses:
            return None
        if topic not in self._limits:
            self._limits[topic] = self._ask(topic)
        return self._limits[topic]

    def _ask(self, topic: str) -> int | None:
        module = confluent(self._transform)
        admin = module.admin
        outages = Outages(self._transform)
        settings = {**of_all_clients(self._config), "error_cb": outages.report}
        resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, topic)
        try:
            client = admin.AdminClient(settings)  # its requests end with it
            found = client.describe_configs([resource])[resource].result(_TIMEOUT_S)
        except (module.KafkaException, concurrent.futures.TimeoutError) as error:
            self._warn(topic, str(error) or outages.latest)
            return None
        entry = found.get(_SETTING)
        if entry is None or not str(entry.value).isdigit():  # a service that is like Kafka
            self._warn(topic, f"brokers do not tell {_SETTING}")
            return None
        return int(entry.value)

    def _warn(self, topic: str, reason: str) -> None:
        LOG.warning(
            "%s: the limit of topic %s is not known, so that larger records fail the step: %s",
            self._transform,
            topic,
            reason,
        )
