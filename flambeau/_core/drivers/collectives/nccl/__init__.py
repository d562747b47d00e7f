"""Communication by NCCL: `library.py` its functions, numbers and structs, `communicator.py` a group of GPUs."""
