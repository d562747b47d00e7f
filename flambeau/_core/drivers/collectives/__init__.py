"""Communication between processes: `interface.py` what an engine must do, `mpi.py` that by MPI."""
