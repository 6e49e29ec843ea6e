"""Side-by-side benchmarks and drills; README.md describes them."""
