"""Starting jobs: ours on forked ranks, users' scripts on torch elastic."""
