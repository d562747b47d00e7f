#!/bin/sh
# Slurm on this machine alone, for as long as it takes to start ranks by it: munged, slurmctld and slurmd with files of their own in a temporary
# folder.  Two ranks by environment variables made from Slurm's, two by Slurm's PMI-2, which MPICH speaks; then a rank that is killed.
#
#     make test-slurm          needs root, and Debian's slurmctld, slurmd, slurm-client and munge; skipped, with what is lacking, elsewhere
set -u
python=${1:-python3}
here=$(cd "$(dirname "$0")/.." && pwd)
skip() { echo "test-slurm: skipped, because $1"; exit 0; }
[ "$(id -u)" = 0 ] || skip "only root may run Slurm's daemons"
for program in munged mungekey slurmctld slurmd srun scontrol; do
    command -v "$program" > /dev/null || skip "there is no $program here (Debian: apt-get install slurmctld slurmd slurm-client munge)"
done
"$python" -c 'import mpi4py' 2> /dev/null || skip "$python has no mpi4py"

work=$(mktemp -d /tmp/flambeau-slurm-XXXXXX)
chmod 755 "$work"
name=$(hostname -s)
pids=
end() {
    scontrol shutdown > /dev/null 2>&1
    sleep 1
    for pid in $pids $(cat "$work"/*.pid 2> /dev/null); do kill "$pid" 2> /dev/null; done
    rm -rf "$work"
}
trap end EXIT

mkdir -m 700 "$work/munge" "$work/state" "$work/spool"
chmod 755 "$work/munge"
mungekey -c -k "$work/munge/key" && chmod 400 "$work/munge/key"
munged --force --foreground --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/munged.pid" --log-file="$work/munge/log" \
    --seed-file="$work/munge/seed" &
pids="$pids $!"
export SLURM_CONF="$work/slurm.conf"
cat > "$SLURM_CONF" << END
ClusterName=here
SlurmctldHost=$name(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
SlurmctldPort=16817
SlurmdPort=16818
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=3
NodeName=$name NodeAddr=127.0.0.1 CPUs=4 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=$name Default=YES State=UP OverSubscribe=YES
END
printf 'CgroupAutomount=no\n' > "$work/cgroup.conf"
slurmctld -D > /dev/null 2>&1 &
pids="$pids $!"
slurmd -D > /dev/null 2>&1 &
pids="$pids $!"
tries=0
until sinfo -h -o %T 2> /dev/null | grep -q idle; do
    tries=$((tries + 1))
    [ $tries -lt 120 ] || { echo "test-slurm: failed: no node came up"; tail -n 20 "$work"/*.log; exit 1; }
    sleep 0.5
done

export PYTHONPATH="$here"
cat > "$work/sum.py" << 'END'
import os, sys
if sys.argv[1:] == ["environment"]:  # as scripts that Slurm starts do it
    for name in [n for n in os.environ if n.startswith("PMI")]:
        del os.environ[name]
    os.environ.update(RANK=os.environ["SLURM_PROCID"], WORLD_SIZE=os.environ["SLURM_NTASKS"], LOCAL_RANK=os.environ["SLURM_LOCALID"], MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(20000 + int(os.environ["SLURM_JOB_ID"]) % 10000))
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(x)
print(f"sum {x.tolist()} of {dist.get_world_size()}", flush=True)
if sys.argv[1:] == ["killed"] and dist.get_rank() == 1:
    os.kill(os.getpid(), 9)
if sys.argv[1:] == ["killed"]:
    try:
        dist.all_reduce(x)
    except dist.DistBackendError as error:
        print("told:", error, flush=True)
END
failed=0
check() { # check NAME COUNT TEXT: the text as often in what srun wrote
    found=$(grep -c -F "$3" "$work/out")
    if [ "$found" = "$2" ]; then echo "test-slurm: $1: as it should be"; else echo "test-slurm: $1: $found times, not $2: $3"; cat "$work/out"; failed=1; fi
}
srun -n 2 --mpi=none "$python" -m flambeau run "$work/sum.py" environment > "$work/out" 2>&1
check "ranks by environment variables" 2 "sum [3.0, 3.0, 3.0] of 2"
srun -n 2 --mpi=pmi2 "$python" -m flambeau run "$work/sum.py" > "$work/out" 2>&1
check "ranks by PMI-2" 2 "sum [3.0, 3.0, 3.0] of 2"
begun=$(date +%s)
srun -n 2 --mpi=pmi2 --kill-on-bad-exit=0 "$python" -m flambeau run "$work/sum.py" killed > "$work/out" 2>&1
check "a rank that is killed" 1 "told: rank 1 is gone: it died"
[ $(($(date +%s) - begun)) -lt 60 ] || { echo "test-slurm: a killed rank took a minute"; failed=1; }
exit $failed
