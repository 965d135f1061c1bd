"""Readers charge to a coder what it raises, and nothing else."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.coders import BytesCoder, IterableCoder, TupleCoder, WindowedValueCoder
from apache_beam.coders.coders import Coder, GlobalWindowCoder, IntervalWindowCoder
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.engine.rows.cursor import RowCursor
from beam_spark_runner.engine.rows.readers import reader_for
from beam_spark_runner.engine.stages.charging import AbandonedError
from beam_spark_runner.harness.values.spilled_group import ValueLogs
from beam_spark_runner.plan.model import Delivery
from tests.unit.engine.rows.test_large_group_readers import sessions_edge
from tests.unit.engine.rows.written_rows import Pushing, as_spark_would, edge_of, written

EDGES: dict[str, Callable[[], Any]] = {
    "elements": lambda: edge_of(Delivery.REDISTRIBUTE),
    "groups": lambda: edge_of(Delivery.GROUP_BY_KEY),
    "keyed": lambda: edge_of(Delivery.BY_KEY),
    "sessions": sessions_edge,
}


class Abandoned(Coder):  # type: ignore[misc]
    """Its task is abandoned while it decodes."""

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, coded: bytes) -> bytes:
        raise AbandonedError


def read_all(
    kind: str, push: Callable[[WindowedValue], Any], limit_bytes: int, value_coder: Coder
) -> None:
    edge = EDGES[kind]()
    window = IntervalWindow(0, 5) if kind == "sessions" else GlobalWindow()
    window_coder = IntervalWindowCoder() if kind == "sessions" else GlobalWindowCoder()
    is_grouped = kind in ("groups", "sessions")
    elements = [WindowedValue((b"k", b"%d" % n), Timestamp(0), (window,)) for n in range(9)]
    pairs = TupleCoder([BytesCoder(), BytesCoder()])
    read_coder = TupleCoder(
        [BytesCoder(), IterableCoder(value_coder) if is_grouped else value_coder]
    )
    batches = written(edge, WindowedValueCoder(pairs, window_coder), elements)
    reader = reader_for(
        edge, WindowedValueCoder(read_coder, window_coder), Pushing(push), ValueLogs(limit_bytes)
    )
    cursor = RowCursor(as_spark_would(edge, batches, random.Random(2), 30), {7}, pytest.fail)
    while cursor.load():
        reader.read(cursor)


@pytest.mark.parametrize("limit_bytes", [1, 1 << 20], ids=["large", "small"])
@pytest.mark.parametrize("kind", EDGES)
def test_what_processing_raises_passes(kind: str, limit_bytes: int) -> None:
    raised = ValueError("user code raised")

    def push(element: WindowedValue) -> None:
        raise raised

    with pytest.raises(ValueError, match="user code raised") as caught:
        read_all(kind, push, limit_bytes, BytesCoder())
    assert caught.value is raised


@pytest.mark.parametrize("limit_bytes", [1, 1 << 20], ids=["large", "small"])
@pytest.mark.parametrize("kind", EDGES)
def test_the_end_of_an_abandoned_task_passes(kind: str, limit_bytes: int) -> None:
    def push(element: WindowedValue) -> None:
        if kind in ("groups", "sessions"):
            list(element.value[1])

    with pytest.raises(AbandonedError):
        read_all(kind, push, limit_bytes, Abandoned())
