import errno
import os
import pickle
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.harness.values import spilled_group
from beam_spark_runner.harness.values.spilled_group import (
    GroupClosedError,
    LogReader,
    StreamedValues,
    ValueLogs,
)
from tests.unit.harness.values.spill_files import spill_files

VALUES = st.lists(st.binary(max_size=30), max_size=30)


class Source:
    """Counts what was taken of it."""

    def __init__(self, values: list[bytes]) -> None:
        self.values, self.taken = values, 0

    def __iter__(self) -> Iterator[bytes]:
        for value in self.values:
            self.taken += 1
            yield value


@pytest.fixture(params=[0, 500, 1 << 20], ids=["all on disk", "some on disk", "none on disk"])
def logs(request: pytest.FixtureRequest) -> ValueLogs:
    return ValueLogs(request.param)


def streamed(values: list[bytes], logs: ValueLogs) -> tuple[StreamedValues, Source]:
    source = Source(values)
    return StreamedValues(logs.new(), bytes.decode, source), source


TEXTS = [str(n) * (n % 50) for n in range(200)]
CODED = [text.encode() for text in TEXTS]


@given(VALUES, st.integers(1, 2000))
def test_a_log_gives_back_what_it_got(values: list[bytes], limit_bytes: int) -> None:
    log = ValueLogs(limit_bytes).new()
    for value in values:
        log.append(value)
    assert list(log) == values == list(log)
    log.close()


def test_a_log_is_read_while_it_grows() -> None:
    log, reader = ValueLogs(150).new(), None
    for value in CODED:
        log.append(value)
        reader = reader or iter(log)
        assert next(reader) == value
    assert next(reader, None) is None  # type: ignore[arg-type]


def test_values_larger_than_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled_group, "_READ_BYTES", 64)
    values = [bytes([n % 256]) * (n * 7 % 300) for n in range(100)]
    log = ValueLogs(1).new()
    for value in values:
        log.append(value)
    assert list(log) == values


def test_a_reader_skips_what_others_have_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled_group, "_READ_VALUES", 4)
    for limit_bytes in (0, 1 << 20):
        log = ValueLogs(limit_bytes).new()
        for number in range(20):
            log.append(b"%d" % number)
        for count in (0, 1, 4, 6, 19):
            reader = LogReader(log)
            reader.skip(count)
            assert reader.next_values()[:1] == [b"%d" % count]
        reader.skip(0)
        assert reader.next_values() == []


def test_little_of_a_log_is_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled_group, "_READ_VALUES", 4)
    for in_memory in (True, False):
        log = ValueLogs().new(in_memory=in_memory)
        for _ in range(10):
            log.append(b"value")
        reader = LogReader(log)
        assert [len(some) for some in iter(reader.next_values, [])] == [4, 4, 2]


class TestStreamedValues:
    def test_again_and_again(self, logs: ValueLogs) -> None:
        group, source = streamed(CODED, logs)
        assert [list(group) for _ in range(3)] == [TEXTS] * 3
        assert source.taken == len(TEXTS)

    def test_only_what_is_asked_for_is_taken(self, logs: ValueLogs) -> None:
        group, source = streamed(CODED, logs)
        assert next(iter(group)) == TEXTS[0]
        assert source.taken == 1
        assert list(group) == TEXTS

    def test_two_at_once(self, logs: ValueLogs) -> None:
        group, source = streamed(CODED, logs)
        assert list(zip(group, group, strict=True)) == [(text, text) for text in TEXTS]
        assert source.taken == len(TEXTS)

    def test_in_turns(self, logs: ValueLogs) -> None:
        group, _ = streamed(CODED, logs)
        seen: tuple[list[str], ...] = ([], [], [])
        readers = [iter(group) for _ in seen]
        for turn in range(3 * len(TEXTS)):
            # Each is ahead for a while, so that it reads the source, and behind for a while.
            who = (turn // 7 + turn // 40) % 3
            seen[who].extend([text] if (text := next(readers[who], None)) is not None else [])
        for texts, reader in zip(seen, readers, strict=True):
            texts.extend(reader)
            assert texts == TEXTS

    def test_kept_for_later(self, logs: ValueLogs) -> None:
        group, source = streamed(CODED, logs)
        reader = iter(group)
        first = [next(reader) for _ in range(3)]
        group.drain()
        assert source.taken == len(TEXTS)
        assert first + list(reader) == TEXTS == list(group)

    def test_it_pickles_as_a_list(self, logs: ValueLogs) -> None:
        group, _ = streamed(CODED, logs)
        next(iter(group))
        assert pickle.loads(pickle.dumps(group)) == TEXTS

    def test_once_closed_it_raises(self, logs: ValueLogs) -> None:
        group, _ = streamed(CODED, logs)
        group.drain()
        logs.close()
        for _ in range(2):
            with pytest.raises(GroupClosedError, match="copy those that are needed longer"):
                list(group)
        with pytest.raises(GroupClosedError):
            pickle.dumps(group)

    @pytest.mark.parametrize("seen", [0, 1, 60, len(TEXTS)])
    @pytest.mark.parametrize("is_drained", [True, False], ids=["drained", "under way"])
    def test_an_iteration_that_was_begun_raises(
        self, logs: ValueLogs, seen: int, is_drained: bool
    ) -> None:
        group, _ = streamed(CODED, logs)
        reader = iter(group)
        assert [next(reader) for _ in range(seen)] == TEXTS[:seen]
        if is_drained:
            group.drain()
        logs.close()
        with pytest.raises(GroupClosedError):
            next(reader)

    def test_an_iteration_that_replays_raises(self, logs: ValueLogs) -> None:
        group, _ = streamed(CODED, logs)
        assert list(group) == TEXTS
        reader = iter(group)
        assert next(reader) == TEXTS[0]
        logs.close()
        with pytest.raises(GroupClosedError):
            next(reader)


def test_an_iteration_over_a_log_that_is_closed_raises(logs: ValueLogs) -> None:
    log = logs.new()
    for value in CODED:
        log.append(value)
    reader, fresh = iter(log), iter(log)
    next(reader)
    log.close()
    for late in (reader, fresh, iter(log)):
        with pytest.raises(GroupClosedError):
            next(late)
    with pytest.raises(GroupClosedError):
        log.append(b"more")


def test_the_error_survives_pickling_and_the_step_that_beam_adds() -> None:
    error = GroupClosedError()
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(type(error)(f"{error.args[0]} [while running 'step']")).endswith("'step']")


def test_logs_share_memory_and_give_it_back() -> None:
    before = spill_files()
    logs = ValueLogs(1000)
    first, second, third = logs.new(), logs.new(), logs.new(in_memory=False)
    first.append(bytes(500))
    second.append(bytes(500))
    assert spill_files() - before == 0
    third.append(bytes(1 << 17))
    assert spill_files() - before == 1
    second.append(bytes(1 << 17))
    assert spill_files() - before == 2
    assert [len(value) for value in second] == [500, 1 << 17]
    for _ in range(2):
        first.close()
        second.close()
    assert spill_files() - before == 1
    assert logs.room_bytes == 1000
    del first, second, third
    assert spill_files() - before == 0
    assert logs.room_bytes == 1000


def test_a_closed_log_that_somebody_keeps_gives_memory_back_once() -> None:
    logs = ValueLogs(1000)
    log, other = logs.new(), logs.new()
    value = bytes(500)
    references = sys.getrefcount(value)
    log.append(value)
    other.append(bytes(10))
    assert sys.getrefcount(value) == references + 1
    for _ in range(2):
        log.close()
        assert sys.getrefcount(value) == references
    del log
    other.close()
    assert logs.room_bytes == 1000


def test_a_group_that_nobody_refers_to_any_more_gives_memory_and_disk_back() -> None:
    before = spill_files()
    logs = ValueLogs(0)
    group, _ = streamed([bytes(100_000)] * 3, logs)
    reader = iter(group)
    group.drain()
    del group
    assert spill_files() - before == 1
    assert next(reader) == "\0" * 100_000
    del reader
    assert spill_files() - before == 0
    assert logs.room_bytes == 0


@given(VALUES, st.lists(st.integers(0, 2), max_size=120), st.integers(1, 1000))
def test_any_interleaving(values: list[bytes], turns: list[int], limit_bytes: int) -> None:
    group = StreamedValues(ValueLogs(limit_bytes).new(), lambda value: value, values)
    seen: list[list[bytes]] = [[], [], []]
    readers = [iter(group) for _ in seen]
    for who in turns:
        seen[who].extend([value] if (value := next(readers[who], None)) is not None else [])
    group.drain()
    for some, reader in zip(seen, readers, strict=True):
        assert some + list(reader) == values


def test_an_error_of_the_disk_is_not_forgotten_though_user_code_catches_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a task would succeed whose user code has seen some values of a group only."""
    pwrite, errors = os.pwrite, [OSError(errno.ENOSPC, "No space left on device")]

    def write(file: int, data: memoryview, offset: int) -> int:
        if not errors:
            return pwrite(file, data, offset)
        if len(data) > 1_000:
            return pwrite(file, data[:1_000], offset)  # in part, before the disk is full
        raise errors.pop()

    logs = ValueLogs(0)
    source = [b"x" * 999] * 200
    values, _ = streamed(source, logs)
    logs.check()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write)
        with pytest.raises(OSError, match="No space left"):
            list(values)
    with pytest.raises(OSError, match="No space left"):
        logs.check()
