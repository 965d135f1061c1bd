"""The pipeline of the page about a first pipeline, run as the page shows it, but without Java."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "first_pipeline.md").read_text()
(PROGRAM, *_) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_program_counts_words(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(PROGRAM)
    (tmp_path / "text.md").write_text("to be or not to be\n" * 3 + "To\n")
    options = (
        "--runner=SparkPortableRunner",
        "--spark_master_url=in-process",
        f"--input={tmp_path}/*.md",
        f"--output={tmp_path}/out/words",
    )
    subprocess.run([sys.executable, tmp_path / "words.py", *options], check=True, timeout=300)
    (written,) = tmp_path.glob("out/words*.csv")
    header, *lines = written.read_text().splitlines()
    assert header == "word,count"
    assert sorted(lines) == ["be,6", "to,7"]
