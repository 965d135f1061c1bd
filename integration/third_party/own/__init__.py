"""Tests of this project, for distributions that have none that run: see the ledgers' README."""
