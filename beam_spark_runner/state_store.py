"""``python -m beam_spark_runner.state_store``: what streaming pipelines have in a state store."""

import argparse
import sys
from collections.abc import Sequence

from beam_spark_runner.core.errors import OptionsError, RunnerError
from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.options.declared import DECLARED
from beam_spark_runner.options.state_store_options import state_store


def main(arguments: Sequence[str] | None = None) -> int:
    """List what is in a state store, or drop some of it; return the exit status.

    Args:
        arguments: The command line without the program's name. None: ``sys.argv``.
    """
    given = _parser().parse_args(arguments)
    try:
        address = state_store(given.state_store, given.state_store_password_file)
        if address is None:
            raise OptionsError("state_store", "is empty")
        return _list(address) if given.command == "list" else _drop(address, given.namespace)
    except RunnerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, OptionsError) else 1


def _list(address: StateStoreAddress) -> int:
    from beam_spark_runner.state.remote.redis_namespaces import owners  # an optional library

    for each in owners(address):
        job = f", job {each.job}" if each.job else ""
        print(f"{each.namespace}  {each.folder} after epoch {each.epoch}{job}")
    return 0


def _drop(address: StateStoreAddress, namespace: str) -> int:
    from beam_spark_runner.state.remote.redis_namespaces import drop_namespace, owners

    if namespace not in {each.namespace for each in owners(address)}:
        print(f"error: there is no namespace {namespace} in {address.url}", file=sys.stderr)
        return 1
    print(f"dropped {drop_namespace(address, namespace)} groups of keys")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="beam-spark-state-store",
        description="Shows which streaming pipelines have keys in a state store, and drops those "
        "of a pipeline that will not be continued.",
        allow_abbrev=False,
    )
    for name in ("state_store", "state_store_password_file"):
        parser.add_argument(f"--{name}", required=name == "state_store", **DECLARED[name])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="print each namespace, and the checkpoint that it belongs to")
    drop = commands.add_parser(
        "drop",
        help="remove a namespace. If its pipeline is continued, the keys are copied there again",
    )
    drop.add_argument("namespace", metavar="NAMESPACE", help="as list prints it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
