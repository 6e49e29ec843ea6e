"""Studies of what a larger batch does to training; each is a table of cells, one committed record a cell."""
