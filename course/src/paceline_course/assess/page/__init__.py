"""A grade as one HTML page: the result, what to do next, every line with its evidence, and what all of it rests on."""
