"""Modules that only answer for names which are PyTorch's own business: its private ones (`_C`, `_dynamo`), other devices' (`mps`), ...

Each is found as a module of `flambeau` itself (`flambeau.mps`), whose `__path__` has this folder; nobody imports it by way of this package.
So these modules import each other with one dot, and all else by its full name.
"""
