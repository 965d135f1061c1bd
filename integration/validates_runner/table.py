"""The table of results in ``docs/conformance.md``."""

from collections.abc import Mapping, Sequence

from integration.validates_runner.ledger import Verdict, count
from integration.validates_runner.suites import SUITES

_APART = (Verdict.NO_PIPELINE, Verdict.OWN_RUNNER, Verdict.SKIPPED)
_JUDGED = (Verdict.SOUND, Verdict.VACUOUS, Verdict.FAILING)


def render(
    runners: Sequence[str],
    rows: Sequence[tuple[str, Sequence[Mapping[str, Verdict] | None], Mapping[str, Verdict]]],
) -> str:
    """Render Markdown.

    Args:
        runners: the first is the one that is measured, the others are its peers.
        rows: of each suite its name, the verdicts of its tests for each runner (None: a peer that
            lacks what the suite needs), and those of tests that fail on the first runner and ran
            again as ``expectations.toml`` says they pass.
    """
    heads = ["suite", "tests", *(verdict.value for verdict in _APART)]
    for runner in runners:
        heads.append(f"{runner}: " + " / ".join(verdict.value for verdict in _JUDGED))
    heads.insert(len(heads) - len(runners) + 1, "of these pass in one process")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name, by_runner, elsewhere in rows:
        assert by_runner[0] is not None
        ours = count(by_runner[0].values())
        cells = [name, str(ours.total()), *(str(ours[verdict]) for verdict in _APART)]
        for verdicts in by_runner:
            counted = count((verdicts or {}).values())
            figures = " / ".join(str(counted[verdict]) for verdict in _JUDGED)
            lacks = SUITES[name].peers_lack if verdicts is None else ""
            cells.append(f"has no {lacks}" if lacks else figures)
        passing = count(elsewhere.values())[Verdict.SOUND]
        cells.insert(len(cells) - len(runners) + 1, str(passing))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
