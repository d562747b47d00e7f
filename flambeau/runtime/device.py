class device:
    __slots__ = ("type", "index")
    def __repr__(self): return f"device(type='{self.type}')"
    def __str__(self): return self.type
_cpu = object.__new__(device); _cpu.type = "cpu"; _cpu.index = None
def resolve(d=None): return _cpu
