"""The progress of a pipeline below the cell of a notebook."""

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.job.watching import notebook_line
from beam_spark_runner.job.watching.lines import line_for
from beam_spark_runner.job.watching.notebook_line import NotebookLine, display_in_cell
from beam_spark_runner.job.watching.progress_line import LoggedLine


class Cell:
    """The output of a cell, as it changes."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.updates = threading.Semaphore(0)

    def display(self, shown: Any, **_: Any) -> "Cell":
        assert self.shown == [], "what is shown is replaced, and not shown again"
        self.update(shown)
        return self

    def update(self, shown: Any) -> None:
        self.shown.append(shown._repr_html_())
        self.updates.release()


def test_the_output_of_the_cell_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook_line, "_EVERY_S", 0.01)
    cell = Cell()
    line = NotebookLine(cell.display, 0.0, clock=lambda: 65.0)
    line.show(lambda: ["starting <Spark>"])
    assert cell.shown[0] == "<div>1:05 · starting &lt;Spark&gt;</div>"
    line.show(lambda: ["Read (1 of 2)"], lambda: "<p>a picture</p>")
    for _ in range(4):
        assert cell.updates.acquire(timeout=30)
    line.close()
    line.say("DONE in 1:05")
    assert "<div>1:05 · Read (1 of 2)</div><p>a picture</p>" in cell.shown
    assert cell.shown[-1] == "<div>DONE in 1:05</div><p>a picture</p>"


def test_an_error_of_the_kernel_is_not_raised() -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("the kernel is gone")

    line = NotebookLine(fail, 0.0)
    line.show(lambda: ["starting"])
    line.say("DONE")
    line.close()


@pytest.mark.parametrize(
    ("shell", "is_notebook"),
    [
        pytest.param(None, False, id="a program that has imported IPython"),
        pytest.param(SimpleNamespace(), False, id="a terminal"),
        pytest.param(SimpleNamespace(kernel=object()), True, id="a notebook"),
    ],
)
def test_where_there_is_a_cell(
    monkeypatch: pytest.MonkeyPatch, shell: Any, is_notebook: bool
) -> None:
    cell = Cell()
    display = SimpleNamespace(display=cell.display)
    ipython = SimpleNamespace(get_ipython=lambda: shell, display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    show = display_in_cell()
    assert (show is not None) is is_notebook
    assert isinstance(line_for("auto"), NotebookLine) is is_notebook
    assert isinstance(line_for("auto", may_use_cell=False), LoggedLine)
    assert line_for("off") is None
