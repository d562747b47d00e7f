"""Sorting, selecting, searching and counting as machine code of the CPU."""
