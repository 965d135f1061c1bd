"""``python -m beam_spark_runner.savepoint``: makes savepoints of streaming pipelines."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from beam_spark_runner.core.errors import OptionsError, RunnerError
from beam_spark_runner.job.shard_places import save
from beam_spark_runner.options.values import checkpoint_folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a savepoint, and print which epoch it has; return the exit status.

    Args:
        arguments: the command line. None: that of this process.
    """
    given = _parser().parse_args(arguments)
    try:
        for option, value in vars(given).items():
            checkpoint_folder(option, value)
        checkpoints, path = Path(given.checkpoint_dir), Path(given.savepoint_path)
        if not checkpoints.is_dir():
            raise OptionsError("checkpoint_dir", f"there is no folder {checkpoints}")
        epoch = save(checkpoints, path)
    except RunnerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, OptionsError) else 1
    print(f"{path} has the state of the pipeline after epoch {epoch}")
    return 0


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
        help="Where the pipeline commits its epochs.",
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
