"""Writes rows of side inputs in epochs: one task gets all values of a part of a window.

A side input whose panes add up is gathered in parts, one in each partition. Otherwise one task gets
all its values, since a trigger must see them together.
"""

import functools
import itertools
from collections import Counter
from typing import Any

from apache_beam.coders import (
    BytesCoder,
    Coder,
    IterableCoder,
    TupleCoder,
    VarIntCoder,
    WindowedValueCoder,
)
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core import routing, urns
from beam_spark_runner.engine.program import Edge
from beam_spark_runner.engine.rows.group_writer import GroupWriter
from beam_spark_runner.engine.rows.writing import Outlet

WHOLE = b""
"""The key of all values of a side input that is not gathered in parts."""
_VALUES_PER_PART = 1_000
_TRIED = 64  # keys at once
_KEY_BYTES = 4


def pane_coder(coder: WindowedValueCoder) -> WindowedValueCoder:
    """Return the coder of a side input's panes: KV<part, values, each with its epoch>.

    Args:
        coder: the coder of the elements.
    """
    values = IterableCoder(_in_epoch(coder.wrapped_value_coder))
    return WindowedValueCoder(TupleCoder((BytesCoder(), values)), coder.window_coder)


def _in_epoch(coder: Coder) -> Coder:
    return TupleCoder((VarIntCoder(), coder))


@functools.lru_cache(16)
def parts_of(key_groups: int, partitions: int) -> tuple[bytes, ...]:
    """Return a key for each partition, which is partitioned to it as other keys are.

    Args:
        key_groups: the number of key groups.
        partitions: the number of partitions of the exchange; at most as many.
    """
    encode = BytesCoder().get_impl().encode_nested
    key_of: dict[int, bytes] = {}
    for start in itertools.count(0, _TRIED):
        keys = [n.to_bytes(_KEY_BYTES, "big") for n in range(start, start + _TRIED)]
        targets = routing.partitions_of_keys(map(encode, keys), _TRIED, key_groups, partitions)
        for key, partition in zip(keys, targets.tolist(), strict=True):
            key_of.setdefault(partition, key)
        if len(key_of) == partitions:
            break
    return tuple(key_of[partition] for partition in range(partitions))


class ViewRowWriter(GroupWriter):
    """Writes values with their windows and their epoch, each with the key of its part.

    The part of a multimap's value depends on the hash of its key. Other values of a window begin
    in the part of the window's hash, and go to the next part after each thousand, so that a small
    side input is in one part.
    """

    def __init__(self, edge: Edge, coder: WindowedValueCoder, outlet: Outlet) -> None:
        value_coder = coder.wrapped_value_coder
        pairs = TupleCoder((BytesCoder(), _in_epoch(value_coder)))
        super().__init__(edge, WindowedValueCoder(pairs, coder.window_coder), outlet)
        self._epoch = outlet.epoch
        self._parts: tuple[bytes, ...] = (WHOLE,)
        if edge.is_in_parts:
            self._parts = parts_of(edge.key_groups, outlet.partitions)
        self._is_multimap = edge.access_pattern == urns.SIDE_INPUT_MULTIMAP
        if self._is_multimap:
            self._encode_map_key = value_coder.key_coder().get_impl().encode_nested
        self._counts: Counter[Any] = Counter()  # of values, by window
        self._accept_pairs = self.accept_chunk
        self.accept_chunk = self._accept_values  # type: ignore[method-assign]

    def _accept_values(self, values: list[Any], origins: list[WindowedValue]) -> None:
        epoch = self._epoch
        if len(self._parts) == 1:
            (part,) = self._parts
            pairs = [(part, (epoch, value)) for value in values]
        else:
            pairs = [
                (self._part_of(value, origin), (epoch, value))
                for value, origin in zip(values, origins, strict=True)
            ]
        self._accept_pairs(pairs, origins)

    def _part_of(self, value: Any, origin: WindowedValue) -> bytes:
        if self._is_multimap:
            try:
                hashed = routing.route_of_key(self._encode_map_key(value[0]), 0)
            except Exception as error:
                raise self._encoding_error("key", value, error) from error
        else:
            window = origin.windows[0]  # a value in several windows goes to one part
            hashed = routing.route_of_key(self._coded_window(window), 0)
            hashed += self._counts[window] // _VALUES_PER_PART
            self._counts[window] += 1
        return self._parts[hashed % len(self._parts)]
