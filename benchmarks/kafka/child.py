"""The main loop of a contender's process. It imports neither Beam nor this package.

It reads tasks as lines of JSON, and answers each with two lines: one when its query has been
started, and one when it has been stopped.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

Start = Callable[[Any, dict[str, Any]], Callable[[], None]]
"""Starts a query in a session, and returns what stops it."""


def serve(session: Any, start: Start) -> None:
    """Run tasks, one after another."""
    for line in sys.stdin:
        last = max((number for number, _ in _jobs(session)), default=-1)
        stop = start(session, json.loads(line))
        print("{}", flush=True)
        sys.stdin.readline()
        stop()
        times = [at_s for number, at_s in _jobs(session) if number > last]
        print(json.dumps({"first_job_s": min(times), "jobs": len(times)}), flush=True)


def _jobs(session: Any) -> list[tuple[int, float]]:
    """Return the id of each Spark job, and the Unix time at which it was submitted."""
    jobs = session.sparkContext._jsc.sc().statusStore().jobsList(None)
    each = (jobs.apply(number) for number in range(jobs.size()))
    return [(job.jobId(), job.submissionTime().get().getTime() / 1000) for job in each]
