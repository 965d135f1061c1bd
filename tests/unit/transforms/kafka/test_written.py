"""What is known of batches that were written, and what is left of others."""

import pytest

from beam_spark_runner.transforms.kafka.errors import KafkaAccessError
from beam_spark_runner.transforms.kafka.outgoing import Outgoing
from beam_spark_runner.transforms.kafka.transactions import Batch, Written

RECORD: Outgoing = ("t", None, b"k", b"v", None, [])
NOTHING = Written.of(-1001, None, "sink-0", "w")


def batch(first: int, size: int = 3, *, group: str = "g1", writer: str = "me") -> Batch:
    return Batch(writer, group, first, [RECORD] * size)


def stored(written: Written) -> Written:
    """Return it as a broker gives it back."""
    return Written.of(written.next_number, written.metadata(), "sink-0", "w")


def left(written: Written, *batches: Batch, is_new: bool = False) -> list[Batch]:
    return written.unwritten(batches, "sink-0", "w", is_new=is_new)


def test_all_is_left_at_first() -> None:
    batches = [batch(0), batch(3)]
    assert left(NOTHING, *batches) == batches
    written = stored(NOTHING.with_batches(batches))
    assert (written.next_number, written.writer, written.groups) == (6, "me", ("g1",))


def test_what_was_written_is_not_left() -> None:
    written = stored(NOTHING.with_batches([batch(0), batch(3)]))
    assert left(written, batch(0), batch(3)) == []
    assert left(written, batch(3), batch(6)) == [batch(6)]
    assert left(written, batch(6, group="g2")) == [batch(6, group="g2")]


def test_other_writers_are_refused() -> None:
    written = stored(NOTHING.with_batches([batch(0)]))
    with pytest.raises(KafkaAccessError, match="is that of another pipeline"):
        left(written, batch(0, writer="other"))


def test_offsets_that_something_else_has_committed_are_refused() -> None:
    for metadata in ("", None, "{}", "[]", "a consumer"):
        with pytest.raises(KafkaAccessError, match="this transform has not committed"):
            Written.of(5, metadata, "sink-0", "w")


def test_lost_offsets_are_noticed() -> None:
    with pytest.raises(KafkaAccessError, match=r"does not know of 3 records.*have expired"):
        left(NOTHING, batch(3))


def test_a_pipeline_may_continue_with_another_group() -> None:
    assert left(NOTHING, batch(3), batch(6), is_new=True) == [batch(3), batch(6)]
    written = stored(NOTHING.with_batches([batch(3)]))  # after which an attempt was killed
    assert left(written, batch(3), batch(6), is_new=True) == [batch(6)]
    with pytest.raises(KafkaAccessError, match="is that of another pipeline"):
        left(written, batch(6, writer="other"), is_new=True)
    with pytest.raises(KafkaAccessError, match="does not know of 3 records"):
        left(written, batch(9), is_new=True)


def test_an_older_checkpoint_is_noticed() -> None:
    """Its records have the numbers of others."""
    written = stored(NOTHING.with_batches([batch(0), batch(3)]))
    for other in (batch(0, group="g2"), batch(3, 5, group="g1")):
        with pytest.raises(KafkaAccessError, match="older than what it has written"):
            left(written, other)


def test_metadata_stays_small() -> None:
    """Brokers take 4096 bytes."""
    written = NOTHING
    for number in range(200):
        written = written.with_batches([batch(3 * number, group=f"{number:012x}")])
    assert len(written.metadata()) < 2000
    assert left(stored(written), batch(597, group=f"{199:012x}")) == []
