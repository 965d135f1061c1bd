"""``python -m beam_spark_runner.savepoint``: makes savepoints of streaming pipelines."""

import argparse
import sys
from collections.abc import Sequence

from beam_spark_runner.core.errors import OptionsError, RunnerError
from beam_spark_runner.job.shard_places import existing_storage, save, storage_at
from beam_spark_runner.options.values import checkpoint_folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a savepoint, and print which epoch it has; return the exit status.

    Args:
        arguments: the command line. None: that of this process.
    """
    given = _parser().parse_args(arguments)
    try:
        checkpoints, path = (
            _folder(option, getattr(given, option))
            for option in ("checkpoint_dir", "savepoint_path")
        )
        source = existing_storage(checkpoints, "checkpoint_dir")
        epoch = save(source, storage_at(path, "savepoint_path"))
    except RunnerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, OptionsError) else 1
    print(f"{path} has the state of the pipeline after epoch {epoch}")
    return 0


def _folder(option: str, given: str) -> str:
    folder = checkpoint_folder(option, given)
    if folder is None:
        raise OptionsError(option, "must be a folder")
    return folder


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="beam-spark-savepoint",
        description="Copies what a streaming pipeline has committed last, while it runs or later.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--checkpoint_dir",
        required=True,
        metavar="FOLDER",
        help="Where the pipeline commits its epochs: a folder, or one of an object store, whose "
        "endpoint and credentials are in the environment (AWS_ENDPOINT_URL and so on).",
    )
    parser.add_argument(
        "--savepoint_path",
        required=True,
        metavar="FOLDER",
        help="Where the copy goes; another pipeline that is given the same option begins there.",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
