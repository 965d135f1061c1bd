"""Tests on a real YARN: ``make yarn-test``."""
