"""Writes numbered batches of records once each: records and their numbers in one transaction.

The offset that the consumer group of a shard has committed is the number of the next record to
write; its metadata identifies the writer of the earlier records. A batch that is processed again
has lower numbers, and is skipped.

Source: Java ``KafkaExactlyOnceSink``.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from beam_spark_runner.transforms.kafka import error_names
from beam_spark_runner.transforms.kafka.client import LOG, confluent, inquirer
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.outgoing import Outgoing
from beam_spark_runner.transforms.kafka.record_producer import RecordProducer
from beam_spark_runner.transforms.kafka.topic_limits import of_all_clients

_CONNECT_S = 2.0
_TIMEOUT_S = 30.0
_RETRY_S = 300.0
_PAUSE_S = 0.1
_IDLE_S = 60.0
_KEPT_GROUPS = 50


class Batch(NamedTuple):
    """Records of one shard with consecutive numbers.

    Attributes:
        writer: A random id of the shard in this pipeline.
        group: A random id of all batches that were numbered together.
        first: The number of the first record.
        records: The records, at least one.
    """

    writer: str
    group: str
    first: int
    records: Sequence[Outgoing]

    @property
    def end(self) -> int:
        """The number after the last one."""
        return self.first + len(self.records)


class Written(NamedTuple):
    """The offset and metadata that the consumer group of a shard has committed.

    Attributes:
        next_number: The number of the next record.
        writer: The writer of the batches; empty: no batch was written.
        groups: The groups of the last batches, newest last.
    """

    next_number: int
    writer: str
    groups: tuple[str, ...]

    @classmethod
    def of(cls, offset: int, metadata: str | None, name: str, transform: str) -> "Written":
        """Parse the committed offset and metadata.

        Args:
            offset: The committed offset; negative: there is none.
            metadata: The metadata of the commit.
            name: The name of the group, for errors.
            transform: The label of the transform, for errors.

        Raises:
            KafkaAccessError: The commit is not one of this transform.
        """
        if offset < 0:
            return cls(0, "", ())
        try:
            fields = json.loads(metadata or "")
            return cls(offset, fields["writer"], tuple(fields["groups"]))
        except (ValueError, KeyError, TypeError) as error:
            raise KafkaAccessError(
                f"the group {name} has offsets that this transform has not committed: choose a "
                "sink_group_id that nothing else uses",
                transform,
            ) from error

    def with_batches(self, batches: Sequence[Batch]) -> "Written":
        """Return the state after batches have been written."""
        groups = dict.fromkeys([*self.groups, *(batch.group for batch in batches)])
        return Written(batches[-1].end, batches[-1].writer, tuple(groups)[-_KEPT_GROUPS:])

    def metadata(self) -> str:
        """Return the metadata to commit: writer and groups in JSON."""
        return json.dumps({"writer": self.writer, "groups": self.groups})

    def unwritten(
        self, batches: Sequence[Batch], name: str, transform: str, *, is_new: bool = False
    ) -> list[Batch]:
        """Return those of consecutive batches that have not been written.

        Args:
            batches: Batches of one shard.
            name: The name of the group, for errors.
            transform: The label of the transform, for errors.
            is_new: Whether the pipeline has not written for this group yet; it may have written
                earlier batches for another one.

        Raises:
            KafkaAccessError: The commit belongs to another run, has expired, or is newer than the
                checkpoint, so that it does not tell which batches were written.
        """
        first = batches[0]
        if self.writer and self.writer != first.writer:
            raise KafkaAccessError(
                f"the group {name} is that of another pipeline, or of an earlier run of this one "
                "without its checkpoint: choose another sink_group_id. Records that were written "
                "by that run stay written",
                transform,
            )
        if self.next_number < first.first and (self.writer or not is_new):
            raise KafkaAccessError(
                f"the group {name} does not know of {first.first - self.next_number} records that "
                "were written: its offsets were deleted or have expired "
                "(offsets.retention.minutes of the brokers), or the topic is on another cluster. "
                "Continue with another sink_group_id: if the records of the last epoch are there, "
                "they are then written a second time",
                transform,
            )
        for batch in batches:
            was_written = batch.end <= self.next_number
            if batch.first < self.next_number and not (was_written and batch.group in self.groups):
                raise KafkaAccessError(
                    f"other records were written for the group {name} with the same numbers: the "
                    "pipeline began from a checkpoint or savepoint that is older than what it has "
                    "written. Continue with another sink_group_id; what was written since then "
                    "stays, and is written a second time",
                    transform,
                )
        return [batch for batch in batches if batch.first >= self.next_number]


class ShardWriter:
    """Writes the batches of one shard in transactions. Threads: one.

    Args:
        config: The configuration of producers.
        transform: The label of the transform, for errors.
        topic: The topic for whose first partition offsets are committed.
        name: The ``transactional.id``, and the name of the consumer group. Other producers with
            this id are fenced.

    Raises:
        KafkaAccessError: The brokers do not allow it, or do not answer.
    """

    def __init__(self, config: Mapping[str, Any], transform: str, topic: str, name: str) -> None:
        self._module = confluent(transform)
        self._name, self._transform = name, transform
        self._delivery = RecordProducer({**config, "transactional.id": name}, transform)
        # Connect first: librdkafka retries after half a second if it has no connection yet.
        try:
            self._delivery.producer.list_topics(topic, _CONNECT_S)
        except self._module.KafkaException:
            self._delivery.serve()  # a refusal ends it here
        self._call("begin", self._delivery.producer.init_transactions, _TIMEOUT_S)
        self._offset = topic, 0
        # Only now, since ``init_transactions`` has ended the transaction of an earlier producer.
        with inquirer({**of_all_clients(config), "group.id": name}, transform) as asks:
            self._group = asks.client.consumer_group_metadata()
            partitions = [self._module.TopicPartition(*self._offset)]
            (last,) = asks.ask(
                lambda wait_s: asks.client.committed(partitions, timeout=wait_s), _TIMEOUT_S
            )
            if last.error is not None:
                raise KafkaAccessError(f"the group {name}: {last.error}", transform)
        self._state = Written.of(last.offset, last.metadata, name, transform)

    @property
    def next_number(self) -> int:
        """The number of the next record, according to this writer's last commit."""
        return self._state.next_number

    def write(self, batches: Sequence[Batch], *, is_new: bool = False) -> None:
        """Write those of consecutive batches that have not been written, in one transaction.

        Args:
            batches: Batches of this shard.
            is_new: See ``Written.unwritten``.

        Raises:
            ShardTakenError: Another producer has begun with the same ``transactional.id``.
            KafkaAccessError: The batches cannot be written.
        """
        rest = self._state.unwritten(batches, self._name, self._transform, is_new=is_new)
        if not rest:
            return
        state = self._state.with_batches(rest)
        producer = self._delivery.producer
        try:
            self._call("begin", producer.begin_transaction)
            for batch in rest:
                for record in batch.records:
                    self._delivery.send(record)
            self._delivery.flush()
            offset = self._module.TopicPartition(*self._offset, state.next_number, state.metadata())
            self._call(
                "write offsets",
                producer.send_offsets_to_transaction,
                [offset],
                self._group,
                _TIMEOUT_S,
            )
            self._call("commit", producer.commit_transaction, _TIMEOUT_S)
        except BaseException as error:
            if self._is_taken(self.abort()) or self._is_taken(error):
                raise ShardTakenError(
                    f"another producer has begun to write as {self._name}", self._transform
                ) from error
            raise
        self._state = state

    def _call(self, what: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a method of the producer, and retry after retriable errors.

        Args:
            what: The action, for errors.
            function: The method.
            arguments: The arguments of the method.

        Raises:
            KafkaAccessError: The call failed, or a broker refuses this client.
        """
        until_s = time.monotonic() + _RETRY_S
        while True:
            try:
                function(*arguments)
                return
            except self._module.KafkaException as error:
                cause = error.args[0]
                problem = cause.str()
                if cause.retriable():
                    self._delivery.serve()  # runs ``error_cb``, whose errors have the cause
                    if time.monotonic() < until_s:
                        LOG.warning("%s: %s: %s; trying again", self._transform, self._name, cause)
                        time.sleep(_PAUSE_S)
                        continue
                    problem += f". Its latest error was: {self._delivery.latest_problem or 'none'}"
                raise self._failed(what, problem) from error
            except SystemError as error:  # see ``RecordProducer``: fatal, while a callback returned
                raise self._failed(what, error.__cause__ or error) from error

    def _failed(self, what: str, problem: object) -> KafkaAccessError:
        text = f"the transaction of {self._name} cannot {what}: {problem}"
        return KafkaAccessError(text, self._transform)

    def _is_taken(self, error: BaseException | None) -> bool:
        while error is not None:
            is_kafkas = isinstance(error, self._module.KafkaException)
            if is_kafkas and error.args[0].name() in error_names.TAKEN:
                return True
            error = error.__cause__
        return False

    def abort(self) -> Exception | None:
        """Abort the open transaction, so that readers do not wait until it times out.

        Returns:
            The error if this failed; None: aborted. If the producer has failed fatally, it is the
            cause of that, which is lost if it was first raised while a callback returned.
        """
        try:
            self._delivery.producer.abort_transaction(_TIMEOUT_S)
        except (self._module.KafkaException, SystemError) as error:
            LOG.debug("%s: %s was not aborted: %s", self._transform, self._name, error)
            return error
        return None

    def close(self) -> None:
        """Flush the producer without waiting, since no transaction is open."""
        self._delivery.producer.flush(0)


class ShardTakenError(KafkaAccessError):
    """The producer is fenced: another one has opened the same shard."""


class ShardWriters:
    """The pool of a transform's writers in this process, by shard.

    Threads: any. Between ``borrow`` and ``give_back``, only the caller uses a writer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parked: dict[int, tuple[ShardWriter, float]] = {}

    def borrow(self, shard: int, number: int) -> ShardWriter | None:
        """Return the writer of a shard, if the pool has one that is up to date.

        Args:
            shard: The number of the shard.
            number: The number of the next record. A writer whose own next number is lower is
                closed: another process has written since.
        """
        with self._lock:
            old_s = time.monotonic() - _IDLE_S
            idle = [other for other, (_, since_s) in self._parked.items() if since_s < old_s]
            closing = [self._parked.pop(other)[0] for other in idle]
            writer, _ = self._parked.pop(shard, (None, 0.0))
        if writer is not None and writer.next_number < number:
            closing.append(writer)  # another process has continued since
            writer = None
        for old_writer in closing:
            old_writer.close()
        return writer

    def give_back(self, shard: int, writer: ShardWriter) -> None:
        """Return a writer to the pool, for the next bundle."""
        with self._lock:
            previous, _ = self._parked.get(shard, (None, 0.0))
            self._parked[shard] = writer, time.monotonic()
        if previous is not None:
            previous.close()

    def close(self) -> None:
        """Close the writers in the pool."""
        with self._lock:
            parked = [writer for writer, _ in self._parked.values()]
            self._parked.clear()
        for writer in parked:
            writer.close()
