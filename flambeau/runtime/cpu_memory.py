import numpy as np
SMALL = 1 << 20
class SizeClass:
    __slots__ = ("size", "free", "keep")
    def __init__(self, size): self.size=size; self.free=[]; self.keep=[]
    def grow(self):
        b = np.empty(self.size + 64, np.uint8); self.keep.append(b)
        p = b.ctypes.data; return p + (-p % 64)
_classes = {}
def size_class(n):
    size = 64 if n <= 64 else 1 << (n - 1).bit_length()
    c = _classes.get(size)
    if c is None: c = _classes[size] = SizeClass(size)
    return c
