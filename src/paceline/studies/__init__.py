"""What takes several jobs: probes, learning curves, branch tests. They start jobs through launch and read records."""
