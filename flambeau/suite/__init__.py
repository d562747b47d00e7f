"""A project's test suite on Flambeau: what `pytest --flambeau` does.

The plugin itself is the module `pytest_flambeau` beside the package, which loads this when it is asked for.
"""
