"""Estimators: pure functions of numbers, each with its interval. No torch."""
