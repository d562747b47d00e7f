"""Writes docs/reference.md: every environment variable, every GPU that can be simulated, and every flag of the command line.

Models and flags are read from the program.  What a variable is for stands here, in `VARIABLES`; which variables the program reads is found in its
source, and both must agree.  `--check` writes nothing and fails where the page is old.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference.md"

# name: (without it, what it does)
VARIABLES: dict[str, tuple[str, str]] = {
    "FLAMBEAU_SIM_GPUS": ("no simulated GPU", "How many GPUs are simulated. 0 also hides real ones."),
    "FLAMBEAU_SIM_MODEL": ("H200", "Which GPU is simulated: a name of the table below, or a model file (`.toml`)."),
    "FLAMBEAU_SIM_MEMORY": ("the model's", "The memory of each simulated GPU, such as `8GiB`. Small sizes help to test what happens when it is full."),
    "FLAMBEAU_SIM_QUEUE": ("eager", "When simulated GPUs do their work. `eager`: at once, in threads. `lazy`: when something waits for it. "
                                    "`random`: in an order drawn from the seed, to find missing waits."),
    "FLAMBEAU_SIM_NETWORK": ("NDR", "What joins simulated machines, for predicted times: `XDR`, `NDR`, `HDR`, `EDR`, `100GbE`, `25GbE`, `10GbE`, or gigabits a "
                                    "second for each GPU."),
    "FLAMBEAU_SIM_NODE": ("as many as really run on one", "How many ranks a simulated machine has, for predicted times."),
    "FLAMBEAU_SIM_SEED": ("0", "The seed of `FLAMBEAU_SIM_QUEUE=random`."),
    "FLAMBEAU_NUM_THREADS": ("all CPUs", "How many threads compute on the CPU."),
    "FLAMBEAU_KERNELS": ("llvm", "`llvm`: kernels are machine code. `interpret`: NumPy does their work, slowly; for finding out whether a kernel is wrong."),
    "FLAMBEAU_CPU": ("this CPU", "The CPU that kernels are made for, by LLVM's name."),
    "FLAMBEAU_CACHE_DIR": ("`flambeau` in the user's cache folder", "Where compiled kernels are kept."),
    "FLAMBEAU_WARM": ("once a version", "Whether the first program that makes kernels has those of usual programs made behind it, by processes of the lowest "
                                        "priority. 0: never. 1: in tests and CI, among ranks, in batch jobs and with `FLAMBEAU_CACHE_DIR` too."),
    "FLAMBEAU_ONEDNN": ("the package onednn-cpu-gomp", "A file of the oneDNN library, or nothing to use none."),
    "FLAMBEAU_PROVENANCE": ("0", "1: each tensor remembers the line that made it, and errors name that line."),
    "FLAMBEAU_LEDGER": ("0", "1: prints at the end what moved between devices, by line."),
    "FLAMBEAU_SMI": ("0", "1: tells `flambeau smi` once a second what this program holds, and for which lines."),
    "FLAMBEAU_TRACEBACK": ("short", "`full`: `flambeau run` shows the frames inside Flambeau too."),
    "FLAMBEAU_TORCHVISION": ("Flambeau's own", "`installed`: `flambeau run` takes the torchvision that is installed."),
    "FLAMBEAU_DISTRIBUTED_CHECK": ("1", "0: ranks do not check that all of them call the same collective."),
    "FLAMBEAU_AGENT": ("", "Set by `flambeau run --nproc` for the processes that it starts."),
    "FLAMBEAU_PARENT": ("", "Set by `flambeau run` under an MPI launcher for the process that it starts."),
    "FLAMBEAU_OUTCOMES": ("", "Set by `pytest --flambeau` for the run beside PyTorch: the file for the outcomes."),
    "CUDA_VISIBLE_DEVICES": ("all", "Which GPUs a program sees, real or simulated, by number or UUID."),
    "CUDA_LAUNCH_BLOCKING": ("0", "1: the host waits for each launch on a GPU, so an error comes at its own line."),
    "PYTORCH_CUDA_ALLOC_CONF": ("", "`backend:native` or `backend:cudaMallocAsync`: where a real GPU's memory comes from."),
    "PYTORCH_ALLOC_CONF": ("", "The newer name of the same."),
    "OMP_NUM_THREADS": ("all CPUs", "How many threads compute on the CPU, unless `FLAMBEAU_NUM_THREADS` says it."),
    "OMP_WAIT_POLICY": ("passive", "Whether the threads of oneDNN wait busily."),
    "TORCH_HOME": ("`torch` in the user's cache folder", "Where `hub` keeps what it loads."),
    "XDG_CACHE_HOME": ("`~/.cache`", "The user's cache folder."),
    "PYTHONPATH": ("", "`flambeau run` adds a folder to it, so that child processes find the same `torch`."),
    "RANK": ("", "The number of this process among all; set by a launcher."),
    "LOCAL_RANK": ("", "The number of this process on its machine; set by a launcher."),
    "LOCAL_WORLD_SIZE": ("", "How many processes run on this machine; set by a launcher."),
    "WORLD_SIZE": ("", "How many processes there are; set by a launcher."),
    "MASTER_ADDR": ("", "The machine where the processes meet; set by a launcher."),
    "MASTER_PORT": ("", "The port where the processes meet; set by a launcher."),
    "GROUP_RANK": ("", "The number of this process's machine; set by a launcher."),
    "GROUP_WORLD_SIZE": ("", "How many machines there are; set by a launcher."),
    "ROLE_NAME": ("", "`default`; set by a launcher, as torchrun does."),
    "ROLE_RANK": ("", "The same as `RANK`; set by a launcher."),
    "ROLE_WORLD_SIZE": ("", "The same as `WORLD_SIZE`; set by a launcher."),
    "TORCHELASTIC_RUN_ID": ("", "Set by a launcher; `torch.distributed.is_torchelastic_launched` asks for it."),
    "TORCHELASTIC_RESTART_COUNT": ("0", "How often the processes were started again after a failure; set by a launcher."),
    "TORCHELASTIC_MAX_RESTARTS": ("", "How often they may be; set by a launcher."),
    "TORCHELASTIC_USE_AGENT_STORE": ("", "`True`: the launcher has the store where the processes meet; set by a launcher."),
    "PMI_RANK": ("", "The number of this process among all; set by mpiexec, and by Flambeau for MPI where another launcher started the processes."),
    "PMI_SIZE": ("", "How many processes there are; set as `PMI_RANK` is."),
    "PMI_FD": ("", "The open file by which MPI's processes meet; set as `PMI_RANK` is."),
    "PMIX_RANK": ("", "The number of this process among all; set by launchers such as Slurm's."),
    "OMPI_COMM_WORLD_RANK": ("", "The number of this process among all; set by the mpiexec of Open MPI."),
    "SLURM_JOB_ID": ("", "Set in a job of Slurm, where nothing is made behind a program unless `FLAMBEAU_WARM` is 1."),
    "PBS_JOBID": ("", "The same for PBS."),
    "LSB_JOBID": ("", "The same for LSF."),
    "CI": ("", "The same for CI."),
    "PYTEST_VERSION": ("", "The same for tests; set by pytest."),
    "OPENBLAS_CORETYPE": ("this CPU", "The CPU that OpenBLAS takes its kernels for. An older one than yours makes products slow: `flambeau info` shows it."),
}
_NAME = re.compile(r"[A-Z][A-Z0-9]+(_[A-Z0-9]+)*")
_OURS = re.compile(r"FLAMBEAU_([A-Z]+_)*[A-Z]+")
# words in capitals that are something else: one that code for GPUs is written with, the ends of FLAMBEAU_SIM_..., what the system and a GPU are asked
_NO_VARIABLES = {
    "FLAMBEAU_NAME", "VARIABLE", "GPUS", "MODEL", "MEMORY", "QUEUE", "NETWORK", "NODE", "SEED", "H200", "NDR", "CPU", "MPI", "NCCL", "OS", "SC_PAGE_SIZE",
    "SC_PHYS_PAGES", "SCHED_IDLE", "COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "INTEGRATED", "L2_CACHE_SIZE", "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "MAX_SHARED_MEMORY_PER_BLOCK", "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR", "MAX_THREADS_PER_MULTIPROCESSOR",
    "MULTIPROCESSOR_COUNT", "MULTI_GPU_BOARD", "PCI_BUS_ID", "PCI_DEVICE_ID", "PCI_DOMAIN_ID", "WARP_SIZE"}


def read() -> set[str]:
    """The variables that the program's source may read or set by name: all words FLAMBEAU_..., and where a file names `os.environ` all words in capitals,
    by whatever way they get there, but for `_NO_VARIABLES`."""
    found = set()
    for path in sorted((ROOT / "flambeau").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        pattern = _NAME if "environ" in text else _OURS
        if "environ" not in text and "FLAMBEAU_" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            word = node.value if isinstance(node, ast.Constant) else node.arg if isinstance(node, ast.keyword) else None
            if isinstance(word, str) and pattern.fullmatch(word):
                found.add(word)
    return found - _NO_VARIABLES


def page() -> str:
    """The page's text."""
    lines = ["# Reference", "", "This page is made by `python tools/reference.py` from the program itself.", "", "## Environment variables", "",
             "| variable | without it | what it does |", "|---|---|---|"]
    lines += [f"| `{name}` | {default} | {text} |" for name, (default, text) in VARIABLES.items()]
    return "\n".join([*lines, "", *_models(), "", *_flags()]) + "\n"


def _models() -> list[str]:
    from flambeau._core.drivers.simulated.models import MODELS
    lines = ["## GPUs that can be simulated", "", "Case, spaces and hyphens in a name do not matter. `flambeau.simulate(model=...)`, `--sim-model` and "
             "`FLAMBEAU_SIM_MODEL` take these names. Rates are the makers' figures. Predicted times follow from "
             "what an H100 reaches of its own, as published ([how near they are](predictions.md)); a model file of "
             "`python -m flambeau.simulated.calibrate`, named by its path, has what was measured on the GPU at hand.", "",
             "| name | in full | memory | GB/s | TFLOP/s: float64, float32, TF32, 16 bits | PCIe, NVLink (GB/s) | reaches other GPUs |",
             "|---|---|---|---|---|---|---|"]
    for m in MODELS.values():
        rates = ", ".join(f"{r:g}" for r in (m.float64, m.float32, m.tf32, m.half))
        links = f"{m.pcie:g}, {m.nvlink:g}" if m.nvlink else f"{m.pcie:g}, none"
        lines.append(f"| `{m.name}` | {m.full_name} | {m.memory_mib / 1024:.1f} GiB | {m.bandwidth:g} | {rates} | {links} | {'yes' if m.peer else 'no'} |")
    return lines


def _flags() -> list[str]:
    from flambeau.cli import parser
    lines = ["## The command line", "", "`python -m flambeau` is the same as `flambeau`."]
    commands = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    helps = {a.dest: a.help for a in commands._choices_actions}
    for name, sub in commands.choices.items():
        lines += ["", f"### flambeau {name}", "", f"{str(helps[name])[0].upper()}{str(helps[name])[1:]}.", "", "| flag | what it does |", "|---|---|"]
        for action in sub._actions:
            value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
            shown = ", ".join(f"`{flag}{value}`" for flag in action.option_strings) or f"`{action.dest}`"
            lines.append(f"| {shown} | {(action.help or '').replace('|', chr(92) + '|')} |")
    return lines


def main(arguments: list[str]) -> int:
    """Writes the page, or checks it."""
    if arguments == ["--check"]:
        untold = sorted(read() - set(VARIABLES))
        if untold:
            print(f"reference: nobody tells of {', '.join(untold)}: add to VARIABLES in tools/reference.py", file=sys.stderr)
            return 1
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != page():
            print("reference: docs/reference.md is old: run `make generated`", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
