"""Data sets: finding, checking and opening them."""
