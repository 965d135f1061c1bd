"""Manifests of bounded pipelines: the small files whose appearance commits what has run so far.

Each is complete: a start reads the newest one only. The output of a segment is named as long as a
segment that has not run reads it.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from beam_spark_runner.recovery.begun_writes import BegunWrite, TargetState
from beam_spark_runner.recovery.form import ManifestForm
from beam_spark_runner.recovery.formats import COMMITS
from beam_spark_runner.recovery.manifest import checked_fields, with_digest

_NAME = re.compile(r"batch-(?P<commit>\d{12})\.manifest")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPart:
    """The output that the tasks of one Spark job have stored.

    Attributes:
        run: The number of the commit that has accepted it, which names the folder of its files.
        attempts: The accepted attempts, by partition.
        size_bytes: The size of the rows in Arrow's format.
        residuals: The destinations whose residuals are among the rows, with the number of them.
    """

    run: int
    attempts: tuple[int, ...]
    size_bytes: int
    residuals: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSegment:
    """A segment of which some Spark jobs were accepted: splittable DoFns have left residuals.

    Attributes:
        segment: The number of the segment.
        parts: What its Spark jobs have stored, in order.
        metrics: Serialised MonitoringInfos of these Spark jobs.
    """

    segment: int
    parts: tuple[StoredPart, ...]
    metrics: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredSideInput:
    """A side input that was gathered; see ``SideInputRows``.

    Attributes:
        id: Its id.
        code: Its code.
        inline: Its content, if there is little.
        run: The number of the commit, which names the folder of its files.
        files: The names of its files.
    """

    id: str
    code: int
    inline: bytes | None = None
    run: int = 0
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchManifest:
    """The state of a bounded pipeline after a commit.

    Attributes:
        commit: The number of the commit, from 1. 0: nothing was committed yet.
        fence: The fence of the driver that has committed it.
        plan: The fingerprint of the plan, see ``plan.fingerprint``.
        done: The metrics of each segment that has run: serialised MonitoringInfos.
        outputs: What each segment has stored, if a segment that has not run reads it.
        running: The segment that runs. None: no Spark job of the next one was accepted yet.
        side_inputs: The side inputs that were gathered, by destination.
        begun: The writes of tables that were begun and have not ended, by segment.
        written: The results of those that have ended or were skipped: JSON.
    """

    commit: int
    fence: int
    plan: str
    done: Mapping[int, tuple[bytes, ...]] = field(default_factory=dict)
    outputs: Mapping[int, tuple[StoredPart, ...]] = field(default_factory=dict)
    running: RunningSegment | None = None
    side_inputs: Mapping[int, GatheredSideInput] = field(default_factory=dict)
    begun: Mapping[int, BegunWrite] = field(default_factory=dict)
    written: Mapping[int, bytes] = field(default_factory=dict)

    def runs(self) -> frozenset[int]:
        """Return the numbers of the commits whose folders have files that it names."""
        parts = [part for parts in self.outputs.values() for part in parts]
        if self.running is not None:
            parts += self.running.parts
        gathered = {each.run for each in self.side_inputs.values() if each.files}
        return frozenset(part.run for part in parts) | gathered


def commits() -> ManifestForm[BatchManifest]:
    """Return the form of the manifests of bounded pipelines."""
    return ManifestForm(
        name_of=_name_of,
        number_in=commit_in,
        number_of=lambda manifest: manifest.commit,
        fence_of=lambda manifest: manifest.fence,
        encode=encode,
        decode=decode,
    )


def _name_of(commit: int) -> str:
    return f"batch-{commit:012d}.manifest"


def commit_in(name: str) -> int | None:
    """Return the number of a commit, by the name of its manifest; None: it is no such file."""
    match = _NAME.fullmatch(name)
    return int(match["commit"]) if match else None


def work_folder(run: int) -> str:
    """Return the name of the folder with the files of the Spark job before a commit.

    Args:
        run: The number of the commit.
    """
    return f"work-{run:012d}"


def encode(manifest: BatchManifest) -> bytes:
    """Encode a manifest as a file of two lines: the digest of the second one, which is JSON."""
    running = manifest.running
    fields: dict[str, Any] = {
        "commit": manifest.commit,
        "fence": manifest.fence,
        "plan": manifest.plan,
        "done": [[segment, _hex(infos)] for segment, infos in sorted(manifest.done.items())],
        "outputs": [
            [segment, list(map(_coded_part, parts))]
            for segment, parts in sorted(manifest.outputs.items())
        ],
        "running": running
        and [
            running.segment,
            list(map(_coded_part, running.parts)),
            _hex(running.metrics),
        ],
        "side_inputs": [
            [dest, each.id, each.code, _hex_or_none(each.inline), each.run, each.files]
            for dest, each in sorted(manifest.side_inputs.items())
        ],
        "begun": [[segment, asdict(write)] for segment, write in sorted(manifest.begun.items())],
        "written": [[segment, each.decode()] for segment, each in sorted(manifest.written.items())],
    }
    return with_digest(fields, COMMITS)


def decode(data: bytes, name: str) -> BatchManifest:
    """Decode the file of a manifest.

    Args:
        data: The content of the file.
        name: The name of the file, for the error.

    Raises:
        CorruptManifestError: The file is damaged.
        IncompatibleCheckpointError: Another version of this package has written it in another
            format.
    """
    fields = checked_fields(data, name, COMMITS)
    running = fields["running"]
    fields["running"] = running and RunningSegment(
        segment=running[0],
        parts=tuple(map(_part, running[1])),
        metrics=_bytes(running[2]),
    )
    fields["done"] = {segment: _bytes(infos) for segment, infos in fields["done"]}
    fields["outputs"] = {segment: tuple(map(_part, parts)) for segment, parts in fields["outputs"]}
    fields["side_inputs"] = {
        dest: GatheredSideInput(
            id=id_,
            code=code,
            inline=None if inline is None else bytes.fromhex(inline),
            run=run,
            files=tuple(files),
        )
        for dest, id_, code, inline, run, files in fields["side_inputs"]
    }
    fields["begun"] = {
        segment: BegunWrite(**{**write, "before": TargetState(**write["before"])})
        for segment, write in fields["begun"]
    }
    fields["written"] = {segment: result.encode() for segment, result in fields["written"]}
    return BatchManifest(**fields)


def _coded_part(part: StoredPart) -> list[Any]:
    return [part.run, part.attempts, part.size_bytes, sorted(part.residuals.items())]


def _part(coded: list[Any]) -> StoredPart:
    run, attempts, size_bytes, residuals = coded
    return StoredPart(
        run=run, attempts=tuple(attempts), size_bytes=size_bytes, residuals=dict(residuals)
    )


def _hex(infos: tuple[bytes, ...]) -> list[str]:
    return [info.hex() for info in infos]


def _hex_or_none(content: bytes | None) -> str | None:
    return None if content is None else content.hex()


def _bytes(coded: list[str]) -> tuple[bytes, ...]:
    return tuple(map(bytes.fromhex, coded))
