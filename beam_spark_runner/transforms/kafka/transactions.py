"""Numbered batches of records, each written once: with its number, in one transaction.

The offset that the group of a shard has committed is the number of the next record to write; its
metadata says who has written the others. A batch that is processed again is below that number.

Source: Java ``KafkaExactlyOnceSink``.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from beam_spark_runner.transforms.kafka import error_names
from beam_spark_runner.transforms.kafka.client import LOG, confluent, inquirer
from beam_spark_runner.transforms.kafka.delivery import Delivery
from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.outgoing import Outgoing

_CONNECT_S = 2.0
_TIMEOUT_S = 30.0
_RETRY_S = 300.0
_PAUSE_S = 0.1
_IDLE_S = 60.0
_KEPT_GROUPS = 50
_OF_ALL_CLIENTS = (
    *("bootstrap.", "metadata.broker.", "security.", "sasl.", "ssl.", "enable.ssl.", "client."),
    *("socket.", "broker.", "api.", "reconnect.", "oauth", "plugin.", "debug", "log"),
)


class Batch(NamedTuple):
    """Records of one shard with consecutive numbers.

    Attributes:
        writer: random, of the shard in this pipeline.
        group: random, of all batches that were numbered together.
        first: number of the first record.
        records: at least one.
    """

    writer: str
    group: str
    first: int
    records: Sequence[Outgoing]

    @property
    def after(self) -> int:
        """The number after the last one."""
        return self.first + len(self.records)


class Written(NamedTuple):
    """What the group of a shard has committed.

    Attributes:
        after: number of the next record.
        writer: of the batches; empty: there were none.
        groups: of the last batches, newest last.
    """

    after: int
    writer: str
    groups: tuple[str, ...]

    @classmethod
    def of(cls, offset: int, metadata: str | None, name: str, transform: str) -> "Written":
        """Read what a broker has.

        Raises:
            KafkaAccessError: something else has committed for this group.
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
        """Return the same after batches have been written."""
        groups = dict.fromkeys([*self.groups, *(each.group for each in batches)])
        return Written(batches[-1].after, batches[-1].writer, tuple(groups)[-_KEPT_GROUPS:])

    def metadata(self) -> str:
        """Encode it, without the number."""
        return json.dumps({"writer": self.writer, "groups": self.groups})

    def left(
        self, batches: Sequence[Batch], name: str, transform: str, *, is_new: bool = False
    ) -> list[Batch]:
        """Return those of consecutive batches that have not been written.

        Args:
            batches: of one shard.
            name: of the group.
            transform: for errors.
            is_new: the pipeline has written the batches before these for another group, if at all.

        Raises:
            KafkaAccessError: it is not known of all of them.
        """
        first = batches[0]
        if self.writer and self.writer != first.writer:
            raise KafkaAccessError(
                f"the group {name} is that of another pipeline, or of an earlier run of this one "
                "without its checkpoint: choose another sink_group_id. Records that were written "
                "by that run stay written",
                transform,
            )
        if self.after < first.first and (self.writer or not is_new):
            raise KafkaAccessError(
                f"the group {name} does not know of {first.first - self.after} records that were "
                "written: its offsets were deleted or have expired "
                "(offsets.retention.minutes of the brokers), or the topic is on another cluster. "
                "Continue with another sink_group_id: if the records of the last epoch are there, "
                "they are then written a second time",
                transform,
            )
        for each in batches:
            was_written = each.after <= self.after
            if each.first < self.after and not (was_written and each.group in self.groups):
                raise KafkaAccessError(
                    f"other records were written for the group {name} with the same numbers: the "
                    "pipeline began from a checkpoint or savepoint that is older than what it has "
                    "written. Continue with another sink_group_id; what was written since then "
                    "stays, and is written a second time",
                    transform,
                )
        return [each for each in batches if each.first >= self.after]


class ShardWriter:
    """Writes the batches of one shard in transactions. One thread uses it.

    Args:
        config: of producers.
        transform: for errors.
        topic: whose first partition the offsets are committed for.
        name: ``transactional.id``, and the group. Other producers with it are fenced.

    Raises:
        KafkaAccessError: the brokers do not allow it, or do not answer.
    """

    def __init__(self, config: Mapping[str, Any], transform: str, topic: str, name: str) -> None:
        self._module = confluent(transform)
        self._name, self._transform = name, transform
        self._delivery = Delivery({**config, "transactional.id": name}, transform)
        # Without a connection, librdkafka would look for one again after half a second.
        with contextlib.suppress(self._module.KafkaException):
            self._delivery.producer.list_topics(topic, _CONNECT_S)
        self._call("begin", self._delivery.producer.init_transactions, _TIMEOUT_S)
        self._offset = topic, 0
        common = {key: config[key] for key in config if key.startswith(_OF_ALL_CLIENTS)}
        # Only now: what a producer before this one has begun, has ended.
        with inquirer({**common, "group.id": name}, transform) as asks:
            self._group = asks.client.consumer_group_metadata()
            asked = [self._module.TopicPartition(*self._offset)]
            (found,) = asks.ask(
                lambda wait_s: asks.client.committed(asked, timeout=wait_s), _TIMEOUT_S
            )
            if found.error is not None:
                raise KafkaAccessError(f"the group {name}: {found.error}", transform)
        self._written = Written.of(found.offset, found.metadata, name, transform)

    @property
    def after(self) -> int:
        """Number of the next record, as far as this writer knows."""
        return self._written.after

    def write(self, batches: Sequence[Batch], *, is_new: bool = False) -> None:
        """Write those of consecutive batches that have not been written, in one transaction.

        Args:
            batches: of this shard.
            is_new: see ``Written.left``.

        Raises:
            ShardTakenError: another producer has begun with the same name.
            KafkaAccessError: they cannot be written.
        """
        left = self._written.left(batches, self._name, self._transform, is_new=is_new)
        if not left:
            return
        written = self._written.with_batches(left)
        producer = self._delivery.producer
        try:
            self._call("begin", producer.begin_transaction)
            for batch in left:
                for record in batch.records:
                    self._delivery.send(record)
            self._delivery.flush()
            offset = self._module.TopicPartition(*self._offset, written.after, written.metadata())
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
        self._written = written

    def _call(self, what: str, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a method of the producer, again for as long as its errors are passing."""
        until_s = time.monotonic() + _RETRY_S
        while True:
            try:
                function(*arguments)
                return
            except self._module.KafkaException as error:
                cause = error.args[0]
                if cause.retriable() and time.monotonic() < until_s:
                    LOG.warning("%s: %s: %s; trying again", self._transform, self._name, cause)
                    time.sleep(_PAUSE_S)
                    continue
                raise KafkaAccessError(
                    f"the transaction of {self._name} cannot {what}: {cause.str()}",
                    self._transform,
                ) from error
            except SystemError as error:  # see ``Delivery``: fatal, while a callback returned
                raise KafkaAccessError(
                    f"the transaction of {self._name} cannot {what}: {error.__cause__ or error}",
                    self._transform,
                ) from error

    def _is_taken(self, error: BaseException | None) -> bool:
        while error is not None:
            is_kafkas = isinstance(error, self._module.KafkaException)
            if is_kafkas and error.args[0].name() in error_names.TAKEN:
                return True
            error = error.__cause__
        return False

    def abort(self) -> Exception | None:
        """End the transaction that is open, so that readers do not wait for its time to be over.

        Returns:
            Why this was not possible. If the producer has failed for good, it is the reason for
            that, which is lost where it was raised while a callback returned.
        """
        try:
            self._delivery.producer.abort_transaction(_TIMEOUT_S)
        except (self._module.KafkaException, SystemError) as error:
            LOG.debug("%s: %s was not aborted: %s", self._transform, self._name, error)
            return error
        return None

    def close(self) -> None:
        """Wait for nothing: no transaction is open."""
        self._delivery.producer.flush(0)


class ShardTakenError(KafkaAccessError):
    """Another producer writes this shard."""


class ShardWriters:
    """The writers of a transform in this process, by shard, kept between bundles.

    Threads: any. A writer that was taken is its taker's alone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parked: dict[int, tuple[ShardWriter, float]] = {}

    def take(self, shard: int, after: int) -> ShardWriter | None:
        """Return a writer that knows of all records below a number, if one is here."""
        with self._lock:
            old_s = time.monotonic() - _IDLE_S
            idle = [each for each, (_, since_s) in self._parked.items() if since_s < old_s]
            closing = [self._parked.pop(each)[0] for each in idle]
            found, _ = self._parked.pop(shard, (None, 0.0))
        if found is not None and found.after < after:  # another process went on since
            closing.append(found)
            found = None
        for each in closing:
            each.close()
        return found

    def give_back(self, shard: int, writer: ShardWriter) -> None:
        """Keep a writer for the next bundle."""
        with self._lock:
            before, _ = self._parked.get(shard, (None, 0.0))
            self._parked[shard] = writer, time.monotonic()
        if before is not None:
            before.close()

    def close(self) -> None:
        """Close all that are not taken."""
        with self._lock:
            parked = [writer for writer, _ in self._parked.values()]
            self._parked.clear()
        for each in parked:
            each.close()
