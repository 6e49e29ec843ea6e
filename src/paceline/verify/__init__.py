"""Proof that several ranks train what one process would, and what the script before did."""
