"""Spreads cases over processes, and sums up what has become of them."""

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.fuzz.child import Child, Finding, Part, case_of
from tests.fuzz.targets.base import Target

_AT_ONCE = 2_000
_LOOK_EVERY_S = 0.02
_MAX_S = 10.0
_MAX_LOST = 100
_MAX_HUNG = 3
"""Processes of one target: then its other cases are not run."""


@dataclass
class Tally:
    """What has become of the cases of one target."""

    ended: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[tuple[str, ...], Finding] = field(default_factory=dict)
    times: Counter[tuple[str, ...]] = field(default_factory=Counter)
    slowest_s: float = 0.0
    slowest: int = -1
    peak_kb: int = 0
    start_kb: int = 0
    busy_s: float = 0.0

    @property
    def is_given_up(self) -> bool:
        """Whether too many processes have crashed or hung."""
        lost = Counter(kind for _, kind, *_ in self.times.elements())
        return lost["hang"] >= _MAX_HUNG or lost["crash"] + lost["memory"] >= _MAX_LOST

    def add(self, part: Part, lasted_s: float) -> None:
        """Add some cases."""
        self.ended += part.ended
        self.outcomes.update(part.outcomes)
        self.busy_s += lasted_s
        self.peak_kb = max(self.peak_kb, part.peak_kb)
        self.start_kb = max(self.start_kb, part.start_kb)
        if part.slowest_s > self.slowest_s:
            self.slowest_s, self.slowest = part.slowest_s, part.slowest
        for each in part.findings:
            self.findings.setdefault(each.signature, each)
            self.times[each.signature] += 1


def fuzz(
    targets: Sequence[Target],
    messages: int,
    *,
    seed: int = 0,
    processes: int = 2,
    first: int = 0,
) -> dict[str, Tally]:
    """Run cases, and return what has become of them, by target.

    Args:
        targets: The targets.
        messages: The number of cases of all targets together.
        seed: Decides, with the number of a case, what it is.
        processes: How many run side by side.
        first: The number of the first case of each target.
    """
    tallies = {each.name: Tally() for each in targets}
    waiting = list(_work(targets, messages, first))
    running: list[tuple[Target, Sequence[int], Child, float]] = []
    while waiting or running:
        while waiting and len(running) < processes:
            target, numbers = waiting.pop(0)
            if not tallies[target.name].is_given_up:
                child = _child(target, numbers, seed)
                running.append((target, numbers, child, time.monotonic()))
        for each in list(running):
            target, numbers, child, began_s = each
            part = child.poll()
            if part is None:
                continue
            running.remove(each)
            tallies[target.name].add(part, time.monotonic() - began_s)
            if left := numbers[part.ended :]:
                waiting.insert(0, (target, left))
        time.sleep(_LOOK_EVERY_S)
    return tallies


def _child(target: Target, numbers: Sequence[int], seed: int) -> Child:
    return Child(target, numbers, lambda number: case_of(target, seed, number))


def _work(
    targets: Sequence[Target], messages: int, first: int
) -> Iterator[tuple[Target, Sequence[int]]]:
    """Cut the cases into pieces, the targets by turns."""
    shares = sum(each.share for each in targets)
    ends = {each: first + math.ceil(messages * each.share / shares) for each in targets}
    begins = dict.fromkeys(targets, first)
    while begins:
        for each in list(begins):
            begin, end = begins[each], min(begins[each] + _AT_ONCE, ends[each])
            yield each, range(begin, end)
            begins[each] = end
            if end >= ends[each]:
                del begins[each]


def smallest(target: Target, finding: Finding) -> bytes:
    """Return a smaller case that ends in the same way, if one is found soon; not after a hang."""
    case = finding.case
    if finding.kind == "hang":
        return case
    ends_s = time.monotonic() + _MAX_S
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for each in target.smaller(case):
            if time.monotonic() > ends_s:
                break
            if len(each) < len(case) and _ends_as(target, each, finding):
                case, is_smaller = each, True
                break
    return case


def _ends_as(target: Target, case: bytes, finding: Finding) -> bool:
    child = Child(target, [0], lambda number: case)
    while (part := child.poll()) is None:
        time.sleep(0.002)
    return any(each.signature == finding.signature for each in part.findings)
