"""The input of a bundle on an SDK harness in another process, encoded in blocks."""

import itertools
from collections.abc import Iterator
from typing import Any

from apache_beam.coders import Coder, TupleCoder, WindowedValueCoder
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.harness.beam.plugin.block_edges import KEY_CONTINUES, KEY_ENDS
from beam_spark_runner.harness.codec.blocks import GroupToken, length_prefix
from beam_spark_runner.harness.codec.columns import ElementWriter
from beam_spark_runner.harness.fn_api.services.state_service import BundleState
from beam_spark_runner.harness.values.spilled_group import StreamedValues
from beam_spark_runner.portable.wire import PagedIterableCoder

_FIRST_BLOCK_BYTES = 16 << 10
_BLOCK_BYTES = 1 << 20
"""Blocks grow from the first size to this one, so that the harness begins early, too."""
_MAX_BLOCKS = 1024  # in one message


class RemoteInput:
    """Encodes elements and buffers them until they are sent. Threads: the bundle's.

    Args:
        instruction: The id of the bundle's instruction.
        source: The transform that reads the elements in the SDK harness.
        coder: The coder of the elements.
        writer: Encodes elements in the format of the harness.
        state: The state from which the SDK reads the values of large groups.
        marks_keys: Whether each block is marked if the key ends with it, see ``block_edges``.
    """

    def __init__(
        self,
        instruction: str,
        source: TransformId,
        coder: WindowedValueCoder,
        writer: ElementWriter,
        state: BundleState,
        *,
        marks_keys: bool,
    ) -> None:
        self._instruction = instruction
        self._source = source
        self._writer = writer
        self._pages_groups = _is_of_paged_groups(coder.wrapped_value_coder)
        self._state = state
        self._marks_keys = marks_keys
        self._out: list[bytes] = []  # pieces of the current block
        self._blocks: list[beam_fn_api_pb2.Elements.Data] = []  # complete blocks
        self._size = 0  # bytes of both
        self._block_bytes = _FIRST_BLOCK_BYTES
        self._groups = 0

    @property
    def is_full(self) -> bool:
        """Whether the buffered elements should be sent."""
        return self._size >= self._block_bytes or len(self._blocks) >= _MAX_BLOCKS

    def add(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Encode elements; each has the timestamp, windows and pane of its origin."""
        first = len(self._out)
        if self._pages_groups and any(type(value[1]) is StreamedValues for value in values):
            values = [(key, self._keep(group)) for key, group in values]
        self._writer.write(values, origins, self._out)
        self._size += sum(map(len, itertools.islice(self._out, first, None)))

    def _keep(self, values: Any) -> Any:
        """Register the values of a large group with the state, and return their token."""
        if type(values) is not StreamedValues:
            return values
        # The state service reads the values in another thread, so they must not change any more.
        values.drain()
        self._groups += 1
        # With the bundle's id, so that a read in a later bundle does not find another group.
        token = GroupToken(f"{self._instruction}/group-{self._groups}".encode())
        self._state.keep_group(token, _NestedValues(values))
        return token

    def unsent(self) -> bytes:
        """Return the encoded elements of the current block."""
        return b"".join(self._out)

    def drop(self) -> None:
        """Discard all buffered elements."""
        self._out, self._blocks, self._size = [], [], 0

    def end_key(self) -> None:
        """End the block with the mark that its key has ended. Only if keys are marked."""
        self._cut(KEY_ENDS)

    def take_blocks(self) -> tuple[list[beam_fn_api_pb2.Elements.Data], int]:
        """Remove and return the buffered blocks, and about how many bytes they have."""
        if self._out:
            self._cut(KEY_CONTINUES if self._marks_keys else b"")
        buffer = self._blocks, self._size
        if self._blocks:
            self._block_bytes = min(2 * self._block_bytes, _BLOCK_BYTES)
        self.drop()
        return buffer

    def _cut(self, mark: bytes) -> None:
        self._blocks.append(
            beam_fn_api_pb2.Elements.Data(
                instruction_id=self._instruction,
                transform_id=self._source,
                data=b"".join((mark, *self._out)),
            )
        )
        self._out = []


def _is_of_paged_groups(coder: Coder) -> bool:
    return isinstance(coder, TupleCoder) and isinstance(coder.coders()[1], PagedIterableCoder)


class _NestedValues:
    """The length-prefixed values of a group, as the state service returns them."""

    def __init__(self, values: StreamedValues) -> None:
        self._values = values

    def __iter__(self) -> Iterator[bytes]:
        return (length_prefix(len(value)) + value for value in self._values)
