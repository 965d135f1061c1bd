import dataclasses
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from beam_spark_runner.recovery.batch_manifest import (
    BatchManifest,
    GatheredSideInput,
    RunningSegment,
    StoredPart,
    commit_in,
    commits,
    decode,
    encode,
)
from beam_spark_runner.recovery.begun_writes import BegunWrite, TargetState
from beam_spark_runner.recovery.formats import Formats
from beam_spark_runner.recovery.manifest import (
    CorruptManifestError,
    IncompatibleCheckpointError,
    with_digest,
)

NUMBERS = st.integers(0, 1 << 62)
BYTES = st.tuples(st.binary(max_size=3))
PARTS = st.builds(
    StoredPart,
    run=NUMBERS,
    attempts=st.lists(NUMBERS, max_size=3).map(tuple),
    size_bytes=NUMBERS,
    residuals=st.dictionaries(NUMBERS, NUMBERS, max_size=2),
)
RUNNING = st.builds(
    RunningSegment,
    segment=NUMBERS,
    parts=st.lists(PARTS, max_size=2).map(tuple),
    metrics=BYTES,
)
SIDE_INPUTS = st.builds(
    GatheredSideInput,
    id=st.text(max_size=3),
    code=NUMBERS,
    inline=st.none() | st.binary(max_size=3),
    run=NUMBERS,
    files=st.lists(st.text(max_size=3), max_size=2).map(tuple),
)
BEGUN = st.builds(
    BegunWrite,
    fence=NUMBERS,
    mark=st.text(max_size=3),
    schema=st.text(max_size=3),
    rows=NUMBERS,
    session=st.text(max_size=3),
    before=st.builds(
        TargetState,
        exists=st.none() | st.booleans(),
        kind=st.text(max_size=3),
        files=NUMBERS,
        digest=st.text(max_size=3),
        version=st.text(max_size=3),
        folder=st.text(max_size=3),
    ),
)
MANIFESTS = st.builds(
    BatchManifest,
    commit=NUMBERS,
    fence=NUMBERS,
    plan=st.text(max_size=3),
    done=st.dictionaries(NUMBERS, BYTES, max_size=2),
    outputs=st.dictionaries(NUMBERS, st.tuples(PARTS), max_size=2),
    running=st.none() | RUNNING,
    side_inputs=st.dictionaries(NUMBERS, SIDE_INPUTS, max_size=2),
    begun=st.dictionaries(NUMBERS, BEGUN, max_size=2),
    written=st.dictionaries(NUMBERS, st.text(max_size=3).map(str.encode), max_size=2),
)
PART = StoredPart(run=3, attempts=(7, 8), size_bytes=9)


@given(MANIFESTS)
@example(
    BatchManifest(
        commit=1,
        fence=1,
        plan="",
        side_inputs={0: GatheredSideInput(id="", code=0, inline=b"")},
    )
)
def test_a_manifest_is_read_as_it_was_written(manifest: BatchManifest) -> None:
    assert decode(encode(manifest), "its name") == manifest


@given(st.data())
def test_a_damaged_manifest_is_noticed(data: st.DataObject) -> None:
    coded = bytearray(encode(BatchManifest(commit=1, fence=1, plan="p", outputs={2: (PART,)})))
    coded[data.draw(st.integers(0, len(coded) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptManifestError, match="its name"):
        decode(bytes(coded), "its name")


def test_another_format_is_refused() -> None:
    _, text, _ = encode(BatchManifest(commit=1, fence=1, plan="p")).split(b"\n")
    other = with_digest(json.loads(text), Formats(99, {}))
    with pytest.raises(IncompatibleCheckpointError, match="its format is 99"):
        decode(other, "its name")


def test_names_have_the_number() -> None:
    assert commit_in(commits().name_of(12)) == 12
    assert commit_in("main-000000000012.manifest") is None


def test_runs_are_those_whose_files_are_named() -> None:
    manifest = BatchManifest(
        commit=9,
        fence=1,
        plan="p",
        outputs={1: (PART, dataclasses.replace(PART, run=4))},
        running=RunningSegment(segment=2, parts=(dataclasses.replace(PART, run=5),)),
        side_inputs={
            1: GatheredSideInput(id="a", code=1, run=6, files=("f",)),
            2: GatheredSideInput(id="b", code=1, run=7, inline=b""),
        },
    )
    assert manifest.runs() == {3, 4, 5, 6}
