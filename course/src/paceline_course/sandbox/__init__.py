"""For answers that nobody has read: limits on a rank, and a quarantine around a command."""
