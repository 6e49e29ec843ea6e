"""Reading, writing and verifying the state of a run."""
