"""Benchmarks against Beam's FnApiRunner. ``python -m benchmarks --help`` says how to run them."""
