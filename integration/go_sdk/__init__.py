"""The Go SDK's own tests, submitted by Go programs to our job server, and the ledger of them.

``python -m integration.go_sdk`` runs them (``make conformance-go``); ``docs/conformance.md`` says
how to read what it prints. Go's ``passert`` is a step of the pipeline, as ``assert_that`` is in
Python, so that a job server which says DONE and runs nothing would pass nine tests of ten. So what
counts is what the server says of each job (``evidence``): its final state, that bundles ran in the
client's SDK harness, and that elements reached each assertion.

*No surprises.* ``expectations.toml`` names each test that does not pass, with the reason, each pass
without evidence, and each test that submits no pipeline. Whatever differs is an error, in both
directions.
"""
