"""Nexmark: Beam's queries in streaming, with checked results, on this runner and on others."""
