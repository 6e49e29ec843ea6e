"""Analyses of training scripts that rules share: ranks, loops, models, data, values that differ between ranks."""
