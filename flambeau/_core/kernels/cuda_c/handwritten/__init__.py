"""Kernels written by hand: sorting, selecting, searching, compacting, scattering, attention.  Here the text says how memory is
walked; all other kernels are written from `kernels.loops`."""
