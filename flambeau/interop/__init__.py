"""How tensors meet other libraries: DLPack, NumPy's protocols, the array API standard, overrides, notebooks."""
