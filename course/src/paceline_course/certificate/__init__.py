"""Certificates: a grade, signed. Made and checked without a network; what each proves, and what not, is said on it."""
