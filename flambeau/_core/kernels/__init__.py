"""Formulas and loop programs, and the targets that run them."""
