"""The ValidatesRunner tests of Beam's Java SDK, submitted by a JVM to our job server.

``python -m integration.java_sdk`` runs them (``make conformance-java``); ``docs/conformance.md``
explains its output. Java's ``PAssert`` is a step of the pipeline, so tests would pass on a server
that reports DONE without running anything. Therefore the server is asked about each job
(``evidence``): its final state, and the counter of each ``PAssert`` that is satisfied.

*No surprises.* ``expectations.toml`` has the form of the Go SDK's, and any difference is an error.
"""
