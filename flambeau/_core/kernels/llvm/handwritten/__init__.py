"""Kernels written by hand: matrix products, convolutions, attention, products with sparse rows.  Here the code says how memory is
walked; all other kernels are written from `kernels.loops`."""
