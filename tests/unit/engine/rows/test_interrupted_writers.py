"""Writers that another thread interrupts while a user's coder runs."""

from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.coders import BytesCoder, Coder, TupleCoder, WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.engine.rows.writers import writer_for
from beam_spark_runner.engine.rows.writing import EncodingError, Outlet, Writer
from beam_spark_runner.engine.stages.charging import AbandonedError
from beam_spark_runner.plan.model import Delivery
from tests.unit.engine.rows.written_rows import GLOBAL, edge_of

ORIGIN = WindowedValue(None, MIN_TIMESTAMP, (GLOBAL,))


class Raising(Coder):  # type: ignore[misc]
    """Raises an error at its second call, and only there, as an interruption does."""

    def __init__(self, error: Exception) -> None:
        self.error, self.calls = error, 0

    def encode(self, value: Any) -> bytes:
        self.calls += 1
        if self.calls == 2:
            raise self.error
        return bytes(value)

    def is_deterministic(self) -> bool:
        return True


def _in_a_chunk(writer: Writer) -> None:
    writer.accept_chunk([(b"k", b"v")] * 3, [ORIGIN] * 3)


def _one_by_one(writer: Writer) -> None:
    for _ in range(3):
        writer.accept(ORIGIN.with_value((b"k", b"v")))


@pytest.mark.parametrize(
    "delivery", [Delivery.BY_KEY, Delivery.GROUP_BY_KEY, Delivery.REDISTRIBUTE]
)
@pytest.mark.parametrize("write", [_in_a_chunk, _one_by_one])
@pytest.mark.parametrize(
    ("error", "raised"), [(AbandonedError(), AbandonedError), (ValueError(), EncodingError)]
)
def test_only_errors_of_coders_are_errors_of_elements(
    delivery: Delivery,
    write: Callable[[Writer], None],
    error: Exception,
    raised: type[Exception],
) -> None:
    coder = WindowedValueCoder(TupleCoder([BytesCoder(), Raising(error)]), GlobalWindowCoder())
    outlet = Outlet(
        emit=lambda _: None, row_limit_bytes=100, max_element_bytes=100, partitions=1, first=0
    )
    writer = writer_for(edge_of(delivery), coder, outlet)
    with pytest.raises(raised):
        write(writer)
