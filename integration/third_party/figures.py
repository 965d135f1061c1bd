"""The table of results, in Markdown."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from integration.validates_runner.ledger import Verdict, count
from integration.validates_runner.runners import FN_API

_APART = (Verdict.NO_PIPELINE, Verdict.OWN_RUNNER, Verdict.SKIPPED)
_JUDGED = (Verdict.SOUND, Verdict.VACUOUS, Verdict.FAILING)
_PASSES = (Verdict.SOUND, Verdict.VACUOUS)


class Figures(NamedTuple):
    """What came of one project.

    Attributes:
        verdicts: Of each test, by runner.
    """

    verdicts: Mapping[str, Mapping[str, Verdict]]

    def only_on_peer(self, runner: str) -> list[str]:
        """Return the tests that pass on ``FnApiRunner`` and not on a runner of ours."""
        ours = self.verdicts[runner]
        return [
            test
            for test, verdict in self.verdicts[FN_API].items()
            if verdict in _PASSES and ours.get(test) not in _PASSES
        ]


def table(figures: Mapping[str, Figures], runners: Sequence[str]) -> str:
    """Render a row for each project.

    Args:
        figures: By the project's name.
        runners: Ours.
    """
    heads = ["project", "tests", *(verdict.value for verdict in _APART)]
    judged = " / ".join(verdict.value for verdict in _JUDGED)
    heads += [f"{runner}: {judged}" for runner in (*runners, FN_API)]
    heads += [f"pass on {FN_API}, not on {runner}" for runner in runners]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name, of in figures.items():
        ours = count(of.verdicts[runners[0]].values())
        cells = [name, str(ours.total()), *(str(ours[verdict]) for verdict in _APART)]
        for runner in (*runners, FN_API):
            counted = count(of.verdicts[runner].values())
            cells.append(" / ".join(str(counted[verdict]) for verdict in _JUDGED))
        cells += [str(len(of.only_on_peer(runner))) for runner in runners]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
