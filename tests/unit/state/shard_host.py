"""A host whose tasks open a shard."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.delta import delta_name
from beam_spark_runner.state.shards import Shard, open_shard
from beam_spark_runner.storage.mounted_folder import MountedFolder


@dataclass(frozen=True)
class Deltas(MountedFolder):
    """Notes what is read, and fails as it is told."""

    opened: list[str] = field(default_factory=list)
    errors: list[OSError] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return Path(self.path)

    def open(self, name: str) -> BinaryIO:
        self.opened.append(name)
        return super().open(name)

    def put(self, name: str, local: Path) -> None:
        if self.errors:
            raise self.errors.pop()
        super().put(name, local)


@dataclass
class Host:
    local: Path
    deltas: Deltas

    def open(self, head: ShardVersion | None) -> Shard:
        return open_shard(
            self.local,
            self.deltas,
            lineage="job",
            level=1,
            partition=2,
            head=head,
        )

    def records(self, head: ShardVersion | None) -> dict[bytes, bytes]:
        with self.open(head) as shard:
            return dict(shard.scan(b""))

    def sealed(
        self, head: ShardVersion | None, version: ShardVersion, **records: bytes
    ) -> ShardVersion:
        with self.open(head) as shard:
            for key, value in records.items():
                shard.put(key.encode(), value)
            assert shard.seal(version) == version
        return version

    def name(self, version: ShardVersion) -> str:
        return delta_name("job", 1, 2, version)

    def copies(self) -> list[str]:
        return sorted(each.name for each in self.local.iterdir() if each.is_dir())


ONE, TWO, THREE = ShardVersion(1, 11), ShardVersion(2, 22), ShardVersion(3, 33)
