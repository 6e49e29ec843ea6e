"""Warm ranks: functions run on fresh ranks in a fraction of a second."""
