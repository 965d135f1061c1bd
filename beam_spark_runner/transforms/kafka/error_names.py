"""Names of errors as returned by ``KafkaError.name()``; librdkafka's own begin with an underscore.

Source: ``rd_kafka_resp_err_t`` of librdkafka.
"""

END_OF_PARTITION = "_PARTITION_EOF"
UNKNOWN_PARTITION = "_UNKNOWN_PARTITION"
NO_ACCESS_TO_GROUP = "GROUP_AUTHORIZATION_FAILED"
OUT_OF_RANGE = frozenset({"_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"})
REFUSED = frozenset({"_AUTHENTICATION", "_SSL"})
"""Authentication or TLS has failed."""

TAKEN = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
"""The producer is fenced: another one has begun with the same ``transactional.id``."""

NO_TOPIC = frozenset({"UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE"})
"""A topic does not exist, or is being created."""

NOT_THERE = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", UNKNOWN_PARTITION})
"""A topic or partition does not exist."""

OF_RECORDS = frozenset(
    {"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP"}
)
"""The record itself is refused, or another one of those that were sent together with it."""

PASSING = frozenset(
    {
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_TIMED_OUT",
        "_WAIT_COORD",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "REQUEST_TIMED_OUT",
        "NOT_COORDINATOR",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
    }
)
"""Transient errors that are not ``retriable()``: a broker is starting, leaders change."""

ADVICE = {
    "MSG_SIZE_TOO_LARGE": "increase message.max.bytes in producer_config, and max.message.bytes of "
    "the topic",
    "_MSG_TIMED_OUT": "not accepted within message.timeout.ms: are the brokers reachable?",
    "_UNKNOWN_TOPIC": "create the topic first",
    "UNKNOWN_TOPIC_OR_PART": "create the topic first",
    UNKNOWN_PARTITION: "the topic has fewer partitions",
    "TOPIC_AUTHORIZATION_FAILED": "the user needs WRITE on the topic",
}
"""Advice to users for the errors of records that were not delivered."""
