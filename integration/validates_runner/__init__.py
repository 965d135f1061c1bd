"""Beam's own test suites, run from its wheel on this runner, and the ledger of what passes.

``python -m integration.validates_runner`` runs them; ``docs/conformance.md``
says how to read what it prints. How a pass is judged:

*Which pipelines count.* The runner under test takes the place of Beam's default
runner (``runners``): pipelines of tests that name no runner go there. A test
that names its own runner says nothing about ours.

*Assertions must run.* ``assert_that`` adds a step that checks while the pipeline
runs. On a runner that runs nothing, nothing is checked, and nothing fails. So
each matcher leaves a file once it was satisfied (``assertions``), and after the
test each ``assert_that`` of a pipeline that did not fail must have left one. The
same holds for every runner that is measured.

*A pass is sound* where the test drives the runner under test, and fails on a
runner that builds the pipeline's proto and then does nothing (``DoNothingRunner``).
It is *vacuous* where that passes, too. Tests that drive no pipeline at all are
counted apart, and listed in ``no_pipeline.txt``.

*No surprises.* ``expectations.toml`` names each test that does not pass, with the
reason, and each pass that is vacuous or drives another runner. Whatever differs
is an error, in both directions.
"""
