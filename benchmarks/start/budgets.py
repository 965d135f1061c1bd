"""What mid-size pipelines lose by a segment's first task: ``--single_task_budget`` against 0.

``python -m benchmarks.start.budgets CASE SIZE RUNS BUDGET …`` runs a case of ``benchmarks.cases``
in one session, with each budget in turn, and prints the medians; ``default`` gives no option. The
first round does not count.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from benchmarks import cases

_FLAGS = ["--runner=SparkPortableRunner", "--spark_master_url=local[2]", "--progress=off"]


def main() -> None:
    """Run a case with each budget, and print the medians."""
    name, size, runs, *budgets = sys.argv[1:]
    build = getattr(cases, name)
    seconds: dict[str, list[float]] = {budget: [] for budget in budgets}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(int(runs) + 1):
            for budget, taken in seconds.items():
                flags = [] if budget == "default" else [f"--single_task_budget={budget}"]
                began_s = time.perf_counter()
                with beam.Pipeline(options=PipelineOptions([*_FLAGS, *flags])) as pipeline:
                    build(pipeline, int(size), Path(folder))
                taken.append(time.perf_counter() - began_s)
    for budget, taken in seconds.items():
        print(f"{name}, {budget}: {median(taken[1:]):.2f} s")


if __name__ == "__main__":
    main()
