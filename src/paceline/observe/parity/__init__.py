"""Parity runs: record what ranks train on, replay it in one process, and keep the states of both."""
