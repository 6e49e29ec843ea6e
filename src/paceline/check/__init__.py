"""Reads training scripts and reports faults of their data parallelism, without running them and without torch."""
