"""Beam's own word count, unmodified, on SparkPortableRunner.

Runs ``python -m apache_beam.examples.wordcount`` as a user would, over the
Python sources of the installed ``apache_beam``, then shows what it wrote.
"""

import argparse
import heapq
import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--runner", default="SparkPortableRunner")
    parser.add_argument("--output", type=Path, help="folder. Default: a new temporary one")
    arguments, pipeline_options = parser.parse_known_args()

    beam = importlib.util.find_spec("apache_beam")
    if beam is None or beam.origin is None:
        raise SystemExit("apache_beam is not installed")
    sources = Path(beam.origin).parent
    size_mb = sum(file.stat().st_size for file in sources.rglob("*.py")) / 1e6
    output = arguments.output or Path(tempfile.mkdtemp(prefix="wordcount-"))
    output.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "apache_beam.examples.wordcount"),
        f"--input={sources}/**.py",
        f"--output={output}/counts",
        f"--runner={arguments.runner}",
        *pipeline_options,
    ]
    print(f"$ python {' '.join(command[1:])}", flush=True)
    start = time.monotonic()
    code = subprocess.run(command, check=False).returncode
    took_s = time.monotonic() - start
    if code:
        return code

    files = sorted(output.glob("counts*"))
    counts = [
        (int(count), word)
        for file in files
        for word, _, count in (line.rpartition(": ") for line in file.open(encoding="utf-8"))
    ]
    print("\nthe ten commonest words")
    for count, word in heapq.nlargest(10, counts):
        print(f"{count:>9,}  {word}")
    total = sum(count for count, _ in counts)
    print(
        f"\n{total:,} words, {len(counts):,} different, in {size_mb:.1f} MB: {took_s:.1f} s "
        f"with the start of Python and Spark\noutput: {output}/ ({len(files)} files)"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
