import pickle
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.harness import spill
from beam_spark_runner.harness.spill import StreamedValues, ValueLog

VALUES = st.lists(st.binary(max_size=30), max_size=30)


class Source:
    """Counts what was taken of it."""

    def __init__(self, values: list[bytes]) -> None:
        self.values, self.taken = values, 0

    def __iter__(self) -> Iterator[bytes]:
        for value in self.values:
            self.taken += 1
            yield value


@pytest.fixture(params=[1, 500, 1 << 20], ids=["all on disk", "some on disk", "none on disk"])
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    for kept in (ValueLog, StreamedValues):
        monkeypatch.setattr(kept.__init__, "__defaults__", (request.param,))
    return int(request.param)


def streamed(values: list[bytes]) -> tuple[StreamedValues, Source]:
    source = Source(values)
    return StreamedValues(iter(source), bytes.decode), source


TEXTS = [str(n) * (n % 50) for n in range(200)]
CODED = [text.encode() for text in TEXTS]


@given(VALUES, st.integers(1, 2000))
def test_a_log_gives_back_what_it_got(values: list[bytes], limit_bytes: int) -> None:
    log = ValueLog(limit_bytes)
    for value in values:
        log.append(value)
    assert list(log) == values == list(log)
    log.close()


def test_a_log_is_read_while_it_grows() -> None:
    log, reader = ValueLog(150), None
    for value in CODED:
        log.append(value)
        reader = reader or iter(log)
        assert next(reader) == value
    assert next(reader, None) is None  # type: ignore[arg-type]


def test_values_larger_than_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "_READ_BYTES", 64)
    values = [bytes([n % 256]) * (n * 7 % 300) for n in range(100)]
    log = ValueLog(1)
    for value in values:
        log.append(value)
    assert list(log) == values


@pytest.mark.usefixtures("limit")
class TestStreamedValues:
    def test_again_and_again(self) -> None:
        group, source = streamed(CODED)
        assert [list(group) for _ in range(3)] == [TEXTS] * 3
        assert source.taken == len(TEXTS)

    def test_only_what_is_asked_for_is_taken(self) -> None:
        group, source = streamed(CODED)
        assert next(iter(group)) == TEXTS[0]
        assert source.taken == 1
        assert list(group) == TEXTS

    def test_two_at_once(self) -> None:
        group, source = streamed(CODED)
        assert list(zip(group, group, strict=True)) == [(text, text) for text in TEXTS]
        assert source.taken == len(TEXTS)

    def test_in_turns(self) -> None:
        group, _ = streamed(CODED)
        seen: tuple[list[str], ...] = ([], [], [])
        readers = [iter(group) for _ in seen]
        for turn in range(3 * len(TEXTS)):
            # Each is ahead for a while, so that it reads the source, and behind for a while.
            who = (turn // 7 + turn // 40) % 3
            seen[who].extend([text] if (text := next(readers[who], None)) is not None else [])
        for texts, reader in zip(seen, readers, strict=True):
            texts.extend(reader)
            assert texts == TEXTS

    def test_kept_for_later(self) -> None:
        group, source = streamed(CODED)
        reader = iter(group)
        first = [next(reader) for _ in range(3)]
        group.drain(keep=True)
        assert source.taken == len(TEXTS)
        assert first + list(reader) == TEXTS == list(group)

    def test_never_iterated(self) -> None:
        group, source = streamed(CODED)
        group.drain(keep=False)
        assert source.taken == len(TEXTS)  # other keys of the route came to light
        group.close()
        assert list(group) == []

    def test_it_pickles_as_a_list(self) -> None:
        group, _ = streamed(CODED)
        next(iter(group))
        assert pickle.loads(pickle.dumps(group)) == TEXTS


@given(VALUES, st.lists(st.integers(0, 2), max_size=120), st.integers(1, 1000))
def test_any_interleaving(values: list[bytes], turns: list[int], limit_bytes: int) -> None:
    group = StreamedValues(iter(values), lambda value: value)
    group._log = ValueLog(limit_bytes)
    seen: list[list[bytes]] = [[], [], []]
    readers = [iter(group) for _ in seen]
    for who in turns:
        seen[who].extend([value] if (value := next(readers[who], None)) is not None else [])
    group.drain(keep=True)
    for some, reader in zip(seen, readers, strict=True):
        assert some + list(reader) == values
