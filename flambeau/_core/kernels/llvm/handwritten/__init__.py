"""Kernels written by hand: matrix products, convolutions, attention, products with sparse rows, sorting and its like (`ordering`).  Here the
code says how memory is walked; all other kernels are written from `kernels.loops`.  `code` has Python's operators for instructions."""
