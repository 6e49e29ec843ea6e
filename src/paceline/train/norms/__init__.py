"""Batch norm over what: one rank's samples, all ranks', or groups of a stated size."""
