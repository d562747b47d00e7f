"""Communication between processes: `interface.py` what an engine must do, `mpi.py` that by MPI, `parent.py` a rank's parent under MPI launchers."""
