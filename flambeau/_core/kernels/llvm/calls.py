"""Machine code that carries out a planned call: it allocates, launches and makes the tensors, without Python between.

`flambeau_call(*arguments)` has as its `self` a bytes object of 64-bit words; the objects they point to live as long as the builtin does:

  word 0   how many arguments
  word 1   the function that is called with the same arguments instead, where one of them, or the tape, asks for more than is done here
  word 2   which arguments are tensors (a bit each)
  word 3   which of the others are numbers that launches take as floating-point ones
  word 4   which are neither, and stand for the objects that they are
  word 5   1: where a tensor among them requires grad and operations are recorded, the other function is called
  word 6   how many blocks of memory
  word 7   how many bytes the steps have
  word 8   how many results
  word 9   how they are given: 0 the one, 1 a tuple of them, 2 a list, otherwise the function that is called with the tuple
  word 10  how many arguments are written
  word 11  which numbers must be small: floating-point ones within what any type holds, integers from 0 to 127
  blocks   three words each: the list that addresses are taken from, the function that gives one where it is empty, the meta of the storage (0:
           memory of which no result is made, which goes back to the list)
  written  two words each: the number of an argument that the steps write, an int by which its version rises
  steps    those of `sequence`, whose numbered addresses are the arguments' and then the blocks'; bytes and lists that are others ask for the other function
  results  five words each: what it is (below), a meta or an object, the number of an argument or a block, bytes that are added, and what a
           view's `_made` is, or 0

A result is (0) a tensor on a block, (1) a view of an argument, which may be a view itself, (2) a tensor on an argument's memory that is no view of it,
(3) the argument, (4) the object, (5) a tensor of the argument's layout on its memory, with a storage and so a version of its own, (6) a view of an
argument without an address: a copy of the meta has it, (7) a tensor on the memory of an argument that is a NumPy array, (8) on that of one that is a buffer.

While operations are recorded, a base has a list of its views in its `__dict__`, as a recorded write changes their histories (`autograd/inplace.py`).
A view whose base has a history already is left to the other function; so is a call that writes an argument where another lies in the same storage.

While a block of inference mode runs anywhere, a new storage asks whether it is in one, and so does a view of what is no inference tensor
(`runtime/versions.py`).

`flambeau_call_knows`, no method, tells it of the classes and objects below.
"""

from __future__ import annotations

from .. import calls
from . import arguments, objects, sequence, sharing, sized
from .translate import translate

NAMES = ("flambeau_call", "flambeau_call_knows", *sized.NAMES, *sharing.NAMES)
# what `flambeau_call_knows` is told, in order: the classes of tensors and storages, the variable that says whether operations are recorded, the function
# that puts a view on its base's list, the kinds of types that have gradients, the names of two entries of a `__dict__`, 0, what memory is given back
# to that is somebody's; of inference mode the variable, the list that is empty while nobody is in it, the first version, and a view's `_made`
KNOWS = ("tensor", "storage", "recording", "note", "real", "complex", "made", "views", "zero", "nobody", "inference", "entered", "untracked", "unseen")
_WHAT = {name: getattr(calls, name) for name in ("NEW", "VIEW", "DETACHED", "OBJECT", "APART", "TURNED", "ON_ARRAY", "ON_BUFFER")}


def text(places: dict[str, int]) -> str:
    """The IR. places: where slots lie: of a tensor `meta store ptr node base`, of a storage `version free kept address owner` (its meta, ptr and keep), of a
    meta each of its own, of a dtype `kind`, of a size class `free_list`, of a meta that holds the address `lazy_address`, and `lazy_slots`, how many slots
    such a one has."""
    known = "".join(f"{name}: ptr = None\n" for name in KNOWS)
    told = f"def flambeau_call_knows({', '.join(f'{name}_: ptr' for name in KNOWS)}) -> void:\n    global {', '.join(KNOWS)}\n"
    told += "".join(f"    {name} = {name}_\n" for name in KNOWS)
    parts = known, told, arguments.WORD, objects.FILL, sequence.STEPS, _OBJECTS, sharing.INWARDS, _RESULTS, _CALL, sized.TEXT, sharing.text()
    return translate("".join(parts),
                     {**arguments.LAYOUT, **_WHAT, **sized.CONSTANTS, "ITEMS": tuple.__basicsize__, **{name.upper(): place for name, place in places.items()}})


# what stands for a tensor or a storage: null where there was an error, or, of a view or a tensor apart, where the other function is asked
_OBJECTS = """
def put(o: ptr, place: i64, value: ptr) -> void:
    "Puts an object into an empty slot."
    Py_IncRef(value)
    ptr[o + place] = value

def is_tensor(o: ptr) -> i1:
    return ptr[o + 8] == tensor or PyType_IsSubtype(ptr[o + 8], tensor) != 0

def records() -> i1:
    "Whether operations are recorded; an error counts as yes, and is told by the other function."
    value = stack(ptr, 1)
    if PyContextVar_Get(recording, None, value) != 0:
        PyErr_Clear()
        return True
    now = ptr[value]
    Py_DecRef(now)
    return now == _Py_TrueStruct

def infers() -> i1:
    "Whether this is in inference mode; an error counts as no."
    if i64[entered + 16] == 0:
        return False
    value = stack(ptr, 1)
    if PyContextVar_Get(inference, None, value) != 0:
        PyErr_Clear()
        return False
    now = ptr[value]
    Py_DecRef(now)
    return now == _Py_TrueStruct

def first_version() -> ptr:
    return untracked if infers() else zero

def tracked(store: ptr) -> i1:
    return ptr[ptr[store + VERSION] + 8] != ptr[untracked + 8]

def shown(m: ptr, store: ptr, address: ptr, begin: i64, added: i64, base: ptr) -> ptr:
    "A tensor of this meta on a storage, so many bytes behind an address, whose number is `begin`."
    t = PyType_GenericAlloc(tensor, 0)
    if t is None:
        return None
    put(t, META, m)
    put(t, STORE, store)
    put(t, NODE, _Py_NoneStruct)
    put(t, BASE, base)
    if added == 0:
        put(t, PTR, address)
        return t
    number = PyLong_FromUnsignedLongLong(begin + added)
    if number is None:
        Py_DecRef(t)
        return None
    ptr[t + PTR] = number
    return t

def noted(base: ptr, view: ptr) -> i1:
    "Puts a view on its base's list; 0 with an error."
    entries = PyObject_GenericGetDict(base, None)
    if entries is None:
        return False
    done = False
    known = PyDict_GetItemWithError(entries, views)
    if known is not None and (count := PyList_Size(known)) & (count - 1) != 0:
        reference = PyWeakref_NewRef(view, None)
        if reference is not None:
            done = PyList_Append(known, reference) == 0
            Py_DecRef(reference)
    elif (said := PyObject_CallFunctionObjArgs(note, base, view, None)) is not None:
        Py_DecRef(said)
        done = True
    Py_DecRef(entries)
    return done

def marked(of: ptr, look: i1, kind: ptr, view: ptr) -> i1:
    "What is said of a view: the entry `_made` of the view it is of, or else `kind`, unless that is 0; 0 with an error."
    said = kind
    if look:
        entries = PyObject_GenericGetDict(of, None)
        if entries is None:
            return False
        found = PyDict_GetItemWithError(entries, made)
        Py_DecRef(entries)
        if found is not None:
            said = found
    if said is None:
        return True
    into = PyObject_GenericGetDict(view, None)
    if into is None:
        return False
    failed = PyDict_SetItem(into, made, said)
    Py_DecRef(into)
    return failed == 0

def viewed(o: ptr, m: ptr, begin: i64, added: i64, kind: ptr) -> ptr:
    of = ptr[o + BASE]
    store = ptr[o + STORE]
    if of is None or store is None:
        return None
    first = of == _Py_NoneStruct
    base = o if first else of
    if ptr[base + NODE] != _Py_NoneStruct or ptr[o + NODE] != _Py_NoneStruct:
        return None
    t = shown(m, store, ptr[o + PTR], begin, added, base)
    if t is None:
        return None
    well = True
    said = unseen if infers() and tracked(store) else kind
    if not first or said is not None:
        well = marked(o, not first, said, t)
    letter = ptr[ptr[ptr[base + META] + DTYPE] + KIND]
    if well and (letter == real or letter == complex) and records():
        well = noted(base, t)
    if not well:
        Py_DecRef(t)
        return None
    return t

def turned(t: ptr) -> ptr:
    "Moves a view's address into a copy of its meta, which is a class of slots and nothing else; null with an error."
    if t is None:
        return None
    like = ptr[t + META]
    m = PyType_GenericAlloc(ptr[like + 8], 0)
    if m is None:
        Py_DecRef(t)
        return None
    for k in range(LAZY_SLOTS):
        o = ptr[like + 16 + 8 * k]
        if o is not None:
            put(m, 16 + 8 * k, o)
    ptr[m + LAZY_ADDRESS] = ptr[t + PTR]
    ptr[t + PTR] = None
    ptr[t + META] = m
    Py_DecRef(like)
    return t

def parted(o: ptr) -> ptr:
    "A tensor on the memory of another, with a storage of its own."
    m = ptr[o + META]
    of = ptr[o + STORE]
    if m is None or of is None or ptr[of + KEPT] is None or ptr[of + ADDRESS] is None:
        return None
    s = PyType_GenericAlloc(storage, 0)
    if s is None:
        return None
    put(s, VERSION, zero if tracked(of) else untracked)
    put(s, FREE, nobody)
    put(s, KEPT, ptr[of + KEPT])
    put(s, ADDRESS, ptr[of + ADDRESS])
    put(s, OWNER, of)
    t = shown(m, s, ptr[o + PTR], 0, 0, _Py_NoneStruct)
    Py_DecRef(s)
    return t
"""

# the arguments, the blocks and the results
_RESULTS = """
def read(given: ptr, n: i64, tensors: i64, floats: i64, absent: i64, small: i64, into: ptr) -> i64:
    "The arguments' words: 2 where one is not what it must be, 1 where a tensor among them requires grad, or 0."
    found = 0
    for k in range(n):
        o = ptr[given + 8 * k]
        value = i64(o)
        doubtful = False
        if tensors & 1:
            if not is_tensor(o):
                return 2
            p = ptr[o + PTR]
            node = ptr[o + NODE]
            if p is None or node is None or ptr[p + 8] != PyLong_Type:  # a tensor that is traced has no number there
                return 2
            value = word(p)
            if node != _Py_NoneStruct:
                found = 1
        elif not absent & 1:
            type = ptr[o + 8]
            if floats & 1:
                if type == PyFloat_Type:
                    value = i64[o + 16]
                elif type == PyLong_Type:
                    number = PyLong_AsDouble(o)
                    value = bits(number)
                    doubtful = number == -1.0
                else:
                    return 2
                i64[into + 8 * k] = value
                if small & 1 and not (double[into + 8 * k] >= -65504.0 and double[into + 8 * k] <= 65504.0):
                    return 2
            elif type == PyLong_Type or type == PyBool_Type:
                value = PyLong_AsLongLong(o)
                doubtful = value == -1
                if small & 1 and (value < 0 or value > 127):
                    PyErr_Clear()
                    return 2
            else:
                return 2
        if doubtful and PyErr_Occurred() is not None:
            PyErr_Clear()
            return 2
        i64[into + 8 * k] = value
        tensors = tensors >> 1
        floats = floats >> 1
        absent = absent >> 1
        small = small >> 1
    return found

def writable(given: ptr, n: i64, tensors: i64, which: i64) -> i1:
    "Whether a tensor may be written by a call that nobody records: it has a storage of its own among the arguments, and is no view of what has a history."
    o = ptr[given + 8 * which]
    store = ptr[o + STORE]
    base = ptr[o + BASE]
    if store is None or base is None:
        return False
    for k in range(n):
        if tensors & 1 and k != which and ptr[ptr[given + 8 * k] + STORE] == store:
            return False
        tensors = tensors >> 1
    return base == _Py_NoneStruct or ptr[base + NODE] == _Py_NoneStruct or not records()

def raised(o: ptr, rise: ptr) -> i1:
    "Raises the version of a tensor's storage; 0 with an error."
    store = ptr[o + STORE]
    before = ptr[store + VERSION]
    after = PyNumber_Add(before, rise)
    if after is None:
        return False
    ptr[store + VERSION] = after
    Py_DecRef(before)
    return True

def take(free: ptr, grow: ptr) -> ptr:
    "An address that is taken from a list, or made by a function; null with an error."
    left = i64[free + 16] - 1
    if left < 0:
        return PyObject_CallNoArgs(grow)
    i64[free + 16] = left
    return ptr[ptr[free + 24] + 8 * left]

def give(free: ptr, address: ptr) -> void:
    "Gives back what `take` gave."
    if PyList_Append(free, address) != 0:
        PyErr_Clear()
    Py_DecRef(address)

def block(at: ptr, into: ptr) -> ptr:
    "A block's storage, or the address of one of which no result is made; null with an error."
    free = ptr[at]
    address = take(free, ptr[at + 8])
    if address is None:
        return None
    i64[into] = word(address)
    if ptr[at + 16] is None:
        return address
    s = PyType_GenericAlloc(storage, 0)
    if s is None:
        give(free, address)
        return None
    put(s, VERSION, first_version())
    put(s, FREE, free)
    put(s, KEPT, ptr[at + 16])
    ptr[s + ADDRESS] = address
    return s

def let_go(blocks: ptr, held: ptr, count: i64) -> void:
    for k in range(count):
        if ptr[blocks + 24 * k + 16] is None:
            give(ptr[blocks + 24 * k], ptr[held + 8 * k])
        else:
            Py_DecRef(ptr[held + 8 * k])

def result(at: ptr, given: ptr, bases: ptr, held: ptr, needs: i64) -> ptr:
    "The result that these words say; null with an error, or where the other function is asked."
    what = i64[at]
    m = ptr[at + 8]
    number = i64[at + 16]
    added = i64[at + 24]
    if what == NEW:
        s = ptr[held + 8 * number]
        return shown(m, s, ptr[s + ADDRESS], i64[bases + 8 * (needs + number)], added, _Py_NoneStruct)
    if what == OBJECT:
        Py_IncRef(m)
        return m
    o = ptr[given + 8 * number]
    begin = i64[bases + 8 * number]
    if what == VIEW:
        return viewed(o, m, begin, added, ptr[at + 32])
    if what == TURNED:
        return turned(viewed(o, m, begin, added, ptr[at + 32]))
    if what == DETACHED:
        store = ptr[o + STORE]
        return None if store is None else shown(m, store, ptr[o + PTR], begin, added, _Py_NoneStruct)
    if what == APART:
        return parted(o)
    if what == ON_ARRAY:
        return wrapped(i64[o + 16], m, o)
    if what == ON_BUFFER:
        return on_buffer(o, m, added)
    Py_IncRef(o)
    return o

def gathered(results: ptr, count: i64, how: i64) -> ptr:
    "Several results as they are given; null with an error."
    whole = PyList_New(count) if how == 2 else PyTuple_New(count)
    for k in range(count):
        if whole is None:
            Py_DecRef(ptr[results + 8 * k])
        elif how == 2:
            PyList_SetItem(whole, k, ptr[results + 8 * k])
        else:
            PyTuple_SetItem(whole, k, ptr[results + 8 * k])
    if whole is None or how == 1 or how == 2:
        return whole
    answer = PyObject_CallOneArg(ptr(how), whole)
    Py_DecRef(whole)
    return answer
"""

_CALL = """
def carried_out(words: ptr, given: ptr, n: i64) -> ptr:
    "The results of a call with these words; null with an error, and without one where the other function is asked, before anything is launched but checks."
    needs = i64[words]
    blocks = i64[words + 48]
    length = i64[words + 56]
    count = i64[words + 64]
    gather = i64[words + 72]
    written = i64[words + 80]
    first_block = words + 96
    first_written = first_block + 24 * blocks
    begin = first_written + 16 * written
    end = begin + length
    bases = stack(i64, needs + blocks)
    held = stack(ptr, blocks)
    results = stack(ptr, count)
    if n != needs:
        return None
    tensors = i64[words + 16]
    state = read(given, n, tensors, i64[words + 24], i64[words + 32], i64[words + 88], bases)
    if state == 2 or state == 1 and i64[words + 40] and records():
        return None
    for k in range(written):
        if not writable(given, n, tensors, i64[first_written + 16 * k]):
            return None
    for k in range(blocks):
        new = block(first_block + 24 * k, bases + 8 * (needs + k))
        if new is None:
            let_go(first_block, held, k)
            return None
        ptr[held + 8 * k] = new
    well = length == 0 or steps(begin, end, bases)
    if well:
        for k in range(written):
            at = first_written + 16 * k
            if well and not raised(ptr[given + 8 * i64[at]], ptr[at + 8]):
                well = False
    done = 0
    while well and done < count:
        made_now = result(end + 40 * done, given, bases, held, needs)
        if made_now is None:
            well = False
        else:
            ptr[results + 8 * done] = made_now
            done += 1
    if well:
        let_go(first_block, held, blocks)
        return ptr[results] if gather == 0 else gathered(results, count, gather)
    for k in range(done):
        Py_DecRef(ptr[results + 8 * k])
    let_go(first_block, held, blocks)
    return None

def flambeau_call(self: ptr, given: ptr, n: i64) -> ptr:
    made_now = carried_out(self + DATA, given, n)
    if made_now is not None or PyErr_Occurred() is not None:
        return made_now
    return PyObject_Vectorcall(ptr[self + DATA + 8], given, n, None)
"""
