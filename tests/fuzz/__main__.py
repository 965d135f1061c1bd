"""Send messages of strangers to all parts of the runner that take any, a million by default.

Exit status 1: some ended otherwise than by a named error. Each such case is printed with its
target and number, with which ``--target NAME --case NUMBER`` runs it again, in this process.
"""

import argparse
import sys

from tests.fuzz.child import case_of
from tests.fuzz.driver import Tally, fuzz, smallest
from tests.fuzz.targets import all_targets
from tests.fuzz.targets.base import Target


def main() -> int:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, help="of all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", default=[], help="only this one; repeatable")
    parser.add_argument("--case", type=int, help="run one case of the target here")
    parser.add_argument("--hex", help="run this case of the target here")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    targets = {each.name: each for each in all_targets()}
    if unknown := set(given.target) - set(targets):
        parser.error(f"no such target: {', '.join(unknown)}; there are {', '.join(targets)}")
    chosen = [targets[name] for name in given.target or targets]
    if given.case is not None or given.hex:
        (target,) = chosen
        case = bytes.fromhex(given.hex) if given.hex else case_of(target, given.seed, given.case)
        print(case.hex(), flush=True)
        target.begin()
        print(target.outcome(case))
        return 0
    tallies = fuzz(chosen, given.messages, seed=given.seed, processes=given.processes)
    for each in chosen:
        print_tally(each.name, tallies[each.name])
    for each in chosen:
        print_findings(each, tallies[each.name])
    return int(any(each.findings for each in tallies.values()))


def print_tally(name: str, tally: Tally) -> None:
    """Print what has become of the cases of a target."""
    outcomes = ", ".join(f"{what} {count}" for what, count in tally.outcomes.most_common())
    print(
        f"{name}: {tally.ended} cases in {tally.busy_s:.1f} s; slowest {tally.slowest_s:.3f} s "
        f"(case {tally.slowest}); peak {tally.peak_kb >> 10} MB of {tally.start_kb >> 10} MB at "
        f"the begin; {outcomes}{'; GIVEN UP' if tally.is_given_up else ''}",
        flush=True,
    )


def print_findings(target: Target, tally: Tally) -> None:
    """Print the cases of a target that must not have ended so, each as small as it can be."""
    for signature, each in tally.findings.items():
        print(f"\n{each.target}: {each.kind} {each.what}, {tally.times[signature]} times")
        print(f"  case {each.number}, at {each.where}")
        print(f"  {smallest(target, each).hex()[:2_000]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
