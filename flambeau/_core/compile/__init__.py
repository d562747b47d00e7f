"""Whole steps: a record of what a function asks of its devices, the memory behind it, and its replay without Python."""
