"""Where the output of an operation goes: many elements at a time, or one by one."""

from collections.abc import Iterable
from typing import Any

from apache_beam.runners.worker import operations
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.harness.steps import SPECIAL, SendOne

_SAMPLE_EVERY = 128  # elements that are sent one by one


class ChunkEdge:
    """Hands elements to the readers of a collection, in chunks if all of them take chunks."""

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

    def send(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Count the values and hand them to the readers."""
        if len(values) != len(origins):
            raise InvariantError(f"{len(values)} values came with {len(origins)} origins")
        receiver = self._receiver
        if not self._takes_chunks:
            for value, origin in zip(values, origins, strict=True):
                receiver.receive(self._element(value, origin))
            return
        receiver.update_counters_start(origins[0].with_value(values[0]))
        for reader in self._readers:
            reader.process_chunk(values, origins)
        receiver.update_counters_finish()
        self._count.update(len(values) - 1)

    def sender(self, send_special: SendOne | None = None) -> SendOne:
        """Return what counts one value and hands it to the readers.

        Args:
            send_special: takes results of the kinds ``SPECIAL`` instead; None: there are none.
        """
        processes = [self._process_one(reader) for reader in self._readers]
        known: set[type] = set()
        count = self._count.update
        until_sample = 0

        def send_one(value: Any, origin: WindowedValue) -> None:
            nonlocal until_sample
            kind = type(value)
            if kind not in known:
                if send_special is not None and issubclass(kind, SPECIAL):
                    send_special(value, origin)
                    return
                known.add(kind)
            until_sample -= 1
            if until_sample < 0:  # what is sent as a chunk has its size sampled
                until_sample = _SAMPLE_EVERY
                self.send([value], [origin])
                return
            for process in processes:
                process(value, origin)
            count(1)

        def receive(value: Any, origin: WindowedValue) -> None:
            if send_special is not None and isinstance(value, SPECIAL):
                send_special(value, origin)
            else:
                self._receiver.receive(self._element(value, origin))

        return send_one if self._takes_chunks else receive

    def _process_one(self, reader: Any) -> SendOne:
        process: SendOne | None = getattr(reader, "process_one", None)
        if process is not None:
            return process
        return lambda value, origin: reader.process(self._element(value, origin))

    def _element(self, value: Any, origin: WindowedValue) -> WindowedValue:
        element = origin.with_value(value)
        if self._assigns_windows:
            element.windows = list(origin.windows)  # as window fns give them
        return element
