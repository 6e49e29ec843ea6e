"""Processes that start at once: a fork server, functions in processes of their own and on warm ranks."""
