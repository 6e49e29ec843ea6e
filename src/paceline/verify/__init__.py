"""Proof that several ranks train what one process would: the oracle, and what ranks have to have in common."""
