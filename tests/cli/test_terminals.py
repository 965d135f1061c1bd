"""What a person sees on a terminal: the progress line, the last line, and the answer to Ctrl-C."""

import re
import signal
from pathlib import Path

import pytest

from tests.cli.programs import Ended, ProgramOnTerminal

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"
    ),
]
LOCAL = "--spark_master_url=local[2]"
BLOCKED = """
    def block(x):
        open(f"blocked-{x}", "a").close()
        time.sleep(3600)

    with beam.Pipeline(argv=OPTIONS) as p:
        p | "Numbers" >> beam.Create([1]) | beam.Map(block) | "Save" >> beam.io.WriteToText("out")
    """
CANCELLED = r"CANCELLED after \d:\d\d, temporary files are removed"


def lines_left(ended: Ended) -> list[str]:
    """Return the lines that a terminal shows in the end, without that of Beam."""
    lines = [
        line.rstrip("\r").rpartition("\r\x1b[K")[2].lstrip("\r") for line in ended.err.split("\n")
    ]
    return [line for line in lines if line and "apitools not found" not in line]


def drawn(ended: Ended) -> list[str]:
    """Return each progress line that was drawn."""
    return re.findall(r"\r\x1b\[K([^\r\n]+)\r(?!\n)", ended.err)


def test_a_pipeline_from_its_first_second_to_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("a b a\nb a\n")
    script = """
        p = beam.Pipeline(argv=OPTIONS)
        (p | "Words" >> beam.io.ReadFromText("words") | beam.FlatMap(str.split)
           | "Count" >> beam.combiners.Count.PerElement() | beam.MapTuple("{} {}".format)
           | "Save" >> beam.io.WriteToText("counts", num_shards=2))
        result = p.run()
        print(repr(result))
        result.wait_until_finish()
        print(repr(result))
        """
    ended = ProgramOnTerminal(tmp_path, script, LOCAL).end()
    assert ended.code == 0
    assert ended.out == (
        "<SparkPipelineResult 'program': RUNNING>\n<SparkPipelineResult 'program': DONE>\n"
    )
    last = lines_left(ended)[-1]
    assert re.fullmatch(
        r"DONE in \d:\d\d · 2 elements read · counts-\*-of-00002 \(2 files\) · \d+ Spark jobs?",
        last,
    )
    lines = drawn(ended)
    assert any(re.fullmatch(r"\d:\d\d · starting Spark local\[2\]", line) for line in lines)
    texts = "\n".join(lines)
    assert re.search(r"· ▕█*░*▏ \d+% · (Words|Count|Save) \(\d of \d+\)", texts)
    assert "WriteImpl" not in texts
    assert "lambda" not in texts
    assert max(map(len, lines)) < 80


def test_ctrl_c_is_answered_and_ends_with_one_line(tmp_path: Path) -> None:
    program = ProgramOnTerminal(tmp_path, BLOCKED, LOCAL)
    program.wait_for(tmp_path / "blocked-1")
    program.press_ctrl_c()
    ended = program.end(60)
    assert ended.code == -signal.SIGINT
    assert any("cancelling… again to leave at once" in line for line in drawn(ended))
    assert "Traceback" not in ended.err
    assert re.fullmatch(CANCELLED, lines_left(ended)[-1])
    assert list(tmp_path.glob("*beam-temp-*")) == []


@pytest.mark.rare
def test_a_second_ctrl_c_leaves_at_once(tmp_path: Path) -> None:
    """The program waits for the end of its job, which a cancelled Spark would bring."""
    script = """
    from beam_spark_runner.spark.session.handle import SessionHandle
    SessionHandle.cancel = lambda *_: open("cancelled", "a").close()
    """
    program = ProgramOnTerminal(tmp_path, script + BLOCKED, LOCAL)
    program.wait_for(tmp_path / "blocked-1")
    program.press_ctrl_c()
    program.wait_for(tmp_path / "cancelled")
    program.press_ctrl_c()
    ended = program.end(60)
    assert ended.code == -signal.SIGINT
    assert not re.search(r"Traceback|\tat |Exception", ended.err)


@pytest.mark.rare
def test_ctrl_c_while_spark_starts(tmp_path: Path) -> None:
    program = ProgramOnTerminal(tmp_path, BLOCKED, LOCAL)
    assert program.wait_until(lambda: "starting Spark" in program.shown())
    program.press_ctrl_c()
    ended = program.end(60)
    assert ended.code == -signal.SIGINT
    assert any("cancelling… again to leave at once" in line for line in drawn(ended))
    assert "Traceback" not in ended.err
    assert re.fullmatch(r"CANCELLED after \d:\d\d", lines_left(ended)[-1])


@pytest.mark.rare
def test_a_jvm_without_its_program_writes_nothing_to_the_terminal(tmp_path: Path) -> None:
    program = ProgramOnTerminal(tmp_path, BLOCKED, LOCAL)
    program.wait_for(tmp_path / "blocked-1")
    program.send(signal.SIGKILL)
    ended = program.end(60)
    assert ended.code == -signal.SIGKILL
    assert not re.search(r"Traceback|\tat |Exception|WARN |ERROR", ended.err)
