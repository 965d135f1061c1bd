"""``python -m beam_spark_runner.savepoint``: makes savepoints of streaming pipelines."""

import argparse
import sys
import time
from collections.abc import Sequence

from beam_spark_runner.core.errors import OptionsError, RunnerError
from beam_spark_runner.job.files.savepoint_folder import CompleteSavepoint, SavepointFolder
from beam_spark_runner.job.files.shard_places import existing_storage, save, storage_at, verify
from beam_spark_runner.options.declared import DECLARED
from beam_spark_runner.options.savepoint_schedule import MAX_KEPT
from beam_spark_runner.options.store_settings import hdfs_settings
from beam_spark_runner.options.values import positive, required_folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a savepoint, and print the number of its epoch; return the exit status.

    With ``verify`` as the first argument, verify a folder instead.

    Args:
        arguments: The command line without the program's name. None: ``sys.argv``.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["verify"]:
        return _verify(_verify_parser().parse_args(arguments[1:]))
    given = _parser().parse_args(arguments)
    try:
        made, removed = _make(given)
    except RunnerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, OptionsError) else 1
    print(f"{made.path} has the state of the pipeline after epoch {made.epoch}")
    for each in removed:
        print(f"{each} is removed")
    return 0


def _make(given: argparse.Namespace) -> tuple[CompleteSavepoint, Sequence[str]]:
    """Make a savepoint; return it, and the paths of those that were removed instead."""
    settings = hdfs_settings(given)
    checkpoints = required_folder("checkpoint_dir", given.checkpoint_dir)
    source = existing_storage(checkpoints, "checkpoint_dir", settings)
    if given.savepoint_dir is None:
        if given.savepoint_keep is not None:
            raise OptionsError("savepoint_keep", "has no effect without --savepoint_dir")
        path = required_folder("savepoint_path", given.savepoint_path)
        return CompleteSavepoint(
            path, save(source, storage_at(path, "savepoint_path", settings))
        ), ()
    keep = positive("savepoint_keep", given.savepoint_keep, MAX_KEPT)
    folder = SavepointFolder(required_folder("savepoint_dir", given.savepoint_dir), settings)
    made = folder.make(source, time.time())
    return made, () if keep is None else folder.retain(keep, (), time.time())


def _verify(given: argparse.Namespace) -> int:
    """Verify each epoch in a folder; return the exit status: 1 if anything is damaged."""
    status, are_any = 0, False
    try:
        path = required_folder("FOLDER", given.folder)
        for epoch in verify(existing_storage(path, "FOLDER", hdfs_settings(given))):
            are_any = True
            if not epoch.problems:
                print(f"epoch {epoch.epoch} is whole ({epoch.files} files)")
                continue
            status = 1
            print(f"epoch {epoch.epoch} is damaged:")
            for problem in epoch.problems:
                print(f"  - {problem}")
    except RunnerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, OptionsError) else 1
    if not are_any:
        print(f"error: no epoch is committed in {path}", file=sys.stderr)
        return 1
    return status


def _verify_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="beam-spark-savepoint verify",
        description="Reads all files of a checkpoint or savepoint, and compares them with their "
        "digests. Prints which of the committed epochs that are kept are whole. Exit status 1: "
        "some are not.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help="A --checkpoint_dir, whose pipeline may be running, or a --savepoint_path.",
    )
    _add_options_of_hdfs(parser)
    return parser


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="beam-spark-savepoint",
        description="Makes a savepoint: a copy of the last committed epoch of a streaming "
        "pipeline, which may be running or have ended. `beam-spark-savepoint verify FOLDER` "
        "verifies one, or a checkpoint.",
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
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--savepoint_path",
        metavar="FOLDER",
        help="The folder for the copy. A pipeline that is started with the same option begins from "
        "it.",
    )
    target.add_argument(
        "--savepoint_dir",
        metavar="FOLDER",
        help="A folder of savepoints of this pipeline, in which the copy has its own folder, named "
        "by its time.",
    )
    parser.add_argument(
        "--savepoint_keep",
        type=int,
        metavar="NUMBER",
        help="With --savepoint_dir: how many savepoints stay there. Older ones are removed, but "
        "none from which a pipeline begins just now. Default: all.",
    )
    _add_options_of_hdfs(parser)
    return parser


def _add_options_of_hdfs(parser: argparse.ArgumentParser) -> None:
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
        help="The port of its web address, for WebHDFS. Default: 9870, with --hdfs_https 9871.",
    )
    of_hdfs.add_argument(
        "--hdfs_user",
        metavar="NAME",
        help="The user in whose name files are read and written. Default: $HADOOP_USER_NAME, or "
        "the user who runs the command.",
    )
    for name in ("hdfs_https", "hdfs_kerberos"):
        of_hdfs.add_argument(f"--{name}", **DECLARED[name])


if __name__ == "__main__":
    sys.exit(main())
