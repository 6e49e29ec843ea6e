"""Starting processes: jobs on torch elastic, and a pool of warm ranks for short checks."""
