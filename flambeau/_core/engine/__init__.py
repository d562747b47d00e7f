"""The engine: what an operation is, how its calls are planned, carried out, recorded and watched."""
