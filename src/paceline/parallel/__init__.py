"""What every exact computation over ranks is built from."""
