import dataclasses
import hashlib
import json

import pytest

from beam_spark_runner.core.version import VERSION
from beam_spark_runner.plan.compatibility import StoredStage
from beam_spark_runner.recovery.epoch_writes import EpochWrite
from beam_spark_runner.recovery.heads import DeltaId, EarlierHead, Head, KeyedHead, Part
from beam_spark_runner.recovery.manifest import (
    CorruptManifestError,
    IncompatibleCheckpointError,
    Manifest,
    View,
    ViewId,
    decode,
    encode,
    epoch_in,
    fence_in,
    fence_name,
    manifest_name,
)

MANIFEST = Manifest(
    epoch=7,
    fence=2,
    lineage="main",
    parent=6,
    clock_us=5,
    heads={
        (1, 0): Head(DeltaId(7, 1 << 62), (DeltaId(5, 1), DeltaId(6, 2))),
        (2, 1): Head(DeltaId(3, 9)),
    },
    watermarks_us={4: -(1 << 62), 5: 1 << 62},
    next_event_us=12,
    is_due=True,
    views={
        ViewId(6, b"\x00w"): View("main-7.view", 9),
        ViewId(6, b"\x00w", b"\x01"): View("main-6.view", 9),
    },
    events=3,
    metrics=(b"\x00\xff", b"m"),
    plan={"step Count": StoredStage(1, 2, True, 3, False, "ref_1", "state n")},
    steps={"ref_1": "Count"},
    renamed={"Tally": "Count"},
    unfed=(4, 5),
    partitions=2,
    key_groups=128,
    namespace="5d41402a",
    left_namespaces=("4b2a76b9",),
    stores={"step Count": 1},
    next_store=3,
    keyed={
        (1, 0): KeyedHead(Head(DeltaId(7, 5), (DeltaId(6, 4),))),
        (1, 1): KeyedHead(
            Head(DeltaId(7, 6)), (Part(2, 4, (EarlierHead(0, Head(DeltaId(3, 6))),)),)
        ),
        (1, 2): KeyedHead(None, (Part(4, 6, (EarlierHead(1, Head(DeltaId(3, 7))),)),)),
    },
    needs={"step Count": ("the callback 'emit'", "the variable 'number' with the coder X")},
    chain="0cc175b9",
    unwritten=(
        EpochWrite("Write", "beam-spark-0cc175b9-1f", 6, ("main-6.table",), 3, "iceberg", "92"),
        EpochWrite("Write", "beam-spark-0cc175b9-1f", 7, ("a.table", "b.table"), 4, "delta"),
    ),
)


def test_what_is_written_is_read() -> None:
    assert decode(encode(MANIFEST), "m") == MANIFEST
    assert encode(MANIFEST) == encode(dataclasses.replace(MANIFEST))


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    data = encode(MANIFEST)
    damaged = [data[:position] for position in range(len(data))]
    damaged += [
        data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :]
        for position in range(len(data))
    ]
    for each in [*damaged, data + b"x"]:
        with pytest.raises(CorruptManifestError, match=r"the-name is damaged"):
            decode(each, "the-name")


def written_by_another_version(**fields: object) -> bytes:
    other = json.dumps(fields).encode()
    digest = hashlib.blake2b(other, digest_size=16).hexdigest().encode()
    return digest + b"\n" + other + b"\n"


def test_a_manifest_of_another_version_is_not_read() -> None:
    _, text, _ = encode(MANIFEST).split(b"\n")
    other = written_by_another_version(**{**json.loads(text), "format": 4})
    with pytest.raises(IncompatibleCheckpointError, match=r"its format is 4") as caught:
        decode(other, "the-name")
    assert f"version {VERSION} of this package has written the-name" in str(caught.value)
    assert "Use the version that has written it" in str(caught.value)


def test_a_manifest_without_a_version_is_of_another_one() -> None:
    with pytest.raises(IncompatibleCheckpointError, match="another version of this package has"):
        decode(written_by_another_version(format=4), "the-name")


def test_names() -> None:
    assert epoch_in(manifest_name("main", 12), "main") == 12
    assert epoch_in(manifest_name("main", 12), "other") is None
    assert epoch_in(fence_name(12), "main") is None
    assert fence_in(fence_name(12)) == 12
    assert fence_in("." + fence_name(12) + ".abc") is None
    assert sorted([manifest_name("main", 9), manifest_name("main", 10)])[0].endswith("09.manifest")
