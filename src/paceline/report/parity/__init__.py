"""Results of `paceline verify` as pages."""
