"""The positions at which users have reads begin and end, and their offsets."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.transforms.kafka.client import MetadataClient, confluent
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError

EARLIEST, LATEST, COMMITTED = "earliest", "latest", "committed"
Partition = tuple[str, int]
"""A topic, and the number of one of its partitions."""


@dataclass(frozen=True)
class Position:
    """A position in all partitions: one of ``word``, ``time_ms`` and ``offsets`` is set.

    Attributes:
        word: ``EARLIEST``, ``LATEST`` or ``COMMITTED``.
        time_ms: The position of the first record with this timestamp or a later one, in
            milliseconds since the Unix epoch.
        offsets: The offset of each partition.
        reset: The word for partitions without a committed offset, if ``word`` is ``COMMITTED``;
            or ``error``.
    """

    word: str = ""
    time_ms: int | None = None
    offsets: Mapping[Partition, int] | None = None
    reset: str = LATEST


def position_of(argument: Any, name: str, words: Sequence[str], transform: str) -> Position:
    """Parse an argument that is a position.

    Args:
        argument: A word, a ``Timestamp``, or a mapping of (topic, partition) to offset.
        name: The name of the argument, for errors.
        words: The words that are allowed.
        transform: The label of the transform, for errors.

    Raises:
        KafkaAccessError: The argument is none of these.
    """
    if isinstance(argument, str) and argument in words:
        return Position(argument)
    if isinstance(argument, Timestamp):
        return Position(time_ms=-(-argument.micros // 1000))
    if isinstance(argument, Mapping) and argument and all(map(_is_offset, argument.items())):
        return Position(offsets=dict(argument))
    raise KafkaAccessError(
        f"{name} is {argument!r}; it may be {', '.join(words)}, a Timestamp, or a dict of "
        "(topic, partition) to offset",
        transform,
    )


def _is_offset(item: Any) -> bool:
    match item:
        case ((str(), int()), int(offset)):
            return offset >= 0
    return False


class OffsetLookup:
    """Looks up the offsets of positions.

    Args:
        asks: Queries the brokers.
        timeout_s: The time limit of each query.
        transform: The label of the transform, for errors.
    """

    def __init__(self, asks: MetadataClient, timeout_s: float, transform: str) -> None:
        self._asks, self._timeout_s, self._transform = asks, timeout_s, transform
        self._make = confluent(transform).TopicPartition

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
        """Return the first offset of each partition, and the one after its last record.

        With ``isolation.level=read_committed``, the latter is the last stable offset: that of the
        first open transaction.
        """
        return {
            partition: self._ask("get_watermark_offsets", self._make(*partition))
            for partition in partitions
        }

    def _ask(self, name: str, partitions: Any) -> Any:
        function = getattr(self._asks.client, name)
        return self._asks.ask(lambda wait_s: function(partitions, timeout=wait_s), self._timeout_s)

    def at(
        self, position: Position, ends: Mapping[Partition, tuple[int, int]]
    ) -> dict[Partition, int]:
        """Return the offset of a position in each partition.

        Args:
            position: The position.
            ends: The partitions with their bounds, as ``ends`` returns them.

        Raises:
            KafkaAccessError: The position has no offset for a partition.
        """
        if position.offsets is not None:
            if missing := [partition for partition in ends if partition not in position.offsets]:
                names = ", ".join(f"{topic}[{number}]" for topic, number in missing)
                raise KafkaAccessError(f"no offset is given for {names}", self._transform)
            return {partition: position.offsets[partition] for partition in ends}
        if position.time_ms is not None:
            return self._at_time(position.time_ms, ends)
        if position.word == COMMITTED:
            return self._committed(position.reset, ends)
        index = 0 if position.word == EARLIEST else 1
        return {partition: pair[index] for partition, pair in ends.items()}

    def _at_time(
        self, time_ms: int, ends: Mapping[Partition, tuple[int, int]]
    ) -> dict[Partition, int]:
        questions = [self._make(*partition, time_ms) for partition in ends]
        answers = self._ask("offsets_for_times", questions) if questions else []
        # A partition without a record of that time or later has a negative offset.
        offsets = {(answer.topic, answer.partition): answer for answer in answers}
        self._refuse_errors(answers)
        return {
            partition: offsets[partition].offset if offsets[partition].offset >= 0 else high
            for partition, (_, high) in ends.items()
        }

    def _committed(
        self, reset: str, ends: Mapping[Partition, tuple[int, int]]
    ) -> dict[Partition, int]:
        questions = [self._make(*partition) for partition in ends]
        answers = self._ask("committed", questions) if questions else []
        self._refuse_errors(answers)
        committed = {(answer.topic, answer.partition): answer.offset for answer in answers}
        if reset == "error" and (
            bare := [partition for partition in ends if committed[partition] < 0]
        ):
            names = ", ".join(f"{topic}[{number}]" for topic, number in bare)
            raise KafkaAccessError(
                f"the group has committed no offset for {names}, and auto.offset.reset is error",
                self._transform,
            )
        index = 0 if reset == EARLIEST else 1
        return {
            partition: committed[partition] if committed[partition] >= 0 else pair[index]
            for partition, pair in ends.items()
        }

    def _refuse_errors(self, answers: Iterable[Any]) -> None:
        for answer in answers:
            if answer.error is not None:
                raise KafkaAccessError(
                    f"{answer.topic}[{answer.partition}]: {answer.error}", self._transform
                )
