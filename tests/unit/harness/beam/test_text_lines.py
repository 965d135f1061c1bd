"""Lines that are read in groups are those of Beam's text source, for any file and range."""

from pathlib import Path
from typing import Any

import pytest
from apache_beam.coders import BytesCoder, Coder, StrUtf8Coder, VarIntCoder
from apache_beam.io import iobase, textio
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.range_trackers import OffsetRangeTracker
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_spark_runner.harness.beam import text_lines
from beam_spark_runner.harness.beam.text_lines import groups_of_lines

PIECES = st.sampled_from([b"\n", b"\r\n", b"\r", b"", b"a", b"word", b"||", b"|", "ü".encode()])
FILES = st.lists(PIECES, max_size=60).map(b"".join)


def source_of(path: Path, **options: Any) -> iobase.BoundedSource:
    options = {"coder": StrUtf8Coder(), "delimiter": None, "buffer_size": 8, **options}
    keeps = options.pop("keeps", False)
    return textio._TextSource(str(path), 0, CompressionTypes.AUTO, not keeps, **options)


def part_of(source: iobase.BoundedSource) -> iobase.BoundedSource:
    (bundle,) = source.split(1 << 40)
    return bundle.source


@pytest.fixture(params=[1, 3, 64])
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_lines, "_BLOCK_BYTES", request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("texts")


@pytest.mark.usefixtures("block_bytes")
@settings(max_examples=150, deadline=None)
@given(
    data=FILES,
    delimiter=st.sampled_from([None, b"|", b"a|", b"\r\n"]),
    keeps=st.booleans(),
    skip_header_lines=st.integers(0, 2),
    coder=st.sampled_from([StrUtf8Coder(), BytesCoder()]),
    bounds=st.tuples(st.integers(0, 100), st.integers(0, 100)),
)
def test_lines_of_a_range_are_those_of_beam(
    folder: Path,
    data: bytes,
    delimiter: bytes | None,
    keeps: bool,
    skip_header_lines: int,
    coder: Coder,
    bounds: tuple[int, int],
) -> None:
    if not data:
        return
    path = folder / "text"
    path.write_bytes(data)
    source = part_of(
        source_of(
            path,
            delimiter=delimiter,
            keeps=keeps,
            skip_header_lines=skip_header_lines,
            coder=coder,
        )
    )
    start, stop = (min(bound, len(data)) for bound in sorted(bounds))
    expected = [*source.read(OffsetRangeTracker(start, stop))]

    tracker = OffsetRangeTracker(start, stop)
    groups = groups_of_lines(source, tracker)

    assert groups is not None
    assert [line for group in groups for line in group] == expected


@settings(max_examples=150, deadline=None)
@given(data=FILES, after=st.integers(0, 10), fraction=st.floats(0, 1), between=st.booleans())
def test_a_split_loses_no_line_and_repeats_none(
    folder: Path, data: bytes, after: int, fraction: float, between: bool
) -> None:
    if not data:
        return
    path = folder / "split"
    path.write_bytes(data)
    source = part_of(source_of(path))
    expected = [*source.read(source.get_range_tracker(None, None))]
    tracker = source.get_range_tracker(None, None)
    residual: list[int] = []

    def split() -> None:
        if not residual and tracker.try_split(tracker.position_at_fraction(fraction)):
            residual.append(tracker.stop_position())

    if between:  # after the tracker has been asked for its end, and before a claim
        claim = tracker.try_claim

        def split_and_claim(offset: int) -> bool:
            split()
            return bool(claim(offset))

        tracker.try_claim = split_and_claim
    lines: list[Any] = []
    for number, group in enumerate(groups_of_lines(source, tracker) or ()):
        lines += group
        if number >= after:
            split()
    for start in residual:
        rest = groups_of_lines(source, OffsetRangeTracker(start, len(data)))
        lines += [line for group in rest or () for line in group]

    assert lines == expected


def test_a_file_that_cannot_be_split_is_read_as_a_whole(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\r\n\nthree"))
    source = part_of(source_of(path))

    groups = groups_of_lines(source, source.get_range_tracker(None, None))

    assert [line for group in groups or () for line in group] == ["one", "two", "", "three"]


def test_a_line_that_is_not_utf_8_raises_the_error_of_its_own_decoding(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"one\ntwo\nthr\xff\n")
    source = part_of(source_of(path))

    with pytest.raises(UnicodeDecodeError) as raised:
        list(groups_of_lines(source, source.get_range_tracker(None, None)) or ())

    assert raised.value.object == b"thr\xff"


def test_groups_grow(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"line\n" * 1_000)
    source = part_of(source_of(path))

    groups = groups_of_lines(source, source.get_range_tracker(None, None))

    assert [len(group) for group in groups or ()][:9] == [1, 2, 4, 8, 16, 32, 64, 128, 128]


@pytest.mark.parametrize(
    "options", [{"coder": VarIntCoder()}, {"escapechar": b"\\"}, {"with_name": True}]
)
def test_other_sources_are_left_to_beam(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"line\n")
    source: iobase.BoundedSource
    if options.pop("with_name", False):
        source = textio._TextSourceWithFilename(
            str(path), 0, CompressionTypes.AUTO, True, StrUtf8Coder()
        )
    else:
        source = source_of(path, **options)

    assert groups_of_lines(source, source.get_range_tracker(None, None)) is None
    part = part_of(source)
    assert groups_of_lines(part, part.get_range_tracker(None, None)) is None
