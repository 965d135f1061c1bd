"""Runs ParDos whose bundle is a partition: they take chunks, and get side inputs at the start."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.harness.beam.chunks import ChunkedParDo
from beam_spark_runner.harness.failures import ChargedTo
from beam_spark_runner.harness.values.constants import Kind

Chunk = tuple[list[Any], list[WindowedValue]]


class PartitionFn(Protocol):
    """A ``PartitionDoFn`` of ``transforms.full_window.functions``, which documents these members.

    It is not imported, because a DoFn that was pickled by value has its own class.
    """

    takes_partition: bool
    has_begun: bool
    has_ended: bool

    def begin(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None: ...

    def add(self, values: list[Any], origins: list[WindowedValue]) -> Iterable[Chunk]: ...

    def end(self) -> Iterable[Chunk]: ...


def takes_partition(fn: object) -> bool:
    """Whether a DoFn is a ``PartitionFn``."""
    return getattr(fn, "takes_partition", False) is True


class PartitionParDo(ChunkedParDo):
    """A ParDo with a ``PartitionFn``."""

    _fn: PartitionFn

    @override
    def process_chunk(self, values: list[Any], origins: list[WindowedValue], kind: Kind) -> None:
        with self.scoped_process_state, ChargedTo(self.step_name):
            self._begin()
            self._send(self._fn.add(values, origins))

    @override
    def process_one(self, value: Any, origin: WindowedValue) -> None:
        self.process_chunk([value], [origin], Kind.OWN)

    @override
    def finish(self) -> None:
        """End the partition, even an empty one, and then the bundle."""
        self.flush()
        with self.scoped_process_state, ChargedTo(self.step_name):
            self._begin()
            self._send(self._fn.end())
            self._fn.has_ended = True
        super().finish()

    def _begin(self) -> None:
        if not self._fn.has_begun:
            args, kwargs, _ = self._arguments()
            self._fn.begin(args, kwargs)

    def _send(self, chunks: Iterable[Chunk]) -> None:
        for results, origins in chunks:
            self._edge.send(results, origins, Kind.OWN)
