"""What the manifests of the simulated pipeline name, read on a host that takes no part."""

from collections.abc import Sequence
from pathlib import Path

from beam_spark_runner.core.routing import KEY_GROUPS
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.engine.task import keyed_shards
from beam_spark_runner.recovery.heads import Head
from beam_spark_runner.recovery.manifest import Manifest
from beam_spark_runner.recovery.sweep import delta_name, named_by
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.shards import Shard, open_shard
from beam_spark_runner.state.store import StoredState
from tests.unit.simulation.elements import SOURCE
from tests.unit.simulation.hosts import LINEAGE, places
from tests.unit.simulation.sources import Slice
from tests.unit.simulation.stages import stored_slices
from tests.unit.simulation.storage import Deltas, Files
from tests.unit.state.sorted_records import count_values


class Committed:
    """Reads it.

    Args:
        folder: for local copies.
        files: all that is stored.
        deltas: the same, as tasks see it.
    """

    def __init__(self, folder: Path, files: Files, deltas: Deltas) -> None:
        self._folder, self._files, self._deltas = folder, files, deltas

    def slices(self, manifest: Manifest) -> list[list[Slice]]:
        """Return what is stored of sources, partition by partition."""
        return [self._slices(manifest, partition) for partition in range(manifest.partitions)]

    def _slices(self, manifest: Manifest, partition: int) -> list[Slice]:
        head = manifest.heads.get((0, partition))
        if head is None:
            return []
        with self._opened(0, partition, head) as shard:
            return stored_slices(StoredState(shard, SOURCE, count_values))

    def check_empty(self, manifest: Manifest) -> None:
        """Nothing is left, neither in shards nor in a state store."""
        assert set(manifest.watermarks_us.values()) == {MAX_US}
        for (level, partition), head in manifest.heads.items():
            with self._opened(level, partition, head) as shard:
                assert not list(shard.scan(b"")), "something is left in a shard"
        for (number, partition), keyed in manifest.keyed.items():
            deltas = keyed_shards.keyed_deltas(places(has_store=True), number, partition, keyed)
            left = {
                (group, change.structure, change.name): change.value
                for group, change in deltas.content(range(KEY_GROUPS))
            }
            assert not any(value is not None for value in left.values()), "a key is left"

    def needed(self, manifests: Sequence[Manifest]) -> set[str]:
        """Return the names of the deltas that manifests need."""
        needed: set[str] = set()
        for manifest in manifests:
            for (level, partition), head in manifest.heads.items():
                needed |= self._files.chains[delta_name(LINEAGE, level, partition, *head.delta)]
            needed |= {name for name in named_by(manifest) if name.endswith((".keyed", ".table"))}
        return needed

    def _opened(self, level: int, partition: int, head: Head) -> Shard:
        return open_shard(
            self._folder,
            self._deltas,
            lineage=LINEAGE,
            level=level,
            partition=partition,
            head=ShardVersion(*head.delta),
        )
