"""Configurations of Kafka clients in librdkafka's names: checks, defaults and fixed settings."""

from collections.abc import Mapping
from typing import Any

from beam_spark_runner.transforms.kafka.errors import KafkaAccessError

OWN_GROUP = "beam-spark-runner"
"""The default ``group.id``: librdkafka requires one. No offsets are committed for it."""

_SASL = "sasl.mechanism with sasl.username and sasl.password, or the sasl.oauthbearer.* settings"
_PEM = "ssl.certificate.location and ssl.key.location (PEM), or ssl.keystore.location (PKCS#12)"
_INSTEAD: Mapping[str, str] = {
    "sasl.jaas.config": _SASL,
    "sasl.login.callback.handler.class": _SASL,
    "sasl.client.callback.handler.class": _SASL,
    "ssl.truststore.location": "ssl.ca.location, with a PEM file",
    "ssl.truststore.password": "ssl.ca.location, with a PEM file",
    "ssl.truststore.type": "ssl.ca.location, with a PEM file",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.type": _PEM,
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.protocol": "nothing: librdkafka negotiates it",
    "ssl.enabled.protocols": "nothing: librdkafka negotiates it",
    "key.deserializer": "the argument key_deserializer, a function of bytes",
    "value.deserializer": "the argument value_deserializer, a function of bytes",
    "key.serializer": "the argument key_serializer, a function that returns bytes",
    "value.serializer": "the argument value_serializer, a function that returns bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.poll.records": "nothing: records are read as fast as they are processed",
    "default.api.timeout.ms": "the argument consumer_polling_timeout",
    "buffer.memory": "queue.buffering.max.kbytes",
    "max.block.ms": "message.timeout.ms",
    "delivery.timeout.ms": "message.timeout.ms",
    "partitioner.class": "partitioner; the default, murmur2_random, is that of Kafka's Java client",
    "interceptor.classes": "a step of the pipeline",
    "metric.reporters": "statistics.interval.ms",
}
"""Settings of Kafka's Java clients, and their replacements here or in librdkafka."""

_OWN_OF_CONSUMERS: Mapping[str, str] = {
    "enable.auto.commit": "commit_offset_in_finalize=True commits what the pipeline has processed",
    "enable.auto.offset.store": "commit_offset_in_finalize=True commits what was processed",
    "enable.partition.eof": "it is always set",
    "error_cb": "errors are logged, or raised in the step",
    "on_commit": "commit_offset_in_finalize=True logs what fails",
}
_OWN_OF_PRODUCERS: Mapping[str, str] = {
    "transactional.id": "exactly_once=ExactlyOnce(num_shards, sink_group_id)",
    "error_cb": "errors are logged, or raised in the step",
    "on_delivery": "records that are not delivered fail their bundle",
    "delivery.report.only.error": "it is set as needed",
}
_CRITICAL = 2  # of syslog's levels
_RESETS = {
    "earliest": "earliest",
    "smallest": "earliest",
    "beginning": "earliest",
    "latest": "latest",
    "largest": "latest",
    "end": "latest",
    "error": "error",
    "none": "error",
}


def checked(config: Mapping[str, Any], transform: str, own: Mapping[str, str]) -> dict[str, Any]:
    """Check a user's configuration of a client, and return a copy.

    Args:
        config: The configuration.
        transform: The label of the transform, for the error.
        own: The settings that users must not set, with what to do instead.

    Raises:
        KafkaAccessError: There are settings of Java clients, settings that users must not set, or
            ``bootstrap.servers`` is missing. The text names all of them.
    """
    problems = [
        *(
            f"{name} is a setting of Kafka's Java clients; use {_INSTEAD[name]}"
            for name in config
            if name in _INSTEAD
        ),
        *(f"{name} cannot be set: {own[name]}" for name in config if name in own),
    ]
    if not config.get("bootstrap.servers") and not config.get("metadata.broker.list"):
        problems.append("bootstrap.servers is missing: give HOST:PORT of one or more brokers")
    if problems:
        raise KafkaAccessError("; ".join(problems), transform)
    return dict(config)


def consumer_config(config: Mapping[str, Any], transform: str) -> dict[str, Any]:
    """Check and return a consumer's configuration; see ``checked`` and ``offset_reset``."""
    if config.get("enable.auto.commit") in (False, "false"):
        config = {name: value for name, value in config.items() if name != "enable.auto.commit"}
    result = checked(config, transform, _OWN_OF_CONSUMERS)
    offset_reset(result, transform)
    return result


def producer_config(config: Mapping[str, Any], transform: str) -> dict[str, Any]:
    """Return a producer's configuration with this package's defaults; see ``checked``."""
    defaults = {"enable.idempotence": True, "partitioner": "murmur2_random"}
    return {**defaults, **checked(config, transform, _OWN_OF_PRODUCERS)}


def message_max_bytes(config: Mapping[str, Any], transform: str) -> int:
    """Return ``message.max.bytes`` of a producer, or its default in librdkafka.

    Raises:
        KafkaAccessError: It is not a whole number.
    """
    value = config.get("message.max.bytes", 1_000_000)
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise KafkaAccessError(
            f"message.max.bytes is {value!r}, but must be a whole number", transform
        ) from error


def offset_reset(config: Mapping[str, Any], transform: str) -> str | None:
    """Return ``auto.offset.reset`` as ``earliest``, ``latest`` or ``error``; None: not given.

    Raises:
        KafkaAccessError: Kafka has no such value.
    """
    value = config.get("auto.offset.reset")
    if value is None:
        return None
    if value not in _RESETS:
        raise KafkaAccessError(
            f"auto.offset.reset is {value!r}; it may be earliest, latest or error", transform
        )
    return _RESETS[value]


def of_partition_readers(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of consumers that read one partition each.

    They buffer less than librdkafka's 64 MB by default, since there are many of them. Once a full
    buffer has been read, they fetch at once: by default, librdkafka may wait for a second, which is
    longer than it takes to read a buffer.
    """
    return {
        "group.id": OWN_GROUP,
        "queued.max.messages.kbytes": 16_384,
        "fetch.queue.backoff.ms": 10,
        **config,
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
    }


def of_inquiries(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of consumers that only query topics and offsets.

    While no broker answers, each query makes dozens of log lines about failed connections; the
    same texts are in the errors that ``error_cb`` gets.
    """
    quiet = {} if "debug" in config else {"log_level": _CRITICAL}
    settings = {"group.id": OWN_GROUP, **quiet, **config, "enable.auto.commit": False}
    settings.pop("auto.offset.reset", None)
    return settings
