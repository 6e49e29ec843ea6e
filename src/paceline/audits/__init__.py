"""Judges: pure functions from what ranks left behind to what was wrong. They measure nothing."""
