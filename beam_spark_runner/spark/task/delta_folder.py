"""Where tasks store what the manifest of their epoch will name."""

from pathlib import Path

from beam_spark_runner.spark.program import ShardPlaces
from beam_spark_runner.state.shards import FolderOfDeltas


def folder_of_deltas(places: ShardPlaces) -> FolderOfDeltas:
    """Return the folder in which the tasks of a job store what manifests name."""
    return FolderOfDeltas(Path(places.deltas), syncs=places.tasks_sync)
