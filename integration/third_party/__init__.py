"""Tests of other projects that use Beam, from their distributions on PyPI, on this runner.

``python -m integration.third_party`` runs them; ``README.md`` says which projects, from where, and
what they showed. How a pass is judged, and the form of the ledgers, are those of
``integration.validates_runner``: its plugin runs the tests here, too, and its ledger judges them.

Each group of projects has an environment with pinned packages. Each project has a ledger. On the
same day, its tests run on a runner that does nothing, on this runner without Spark, on this runner
on a ``local[2]``, and on ``FnApiRunner``; a test that passes on ``FnApiRunner`` and fails here
needs a reason in the ledger.
"""
