"""From rows to elements: a reader for each kind of delivery."""

import itertools

import numpy as np
from apache_beam.coders import WindowedValueCoder
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import (
    PANE_INFO_UNKNOWN,
    create,
)
from typing_extensions import override

from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.core.user_calls import map_all
from beam_spark_runner.engine.program import Edge
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.coder_errors import Reader, StageEpoch
from beam_spark_runner.engine.rows.cursor import RowCursor
from beam_spark_runner.engine.rows.group_reader import GroupReader
from beam_spark_runner.engine.rows.keyed_reader import KeyedReader
from beam_spark_runner.harness.bundle import BundleInput
from beam_spark_runner.harness.chunking import per_chunk
from beam_spark_runner.harness.grouping.sdk_window_fn import MergeWindows
from beam_spark_runner.harness.sdf.splittable import SplittableInput
from beam_spark_runner.harness.values.spilled_group import ValueLogs
from beam_spark_runner.plan.model import Delivery

_GLOBAL = (GlobalWindow(),)
_BARE = create(None, MIN_US, _GLOBAL, PANE_INFO_UNKNOWN)


class ElementRowReader(Reader):
    """Pushes each row as one element."""

    def __init__(self, edge: Edge, coder: WindowedValueCoder, bundle: BundleInput) -> None:
        super().__init__(edge, coder, bundle)
        self._decode_bare = coder.wrapped_value_coder.get_impl().decode
        self._decode_windowed = coder.get_impl().decode
        self._push = self._bundle.push

    @override
    def _read(self, cursor: RowCursor) -> None:
        block, start, end = cursor.block, cursor.position, cursor.run_end()
        assert block is not None
        cursor.position = end
        flags = (block.dests[start:end] & schema.WINDOWED) != 0
        cuts = (np.flatnonzero(flags[1:] != flags[:-1]) + 1).tolist()
        for first, last in itertools.pairwise([0, *cuts, end - start]):
            push = self._push_windowed if flags[first] else self._push_bare
            coded = block.values[start + first : start + last]
            step = per_chunk(coded)
            for position in range(0, len(coded), step):
                push(coded[position : position + step])

    def _push_bare(self, coded: list[bytes]) -> None:
        self._push(map_all(self._decode_bare, coded), [_BARE] * len(coded))

    def _push_windowed(self, coded: list[bytes]) -> None:
        elements = map_all(self._decode_windowed, coded)
        self._push([element.value for element in elements], elements)


class RestrictionReader(ElementRowReader):
    """Pushes sized restrictions; residuals of an earlier Spark job wait until they are due."""

    def __init__(
        self, edge: Edge, coder: WindowedValueCoder, restrictions: SplittableInput
    ) -> None:
        super().__init__(edge, coder, restrictions)
        self._push_later = restrictions.push_later

    @override
    def _read(self, cursor: RowCursor) -> None:
        block, start, end = cursor.block, cursor.position, cursor.run_end()
        assert block is not None
        later = np.flatnonzero(block.orders[start:end])
        if not len(later):
            super()._read(cursor)
            return
        cursor.position = end
        for row in range(start, end):
            element = self._decode_windowed(block.values[row])
            due_us = int(block.orders[row])
            if due_us:
                try:
                    self._push_later(element, due_us)
                except BaseException as error:
                    self._bundle.raised = error
                    raise
            else:
                self._push([element.value], [element])


def reader_for(
    edge: Edge,
    coder: WindowedValueCoder,
    bundle: BundleInput,
    logs: ValueLogs,
    epoch: StageEpoch | None = None,
    merge_windows: MergeWindows | None = None,
) -> Reader:
    """Choose the reader for an edge.

    Args:
        edge: the edge whose rows are read.
        coder: the coder of the elements.
        bundle: takes the elements.
        logs: the value logs of the task.
        epoch: set where keys are stored from epoch to epoch.
        merge_windows: set where an SDK harness merges the windows of groups.
    """
    match edge.delivery:
        case Delivery.GROUP_BY_KEY:
            return GroupReader(edge, coder, bundle, logs, epoch, merge_windows)
        case Delivery.BY_KEY:
            store = None if epoch is None else epoch.remote_store
            return KeyedReader(edge, coder, bundle, logs, store)
    return ElementRowReader(edge, coder, bundle)
