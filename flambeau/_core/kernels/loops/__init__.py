"""How a program's axes are walked: decided once, for every target, as data that a renderer writes down.

A renderer says what its machine is (`Machine`), asks for the loops of a launch and writes them in its language; which axes merge,
what lies along what, what is kept and where work is cut is said here and nowhere else.

``walk``        `Axis`, `walk_axes`: axes of size 1 dropped, the rest sorted by stride and merged; `Facts` of a program.
``operands``    `Operands`, which every kind of loops is: the operands' types and steps over the domain (0 for what is addressed by
                offsets of its own), the coordinates asked for, which axis has neighbours (`score`), where lines begin
                (`begins`, `divides`), whether places need 64 bits (`is_wide`).
``maps``        `MapLoops`: axes, outermost first; each operand's class along the innermost ("0" still, "1" the neighbour, "s" a
                stride); the axis and the operands that lie across it (`across`), to go by tiles; neighbours and rounds a thread.
``reductions``  `ReduceLoops`: kept and reduced axes; lanes along the reduced axis, or across outputs; the group of lanes of an output;
                pieces of a long reduction, whose partial results a second stage joins.
``rows``        `RowLoops`: outer axes and the row's; passes (stages that go over the row together); whether the row is kept in
                registers, in shared memory, read again by each pass, or cut into pieces, one launch a pass.
``scans``       `ScanLoops`: outer axes and the scanned one; lanes along it or a thread a row; tiles, pieces and their totals.
``partials``    what combines: an accumulator's parts, what it begins with, where partial results lie in the workspace.
``launch``      `Launch`: a whole launch by threads: the program over real numbers, its loops, its arguments.

``stages``      machines of vectors: a stage's vector, line, outer and middle axes; the units of work, and how many a thread is handed.

Each kind has its loops for machines of threads (`ByThreads`: CUDA C, OpenCL C) and of vectors (`ByVectors`: LLVM), which share its axes
and which way lanes lie.  `groups` has the threads of a row; `launch` what a launch by threads is before it is written.

Sizes of groups and pieces depend on the program, the domain and the machine's class alone, never on how many cores there are or how
busy they are, so that equal inputs give equal bits.
"""
