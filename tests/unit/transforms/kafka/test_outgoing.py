"""Elements as records, and their shards."""

import pickle
from typing import Any

import numpy as np
import pytest
from apache_beam import coders
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.transforms.kafka import (
    KafkaAccessError,
    KafkaHeader,
    KafkaRecord,
    ProducerRecord,
)
from beam_spark_runner.transforms.kafka.exactly_once import BATCH_TYPE, AssignShards
from beam_spark_runner.transforms.kafka.outgoing import Conversion, shard_of, size_alone

PLAIN = Conversion("t", None, None, "w")
TEXT = Conversion("t", str.encode, str.encode, "w")


@pytest.mark.parametrize(
    ("conversion", "element", "record"),
    [
        (PLAIN, (b"k", b"v"), ("t", None, b"k", b"v", None, [])),
        (PLAIN, (None, None), ("t", None, None, None, None, [])),
        (TEXT, ("k", None), ("t", None, b"k", None, None, [])),
        (PLAIN, ProducerRecord(b"v"), ("t", None, None, b"v", None, [])),
        (
            TEXT,
            ProducerRecord("v", "k", "other", 3, 1234, [("h", b"x"), ("h", None)]),  # type: ignore[arg-type]
            ("other", 3, b"k", b"v", 1234, [("h", b"x"), ("h", None)]),
        ),
        (
            PLAIN,
            ProducerRecord(b"v", headers=[KafkaHeader("h", b"x"), ("ä", "ö")]),  # type: ignore[list-item]
            ("t", None, None, b"v", None, [("h", b"x"), ("ä", "ö".encode())]),
        ),
        (
            PLAIN,
            ProducerRecord(b"v", partition=2**31 - 1, timestamp=2**63 - 1),
            ("t", 2**31 - 1, None, b"v", 2**63 - 1, []),
        ),
        (
            PLAIN,
            ProducerRecord(b"v", partition=np.int32(0), timestamp=np.int64(1)),
            ("t", 0, None, b"v", 1, []),
        ),
    ],
)
def test_elements_become_records(conversion: Conversion, element: Any, record: Any) -> None:
    assert conversion(element) == record


@pytest.mark.parametrize(
    ("conversion", "element", "problem"),
    [
        (PLAIN, b"v", "neither a pair of key and value nor a ProducerRecord"),
        (PLAIN, (b"k", b"v", b"w"), "neither a pair"),
        # Its topic is the one that it was read from.
        (PLAIN, KafkaRecord("t", 0, 0, 0, "", b"", b"", []), "neither a pair"),
        (PLAIN, ("k", b"v"), "a key is not bytes, but str: 'k'.*such as str.encode"),
        (Conversion("t", None, len, "w"), (b"k", b"v"), "value that value_serializer has returned"),  # type: ignore[arg-type]
        (PLAIN, ProducerRecord(b"v", timestamp=0), "a timestamp is 0, but must be at least 1"),
        (Conversion(None, None, None, "w"), (b"k", b"v"), "names no topic"),
        (PLAIN, ProducerRecord(b"v", topic="a b"), "a topic is 'a b', but must be a text of 1"),
        (PLAIN, ProducerRecord(b"v", topic="a b"), "a topic is 'a b', but must be"),
        (PLAIN, ProducerRecord(b"v", topic="a" * 250), "but must be a text of 1 to 249"),
        (PLAIN, ProducerRecord(b"v", topic=".."), "but must be a text"),
        (PLAIN, ProducerRecord(b"v", topic=b"a"), "a topic is b'a', but must be a text"),  # type: ignore[arg-type]
        *(
            (PLAIN, ProducerRecord(b"v", timestamp=each), f"topic t: a timestamp is {each!r}, but")  # type: ignore[arg-type]
            for each in (1.5, True, 2**63, -1, "1")
        ),
        *(
            (PLAIN, ProducerRecord(b"v", partition=each), f"topic t: a partition is {each!r}, but")  # type: ignore[arg-type]
            for each in (1.0, False, 2**31, -1)
        ),
        *(
            (PLAIN, ProducerRecord(b"v", topic="u", headers=each), "topic u: a header is .*, but")  # type: ignore[arg-type]
            for each in (
                [(b"h", b"x")],
                [(None, b"x")],
                [("h", 5)],
                [("h", bytearray(b"x"))],
                [("h",)],
                {"ab": b"x"},
                [("\udc80", b"x")],  # with which confluent-kafka ends the process
                [("h", "\udc80")],
            )
        ),
    ],
)
def test_what_is_no_record(conversion: Conversion, element: Any, problem: str) -> None:
    with pytest.raises(KafkaAccessError, match=f"w: .*{problem}"):
        conversion(element)


@pytest.mark.parametrize(
    ("headers", "longest"),
    [
        ([], 964),
        ([("abc", None)], 959),
        ([("ä", b"x" * 100)], 859),
        ([("abc", b"x" * 63), ("abc", b"x" * 64)], 826),
    ],
)
def test_records_are_as_long_as_librdkafka_takes_them(headers: Any, longest: int) -> None:
    """Where it stops was tried with ``confluent-kafka`` 2.16."""
    limited = Conversion("t", None, None, "w", most_bytes=1000)
    for key, value in ((b"", longest), (b"k" * 100, longest - 100)):
        element = ProducerRecord(b"x" * value, key, headers=headers)
        assert limited(element) == PLAIN(element)
        problem = "w: a record for topic t: it has 1001 bytes, .* is 1000: increase message"
        with pytest.raises(KafkaAccessError, match=problem):
            limited(element._replace(value=b"x" * (value + 1)))


@given(st.binary(), st.integers(1, 50), st.integers(0), st.integers(0))
def test_records_of_a_key_have_one_shard(key: bytes, shards: int, one: int, other: int) -> None:
    record = PLAIN((key, b"v"))
    assert shard_of(record, shards, one) == shard_of(record, shards, other) < shards


def test_records_of_a_partition_have_one_shard_and_others_take_turns() -> None:
    given_one = PLAIN(ProducerRecord(b"v", b"k", partition=7))
    assert {shard_of(given_one, 3, turn) for turn in range(9)} == {1}
    assert [shard_of(PLAIN((None, b"v")), 3, turn) for turn in range(4)] == [0, 1, 2, 0]


def test_shards_are_assigned_by_what_every_python_pickles() -> None:
    """Python 3.14 does not pickle objects of ``itertools``."""
    before = AssignShards(PLAIN, 3)
    assert [before.process((None, b"v"))[0][0] for _ in range(2)] == [0, 1]
    pickled = pickle.dumps(before)
    assert b"itertools" not in pickled
    assert [pickle.loads(pickled).process((None, b"v"))[0][0]] == [2]


def test_batches_survive_their_coder() -> None:
    records = [PLAIN((None, b"v")), PLAIN(ProducerRecord(None, b"k", None, 1, 2, [("h", None)]))]
    coder = coders.registry.get_coder(BATCH_TYPE)
    assert coder.decode(coder.encode(("w", "g", 5, records))) == ("w", "g", 5, records)


@pytest.mark.parametrize(
    "record",
    [
        ProducerRecord(b"v"),
        ProducerRecord("any", 5, "t", 1, 2, (("h", None),)),  # type: ignore[arg-type]
        KafkaRecord("t", 0, 1, 2, "CreateTime", None, b"v", [KafkaHeader("h", b"x")]),
    ],
)
def test_records_survive_their_coders(record: Any) -> None:
    coder = coders.registry.get_coder(type(record))
    assert coder.decode(coder.encode(record)) == record
    assert type(coder.decode(coder.encode(record))) is type(record)


@pytest.mark.parametrize(
    ("key", "value", "headers", "size"),
    [(None, b"x" * 100, [], 170), (b"k", None, [("h", b"v"), ("n", None)], 76)],
)
def test_the_size_of_a_request_of_one_record(
    key: bytes | None, value: bytes | None, headers: list[Any], size: int
) -> None:
    """What a broker makes of it: integration/test_kafka_transactions.py."""
    assert size_alone(("t", None, key, value, None, headers)) == size
