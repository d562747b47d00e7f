"""Random numbers in PyTorch's order, drawn from a generator's block (`kernels.mersenne`)."""
