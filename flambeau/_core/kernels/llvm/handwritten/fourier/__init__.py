"""Fourier transforms: see `program`."""
