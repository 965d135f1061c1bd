"""Passes the output of an operation to its receivers, in chunks or one by one."""

from collections.abc import Iterable
from typing import Any

from apache_beam.runners.worker import operations
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.harness.beam.result_filter import SPECIAL, SendOne
from beam_spark_runner.harness.values.constants import Kind, may_be_shared

_SAMPLE_EVERY = 128  # elements that are sent one by one


class ChunkEdge:
    """Passes elements to the readers of a collection, in chunks if all of them take chunks.

    Args:
        receiver: Beam's receiver of the collection, which counts elements.
        readers: The operations that read the collection.
        assigns_windows: Whether the operation assigns windows, which are then lists.
    """

    def __init__(
        self,
        receiver: operations.ConsumerSet,
        readers: Iterable[operations.Operation],
        *,
        assigns_windows: bool = False,
    ) -> None:
        self._receiver = receiver
        self._assigns_windows = assigns_windows
        self._readers: list[Any] = list(readers)
        self._takes_chunks = all(hasattr(reader, "process_chunk") for reader in self._readers)
        self._count = receiver.opcounter.element_counter
        self._sample_after = self._until_sample = 1  # elements: the first one is sampled

    def only_reader(self) -> Any:
        """Return the reader that gets all values in chunks; None: there is none, or are several."""
        return self._readers[0] if self._takes_chunks and len(self._readers) == 1 else None

    def count(self, elements: int) -> None:
        """Count values that the only reader has got without this edge."""
        self._count.update(elements)

    def send(self, values: list[Any], origins: list[WindowedValue], kind: Kind) -> None:
        """Count the values and pass them to the readers."""
        if len(values) != len(origins):
            raise InvariantError(f"{len(values)} values came with {len(origins)} origins")
        receiver = self._receiver
        if not self._takes_chunks or (len(self._readers) > 1 and not may_be_shared(values, kind)):
            for value, origin in zip(values, origins, strict=True):
                receiver.receive(self._element(value, origin))
            return
        receiver.update_counters_start(origins[0].with_value(values[0]))
        for reader in self._readers:
            reader.process_chunk(values, origins, kind)
        receiver.update_counters_finish()
        self._count.update(len(values) - 1)

    def sender(self, send_special: SendOne | None = None) -> SendOne:
        """Return a function that counts one value and passes it to the readers.

        ``finish`` must be called after the last value.

        Args:
            send_special: Takes results of the types ``SPECIAL`` instead; None: there are none.
        """
        readers = self._readers
        ordinary_types: set[type] = set()  # types that are not special

        def send_one(value: Any, origin: WindowedValue) -> None:
            kind = type(value)
            if kind not in ordinary_types:
                if send_special is not None and issubclass(kind, SPECIAL):
                    send_special(value, origin)
                    return
                ordinary_types.add(kind)
            self._until_sample -= 1
            if self._until_sample:
                for reader in readers:
                    reader.process_one(value, origin)
                return
            self._until_sample = 1  # this one is counted below
            self.finish()
            self._sample_after = self._until_sample = _SAMPLE_EVERY
            self._receiver.update_counters_start(origin.with_value(value))
            for reader in readers:
                reader.process_one(value, origin)
            self._receiver.update_counters_finish()

        def receive(value: Any, origin: WindowedValue) -> None:
            if send_special is not None and isinstance(value, SPECIAL):
                send_special(value, origin)
            else:
                self._receiver.receive(self._element(value, origin))

        takes_one = all(hasattr(reader, "process_one") for reader in readers)
        return send_one if takes_one else receive

    def finish(self) -> None:
        """Count the values that ``sender`` has passed on and not yet counted."""
        self._count.update(self._sample_after - self._until_sample)
        self._sample_after = self._until_sample = 1

    def _element(self, value: Any, origin: WindowedValue) -> WindowedValue:
        element = origin.with_value(value)
        if self._assigns_windows:
            element.windows = list(origin.windows)  # as window fns return them
        return element
