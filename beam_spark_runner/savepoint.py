"""``python -m beam_spark_runner.savepoint``: makes savepoints of streaming pipelines."""

import argparse
import sys
from collections.abc import Sequence

from beam_spark_runner.core.errors import OptionsError, RunnerError
from beam_spark_runner.job.shard_places import existing_storage, save, storage_at
from beam_spark_runner.options.storage import HDFS_NAMES
from beam_spark_runner.options.values import required_folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a savepoint, and print the number of its epoch; return the exit status.

    Args:
        arguments: The command line without the program's name. None: ``sys.argv``.
    """
    given = _parser().parse_args(arguments)
    try:
        checkpoints, path = (
            required_folder(option, getattr(given, option))
            for option in ("checkpoint_dir", "savepoint_path")
        )
        hdfs = {name: getattr(given, name) for name in HDFS_NAMES}
        settings = tuple((name, value) for name, value in hdfs.items() if value)
        source = existing_storage(checkpoints, "checkpoint_dir", settings)
        epoch = save(source, storage_at(path, "savepoint_path", settings))
    except RunnerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, OptionsError) else 1
    print(f"{path} has the state of the pipeline after epoch {epoch}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="beam-spark-savepoint",
        description="Makes a savepoint: a copy of the last committed epoch of a streaming "
        "pipeline, which may be running or have ended.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--checkpoint_dir",
        required=True,
        metavar="FOLDER",
        help="Where the pipeline commits its epochs: a folder, or the URL of one in HDFS or an "
        "object store. Endpoint and credentials of an object store come from the environment "
        "(AWS_ENDPOINT_URL and so on).",
    )
    parser.add_argument(
        "--savepoint_path",
        required=True,
        metavar="FOLDER",
        help="The folder for the copy. A pipeline that is started with the same option begins from "
        "it.",
    )
    of_hdfs = parser.add_argument_group("folders of HDFS (hdfs://)")
    of_hdfs.add_argument(
        "--hdfs_host",
        metavar="HOST",
        help="The namenode, several namenodes separated by commas, or an HttpFS server. Default: "
        "the host of the URL.",
    )
    of_hdfs.add_argument(
        "--hdfs_port",
        metavar="PORT",
        help="The port of its web address, for WebHDFS. Default: 9870.",
    )
    of_hdfs.add_argument(
        "--hdfs_user",
        metavar="NAME",
        help="The user in whose name files are read and written. Default: $HADOOP_USER_NAME, or "
        "the user who runs the command.",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
