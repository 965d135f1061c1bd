"""Manifests: the small files whose appearance commits an epoch."""

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from typing_extensions import override

from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.core.version import VERSION
from beam_spark_runner.plan.compatibility import StoredStage
from beam_spark_runner.recovery.epoch_writes import EpochWrite
from beam_spark_runner.recovery.form import ManifestForm
from beam_spark_runner.recovery.formats import EPOCHS, Formats
from beam_spark_runner.recovery.heads import (
    Head,
    KeyedHeads,
    coded_heads,
    coded_keyed_heads,
    heads_of,
    keyed_heads_of,
)

_NAME = re.compile(r"(?P<lineage>[\w.-]+)-(?P<epoch>\d{12})\.manifest")
_FENCE = re.compile(r"(?P<fence>\d{12})\.fence")
_PIN = re.compile(r"(?P<epoch>\d{12})-[0-9a-f]+\.pin")


class CorruptManifestError(RunnerError):
    """A manifest is damaged."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name, self.why = name, why

    @override
    def __str__(self) -> str:
        return f"the checkpoint's file {self.name} is damaged: {self.why}"


class FencedError(RunnerError):
    """Another driver has taken the pipeline over, or its checkpoint was removed.

    Args:
        fence: The fence of this driver. 0: it has not claimed one.
        newer: The highest fence; less than ``fence`` if the files were removed.
    """

    def __init__(self, fence: int, newer: int) -> None:
        super().__init__(fence, newer)
        self.fence, self.newer = fence, newer

    @override
    def __str__(self) -> str:
        if self.newer < self.fence:
            return (
                "the files of this pipeline's checkpoint were removed while it ran; it has "
                "stopped, and can only be started from the beginning"
            )
        if not self.fence:
            return (
                "another program has taken over this pipeline's checkpoint (with start number "
                f"{self.newer}); this program does not start"
            )
        return (
            "another program has taken over this pipeline's checkpoint (with start number "
            f"{self.newer}, while this program has number {self.fence}); this program has stopped"
        )


_CHANGED = (
    "the pipeline has changed and cannot continue from its checkpoint. Undo the changes, set "
    "--transform_name_mapping for steps that were renamed or removed, or use another "
    "--checkpoint_dir"
)
_OTHER_FORMAT = (
    "this version of the package cannot read the checkpoint. Use the version that has written it: "
    "to continue, or to drain the pipeline and start it again with this version"
)


class IncompatibleCheckpointError(RunnerError):
    """The checkpoint belongs to another pipeline, or to an incompatible version of this one.

    Args:
        differences: The reasons, for people.
        advice: What has happened, and what to do.
    """

    def __init__(self, differences: tuple[str, ...], advice: str = _CHANGED) -> None:
        super().__init__(differences, advice)
        self.differences, self.advice = differences, advice

    @override
    def __str__(self) -> str:
        listed = "".join(f"\n  - {each}" for each in self.differences)
        return f"{self.advice}:{listed}"


class ViewId(NamedTuple):
    """The id of content of a side input, which is replaced by each pane.

    Attributes:
        dest: The destination of the side input.
        window: The window, encoded.
        part: The part of the window that one task gathers; empty: the whole window.
    """

    dest: int
    window: bytes
    part: bytes = b""


class View(NamedTuple):
    """The last pane of a side input in one window, or in a part of it.

    Attributes:
        file: The name of the file with its content.
        expires_us: The event time from which on it is not looked up any more.
    """

    file: str
    expires_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The state of a streaming pipeline after an epoch.

    Attributes:
        epoch: The number of the epoch, from 1. 0: nothing was committed yet.
        fence: The fence of the driver that has committed it.
        lineage: The lineage of the pipeline.
        parent: The previous epoch.
        clock_us: The processing time of the epoch.
        heads: The heads of shards that are not empty, by level and partition.
        watermarks_us: Input watermarks of stages, by destination.
        next_event_us: The event time at which the next timer of all shards is due.
        next_clock_us: The processing time at which the next timer is due, or stable input is to be
            processed.
        is_due: Whether another epoch is due at once: elements wait for side inputs that have
            changed, or for this commit.
        views: The content of each window of each side input, part by part.
        events: The number of events of a TestStream that have happened, its end included.
        metrics: Serialised MonitoringInfos of all epochs.
        plan: See ``plan.compatibility.stage_places``.
        steps: See ``plan.compatibility.step_names``.
        renamed: See ``migration.PipelineVersion``. These names have been applied.
        unfed: Destinations of impulses that are due in the next epoch, since they are new. Before
            the first epoch, all are due.
        partitions: The number of partitions of each level.
        key_groups: The number of key groups, of which each partition has a range.
        finished: By destination: the partitions in which the stage that reads it has finished, see
            ``scheduling.finish``. Nothing is stored for them.
        is_final: Whether the pipeline is done.
        drains: Whether the pipeline is being drained.
        namespace: The namespace of the checkpoint in the state store; empty: keys are in shards.
        left_namespaces: Earlier namespaces of the checkpoint in the state store, in which something
            may be left: a start removes it.
        stores: The store numbers of stages, by their names in ``plan``.
        next_store: The least store number that no stage has had.
        keyed: The heads of keys that are in the state store, by store number and partition.
        needs: The descriptions of the callbacks and variables with which stored records of
            declarative steps continue, by the names of stages in ``plan``.
        chain: The name of the chain of epochs, by which tables know which epochs they have. One
            that starts from a savepoint is another one, since its epochs have other rows. Empty:
            none has been chosen yet.
        unwritten: The rows for tables of this epoch, and those of earlier ones of which no manifest
            has noted that they were written.
    """

    epoch: int
    fence: int
    lineage: str
    parent: int | None
    clock_us: int = 0
    heads: Mapping[tuple[int, int], Head] = field(default_factory=dict)
    watermarks_us: Mapping[int, int] = field(default_factory=dict)
    next_event_us: int | None = None
    next_clock_us: int | None = None
    is_due: bool = False
    views: Mapping[ViewId, View] = field(default_factory=dict)
    events: int = 0
    metrics: tuple[bytes, ...] = ()
    plan: Mapping[str, StoredStage] = field(default_factory=dict)
    steps: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    unfed: tuple[int, ...] = ()
    partitions: int
    key_groups: int
    finished: Mapping[int, frozenset[int]] = field(default_factory=dict)
    is_final: bool = False
    drains: bool = False
    namespace: str = ""
    left_namespaces: tuple[str, ...] = ()
    stores: Mapping[str, int] = field(default_factory=dict)
    next_store: int = 0
    keyed: KeyedHeads = field(default_factory=dict)
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    chain: str = ""
    unwritten: tuple[EpochWrite, ...] = ()


def encode(manifest: Manifest) -> bytes:
    """Encode a manifest as a file of two lines: the digest of the second one, which is JSON."""
    fields: dict[str, Any] = {
        each.name: getattr(manifest, each.name) for each in dataclasses.fields(manifest)
    }
    fields["heads"] = coded_heads(manifest.heads)
    fields["keyed"] = coded_keyed_heads(manifest.keyed)
    fields["watermarks_us"] = sorted(map(list, manifest.watermarks_us.items()))
    fields["views"] = sorted(
        [id_.dest, id_.window.hex(), id_.part.hex(), *view] for id_, view in manifest.views.items()
    )
    fields["finished"] = sorted([dest, sorted(done)] for dest, done in manifest.finished.items())
    fields["metrics"] = [each.hex() for each in manifest.metrics]
    return with_digest(fields, EPOCHS)


def decode(data: bytes, name: str) -> Manifest:
    """Decode the file of a manifest.

    Args:
        data: The content of the file.
        name: The name of the file, for the error.

    Raises:
        CorruptManifestError: The file is damaged.
        IncompatibleCheckpointError: Another version of this package has written it in another
            format.
    """
    fields = checked_fields(data, name, EPOCHS)
    fields["heads"] = heads_of(fields["heads"])
    fields["keyed"] = keyed_heads_of(fields["keyed"])
    fields["watermarks_us"] = dict(fields["watermarks_us"])
    fields["views"] = {
        ViewId(dest, bytes.fromhex(window), bytes.fromhex(part)): View(*view)
        for dest, window, part, *view in fields["views"]
    }
    fields["finished"] = {dest: frozenset(done) for dest, done in fields["finished"]}
    fields["metrics"] = tuple(map(bytes.fromhex, fields["metrics"]))
    fields["plan"] = {name: StoredStage(*place) for name, place in fields["plan"].items()}
    fields["unfed"] = tuple(fields["unfed"])
    fields["left_namespaces"] = tuple(fields["left_namespaces"])
    fields["needs"] = {stage: tuple(each) for stage, each in fields["needs"].items()}
    fields["unwritten"] = tuple(
        EpochWrite(step, writer, epoch, tuple(files), *rest)
        for step, writer, epoch, files, *rest in fields["unwritten"]
    )
    return Manifest(**fields)


def with_digest(fields: Mapping[str, Any], formats: Formats) -> bytes:
    """Return a file of two lines: the digest of the second one, which is JSON.

    Args:
        fields: What is stored. The number of the format and the version of this package are added.
        formats: The formats of this kind of file.
    """
    added = {"format": formats.newest, "written_by": VERSION}
    text = json.dumps({**fields, **added}, sort_keys=True).encode()
    return _digest(text) + b"\n" + text + b"\n"


def checked_fields(data: bytes, name: str, formats: Formats) -> dict[str, Any]:
    """Return the fields of a file that ``with_digest`` has encoded, in the newest format.

    Args:
        data: The content of the file.
        name: The name of the file, for the errors.
        formats: The formats of this kind of file.

    Raises:
        CorruptManifestError: The digest is wrong.
        IncompatibleCheckpointError: This version does not read the format of the file.
    """
    digest, _, rest = data.partition(b"\n")
    text, _, nothing = rest.partition(b"\n")
    if _digest(text) != digest or nothing or not rest.endswith(b"\n"):
        raise CorruptManifestError(name, "its checksum is wrong")
    fields: dict[str, Any] = json.loads(text)
    written, version = fields.pop("format"), fields.pop("written_by", None)
    if written not in formats.read:
        writer = f"version {version}" if version else "another version"
        readable = " and ".join(map(str, formats.read))
        raise IncompatibleCheckpointError(
            (
                f"{writer} of this package has written {name}: its format is {written}, and this "
                f"version, {VERSION}, reads {readable} only",
            ),
            _OTHER_FORMAT,
        )
    formats.migrate(fields, written)
    return fields


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).hexdigest().encode()


def manifest_name(lineage: str, epoch: int) -> str:
    """Return the name of a manifest's file."""
    return f"{lineage}-{epoch:012d}.manifest"


def epoch_in(name: str, lineage: str) -> int | None:
    """Return the epoch of a manifest, by its file name; None: it is none of this lineage."""
    match = _NAME.fullmatch(name)
    return int(match["epoch"]) if match and match["lineage"] == lineage else None


def is_manifest(name: str) -> bool:
    """Whether a file is a manifest, by its name: of a streaming pipeline, or of a bounded one."""
    return _NAME.fullmatch(name) is not None


def epochs_of(lineage: str) -> ManifestForm[Manifest]:
    """Return the form of the manifests of a lineage."""
    return ManifestForm(
        name_of=functools.partial(manifest_name, lineage),
        number_in=functools.partial(epoch_in, lineage=lineage),
        number_of=lambda manifest: manifest.epoch,
        fence_of=lambda manifest: manifest.fence,
        encode=encode,
        decode=decode,
    )


def fence_name(fence: int) -> str:
    """Return the name of the file by which a driver claims a fence."""
    return f"{fence:012d}.fence"


def fence_in(name: str) -> int | None:
    """Return the fence that a file claims, by its name; None: it claims none."""
    match = _FENCE.fullmatch(name)
    return int(match["fence"]) if match else None


def pin_name(epoch: int, unique: str) -> str:
    """Return the name of the file that pins an epoch.

    Args:
        epoch: The number of the epoch.
        unique: Hexadecimal digits that no other pin has.
    """
    return f"{epoch:012d}-{unique}.pin"


def pinned_in(name: str) -> int | None:
    """Return the epoch that a file pins, by its name; None: it is no pin."""
    match = _PIN.fullmatch(name)
    return int(match["epoch"]) if match else None
