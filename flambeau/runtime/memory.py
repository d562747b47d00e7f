from . import cpu_memory
def block(dev, n):
    c = cpu_memory.size_class(n)
    return (c.free.pop() if c.free else c.grow()), c.free
