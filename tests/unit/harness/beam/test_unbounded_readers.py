"""Readers that wait between bundles, of DoFns that take turns."""

from typing import Any

from apache_beam.io.unbounded_source import UnboundedReader, _ReadFromUnboundedSourceDoFn

from beam_spark_runner.harness.beam.unbounded_readers import StageReaders


class Reader(UnboundedReader):  # type: ignore[misc]
    closed = 0

    def close(self) -> None:
        self.closed += 1


def dofn(readers: StageReaders | None = None) -> Any:
    made = _ReadFromUnboundedSourceDoFn()
    if readers is None:
        made.setup()
    else:
        with readers.shared():
            made.setup()
    return made


def test_a_reader_waits_for_whichever_dofn_of_the_stage_comes_next() -> None:
    readers, reader = StageReaders(), Reader()
    one, other = dofn(readers), dofn(readers)
    one._reader_cache.park("mark", reader, True)
    one.teardown()  # its bundle's callbacks have run, and the stage has enough DoFns
    assert other._reader_cache.acquire("mark") == (reader, True)
    assert other._reader_cache.acquire("mark") is None
    assert reader.closed == 0


def test_those_that_wait_are_closed_with_the_stage() -> None:
    readers, reader = StageReaders(), Reader()
    one = dofn(readers)
    one._reader_cache.park("mark", reader, True)
    one.teardown()
    readers.close()
    readers.close()
    assert reader.closed == 1


def test_other_stages_and_dofns_without_one_have_readers_of_their_own() -> None:
    readers, others, reader = StageReaders(), StageReaders(), Reader()
    with readers.shared():
        inner = dofn(others)  # a stage may be opened while another one is
        after = dofn_here()
    alone = dofn()
    caches = [each._reader_cache for each in (dofn(readers), inner, alone)]
    assert len(set(map(id, caches))) == 3
    assert after._reader_cache is caches[0]
    alone._reader_cache.park("mark", reader, True)
    alone.teardown()
    assert reader.closed == 1


def dofn_here() -> Any:
    made = _ReadFromUnboundedSourceDoFn()
    made.setup()
    return made
