"""Commits of streaming pipelines, and which of several drivers may commit. Pure."""
