"""Loop programs as machine code of the CPU, through LLVM."""
