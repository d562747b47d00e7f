"""`make fuzz`: the instruments of ../shared/instruments, their findings held against what is known (tools/fuzz/known)."""
