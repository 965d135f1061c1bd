"""Writes records exactly once: the pipeline numbers them, commits the numbers, and writes them."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.coders import StrUtf8Coder, VarIntCoder, registry
from apache_beam.portability import common_urns
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec
from apache_beam.transforms.window import GlobalWindows
from typing_extensions import override

from beam_spark_runner.transforms.dead_letters import (
    DEAD_LETTERS,
    WRITTEN,
    SinkOutputs,
    dead_letter,
)
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.outgoing import Conversion, Outgoing, shard_of
from beam_spark_runner.transforms.kafka.sharing import release, shared
from beam_spark_runner.transforms.kafka.topic_limits import TopicLimits
from beam_spark_runner.transforms.kafka.topic_lineage import note_written
from beam_spark_runner.transforms.kafka.transactions import (
    Batch,
    ShardTakenError,
    ShardWriter,
    ShardWriters,
)

_MAX_RECORDS = 1000
_MAX_BYTES = 1 << 20
_TRANSACTION_BYTES = 16 << 20
_BATCH_BYTES = 1_000_000  # of librdkafka's requests, by default
BATCH_TYPE = tuple[str, str, int, list[Outgoing]]
"""The type hint of ``Batch``es, which are encoded as tuples."""


@dataclass(frozen=True)
class ExactlyOnce:
    """Configures ``WriteToKafka`` to write each record exactly once, in transactions.

    Args:
        num_shards: The number of transactional producers that write in parallel. Each has a
            ``transactional.id`` and a consumer group, both named ``{sink_group_id}-{shard}``.
        sink_group_id: A name that no other pipeline and no other sink uses. The same pipeline must
            use it again when it continues from its checkpoint.
    """

    num_shards: int
    sink_group_id: str


@dataclass(frozen=True)
class Sink:
    """The target of exactly-once writes.

    Attributes:
        id: The key by which instances in one process share writers; unique for the transform.
        config: The configuration of producers.
        topic: The topic for which the groups of shards commit offsets.
        once: The number of shards, and the name of their groups.
        transform: The label of the transform, for errors.
        rejects: Whether records that are too large for the topic are dead letters. Then requests
            must not be larger either, since brokers refuse all records of a request together.
    """

    id: str
    config: dict[str, Any]
    topic: str
    once: ExactlyOnce
    transform: str
    rejects: bool = False

    def open(self, shard: int) -> ShardWriter:
        """Open the writer of a shard; see ``ShardWriter`` for errors."""
        name = f"{self.once.sink_group_id}-{shard}"
        return ShardWriter(self._config_within_limits(), self.transform, self.topic, name)

    def _config_within_limits(self) -> dict[str, Any]:
        """Return the configuration of producers whose requests the topic's brokers accept."""
        if not self.rejects or "batch.size" in self.config:
            return self.config
        limit = TopicLimits(self.config, self.transform).of(self.topic)
        if limit is None or limit >= _BATCH_BYTES:
            return self.config
        return {**self.config, "batch.size": limit}


class StableParDo(beam.ParDo):  # type: ignore[misc]
    """A ParDo with ``@RequiresStableInput``, which the Python SDK cannot declare."""

    @override
    def to_runner_api_parameter(self, context: Any, **more: Any) -> Any:
        urn, payload = super().to_runner_api_parameter(context, **more)
        payload.requires_stable_input = True
        context.add_requirement(common_urns.requirements.REQUIRES_STABLE_INPUT.urn)
        return urn, payload


class WriteExactlyOnce(beam.PTransform):  # type: ignore[misc]
    """The steps of ``WriteToKafka(exactly_once=…)``.

    Args:
        sink: The target.
        conversion: Converts elements to records.
        is_streaming: Whether to write elements as they arrive, rather than at the end of the input.
        rejects: Whether elements that no producer takes are dead letters, in place of an error.
        numbers_new: Whether to write the elements. Otherwise, only those are written that a
            checkpoint has, and their numbers stay there, so that later runs continue from them.
    """

    def __init__(
        self,
        sink: Sink,
        conversion: Conversion,
        is_streaming: bool,
        *,
        rejects: bool = False,
        numbers_new: bool = True,
    ) -> None:
        super().__init__()
        self._rejects, self._numbers_new = rejects, numbers_new
        self._sink, self._conversion, self._streams = sink, conversion, is_streaming

    @override
    def expand(self, elements: beam.PCollection) -> beam.PCollection:
        # No trigger in batch: groups with one have to fit into memory.
        window = beam.WindowInto(GlobalWindows())
        if self._streams:
            window = beam.WindowInto(
                GlobalWindows(),
                trigger=Repeatedly(AfterCount(1)),
                accumulation_mode=AccumulationMode.DISCARDING,
            )
        shards: beam.DoFn = Nothing()
        if self._numbers_new:
            number = self._sink.once.num_shards
            shards = (
                AssignShardsOrReject(self._conversion, number, self._sink.config)
                if self._rejects
                else AssignShards(self._conversion, number)
            )
        assign = beam.ParDo(shards)
        if self._rejects:
            # In the windows of the elements, which dead letters keep.
            assigned = elements | "AssignShards" >> assign.with_outputs(DEAD_LETTERS, main=WRITTEN)
            records, bad = assigned[WRITTEN], assigned[DEAD_LETTERS]
            records.element_type = tuple[int, Outgoing]
            records |= "Window" >> window
        else:
            records = elements | "Window" >> window
            records |= "AssignShards" >> assign.with_output_types(tuple[int, Outgoing])
        good = (
            records
            | "Group" >> beam.GroupByKey()
            | "Number" >> beam.ParDo(Number()).with_output_types(tuple[int, BATCH_TYPE])
            | "Write" >> StableParDo(WriteBatches(self._sink))
        )
        return SinkOutputs(good, bad) if self._rejects else good


class Nothing(beam.DoFn):  # type: ignore[misc]
    """Emits nothing, in place of ``AssignShards``."""

    def process(self, element: Any) -> None:
        """Drop an element, which another step writes."""


class AssignShards(beam.DoFn):  # type: ignore[misc]
    """Converts elements to records, and assigns each to a shard.

    Args:
        conversion: Converts elements to records.
        shards: The number of shards.
    """

    def __init__(self, conversion: Conversion, shards: int) -> None:
        self._conversion, self._shards = conversion, shards
        self._turn = 0

    def process(self, element: Any) -> list[tuple[int, Outgoing]]:
        """Return the pair of shard and record."""
        record = self._conversion(element)
        shard = shard_of(record, self._shards, self._turn)
        self._turn += 1
        return [(shard, record)]


class AssignShardsOrReject(AssignShards):
    """Does so, and emits elements that no producer or broker takes as dead letters.

    Args:
        conversion: Converts elements to records.
        shards: The number of shards.
        config: The configuration of producers.
    """

    def __init__(self, conversion: Conversion, shards: int, config: Mapping[str, Any]) -> None:
        super().__init__(conversion, shards)
        self._config = config

    def setup(self) -> None:
        """Prepare to ask brokers for the limits of topics."""
        self._limits = TopicLimits(self._config, self._conversion.transform)

    @override
    def process(self, element: Any) -> list[Any]:
        try:
            ((shard, record),) = super().process(element)
            self._limits.check(record)
            return [(shard, record)]
        except Exception as error:  # of a serializer, too
            return [dead_letter(element, error)]


class Number(beam.DoFn):  # type: ignore[misc]
    """Numbers the records of each shard, in batches."""

    NEXT = ReadModifyWriteStateSpec("next", VarIntCoder())
    WRITER = ReadModifyWriteStateSpec("writer", StrUtf8Coder())

    def process(
        self,
        group: tuple[int, Iterable[Outgoing]],
        next_: Any = beam.DoFn.StateParam(NEXT),
        writer: Any = beam.DoFn.StateParam(WRITER),
    ) -> Iterator[tuple[int, tuple[str, str, int, list[Outgoing]]]]:
        """Yield batches with consecutive numbers, each with its shard as key."""
        shard, records = group
        number: int = next_.read() or 0
        name = writer.read() or uuid.uuid4().hex
        writer.write(name)
        together = uuid.uuid4().hex[:12]
        for several in _in_batches(records):
            yield shard, (name, together, number, several)
            number += len(several)
        next_.write(number)


def _size(record: Outgoing) -> int:
    _, _, key, value, _, headers = record
    return len(key or b"") + len(value or b"") + 50 * len(headers) + 20


def _in_batches(records: Iterable[Outgoing]) -> Iterator[list[Outgoing]]:
    batch: list[Outgoing] = []
    size = 0
    for record in records:
        batch.append(record)
        size += _size(record)
        if len(batch) >= _MAX_RECORDS or size >= _MAX_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class WriteBatches(beam.DoFn):  # type: ignore[misc]
    """Writes batches in the order of their numbers.

    Its input is stable, so that a retried bundle has the same batches.

    Args:
        sink: The target.
    """

    NEXT = ReadModifyWriteStateSpec("next", VarIntCoder())
    SINK_GROUP = ReadModifyWriteStateSpec("sink_group", StrUtf8Coder())
    EARLY = BagStateSpec("early", registry.get_coder(BATCH_TYPE))

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def setup(self) -> None:
        """Get the writers that all instances in this process share."""
        self._writers = shared(self._sink.id, ShardWriters)

    def teardown(self) -> None:
        """Release the writers; the last instance closes them."""
        release(self._sink.id)

    def start_bundle(self) -> None:
        """Begin a bundle without batches."""
        self._batches: dict[int, list[Batch]] = {}
        self._new_groups: set[int] = set()
        self._size = 0
        note_written(self._sink.config, self._sink.topic)

    def process(
        self,
        element: tuple[int, tuple[str, str, int, list[Outgoing]]],
        next_: Any = beam.DoFn.StateParam(NEXT),
        sink_group: Any = beam.DoFn.StateParam(SINK_GROUP),
        early: Any = beam.DoFn.StateParam(EARLY),
    ) -> None:
        """Queue a batch, and write all queued ones if they are large.

        A batch that arrives before an earlier one of its shard is stored in state.
        """
        shard, fields = element
        batch = Batch(*fields)
        expected: int = next_.read() or 0
        if batch.first < expected:
            raise KafkaAccessError(
                f"shard {shard} has received records from number {batch.first} on again, although "
                f"those below {expected} are written: report this as an error of the pipeline's "
                "runner",
                self._sink.transform,
            )
        if batch.first > expected:
            # An earlier batch is yet to arrive: an exchange may change the order.
            early.add(fields)
            return
        others = sorted((Batch(*other) for other in early.read()), key=lambda other: other.first)
        for candidate in (batch, *others):
            if candidate.first == expected:
                expected = candidate.end
                self._take(shard, candidate)
        next_.write(expected)
        if sink_group.read() != self._sink.once.sink_group_id:
            self._new_groups.add(shard)
            sink_group.write(self._sink.once.sink_group_id)
        if others:
            early.clear()
            for other in others:
                if other.first > expected:
                    early.add(tuple(other))
        if self._size >= _TRANSACTION_BYTES:
            self._write_all()

    def finish_bundle(self) -> None:
        """Write the queued batches."""
        self._write_all()

    def _take(self, shard: int, batch: Batch) -> None:
        self._batches.setdefault(shard, []).append(batch)
        self._size += sum(map(_size, batch.records))

    def _write_all(self) -> None:
        while self._batches:
            shard, batches = self._batches.popitem()
            self._write(shard, batches)
        self._size = 0

    def _write(self, shard: int, batches: list[Batch]) -> None:
        is_new = shard in self._new_groups
        writer = self._writers.borrow(shard, batches[0].first)
        if writer is not None:
            try:
                writer.write(batches, is_new=is_new)
            except ShardTakenError:
                # Another process has opened the shard meanwhile, and has written nothing.
                writer.close()
                writer = None
        if writer is None:
            writer = self._sink.open(shard)
            writer.write(batches, is_new=is_new)
        self._writers.give_back(shard, writer)


def checked(once: ExactlyOnce, topic: str | None, transform: str) -> str:
    """Check the arguments of an exactly-once write, and return its topic.

    Raises:
        KafkaAccessError: There is no topic, no ``sink_group_id``, or no shard.
    """
    if once.num_shards < 1 or not once.sink_group_id:
        raise KafkaAccessError(f"{once} needs at least one shard, and a sink_group_id", transform)
    if topic is None:
        raise KafkaAccessError("exactly_once needs a topic, whose offsets it commits", transform)
    return topic
