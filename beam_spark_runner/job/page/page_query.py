"""What a viewer of a job has chosen, as it is in the address."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, urlencode

from beam_spark_runner.observing.message_lines import LEVELS

_MAX_PATH = 1_000
_MAX_NAME = 200
_MAX_UNFOLDED = 50
"""Each link of a page repeats them."""

EVERYTHING = "*"
"""In place of paths to unfold: all composites."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """The choices of a viewer.

    Attributes:
        job_id: The job.
        step: The path of the step whose panel is shown. "": none.
        unfolded: The paths of composites whose parts are shown, or ``EVERYTHING``.
        level: The lowest level of log lines, one of ``LEVELS``. "": all.
        worker: The worker that log lines are of. "": any, or the runner.
        find: A text that log lines and steps in the table must have. "": any.
    """

    job_id: str
    step: str = ""
    unfolded: tuple[str, ...] = ()
    level: str = ""
    worker: str = ""
    find: str = ""

    @classmethod
    def from_pairs(cls, job_id: str, pairs: Sequence[tuple[str, str]]) -> "PageQuery":
        """Read a query string; what is unknown in it is left out."""
        by_name = dict(pairs)
        level = by_name.get("level", "")
        unfolded = (value for name, value in pairs if name == "open" and len(value) <= _MAX_PATH)
        return cls(
            job_id=job_id,
            step=by_name.get("step", "")[:_MAX_PATH],
            unfolded=tuple(dict.fromkeys(unfolded))[:_MAX_UNFOLDED],
            level=level if level in LEVELS else "",
            worker=by_name.get("worker", "")[:_MAX_NAME],
            find=by_name.get("find", "")[:_MAX_NAME],
        )

    def href(self, anchor: str = "") -> str:
        """Return the address of the page with these choices.

        Example:
            >>> PageQuery(job_id="7", step="Read/Do", unfolded=("Read",)).href("graph")
            '/jobs/7?step=Read%2FDo&open=Read#graph'
        """
        given = [
            ("step", self.step),
            ("level", self.level),
            ("worker", self.worker),
            ("find", self.find),
        ]
        pairs = [(name, value) for name, value in given if value]
        pairs += [("open", path) for path in self.unfolded]
        text = f"/jobs/{quote(self.job_id, safe='')}"
        if pairs:
            text += f"?{urlencode(pairs)}"
        return f"{text}#{anchor}" if anchor else text

    def with_step(self, path: str) -> "PageQuery":
        """Return the same with another step's panel."""
        return replace(self, step=path)

    def with_level(self, level: str) -> "PageQuery":
        """Return the same with another level of log lines."""
        return replace(self, level=level)

    def unfolding(self, path: str) -> "PageQuery":
        """Return the same with one more composite whose parts are shown."""
        return replace(self, unfolded=(*self.unfolded, path))

    def folding(self, path: str) -> "PageQuery":
        """Return the same without the parts of a composite."""
        remaining = [
            other for other in self.unfolded if other != path and not other.startswith(f"{path}/")
        ]
        return replace(self, unfolded=tuple(remaining))

    def unfolding_all(self) -> "PageQuery":
        """Return the same with all parts of all composites."""
        return replace(self, unfolded=(EVERYTHING,))

    def folding_all(self) -> "PageQuery":
        """Return the same without the parts of any composite."""
        return replace(self, unfolded=())


class EveryPath:
    """A container that has every path."""

    def __contains__(self, path: object) -> bool:
        """Return True."""
        return True
