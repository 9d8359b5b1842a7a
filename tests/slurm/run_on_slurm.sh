#!/bin/bash
# Run six tiny runs and a tiny search as job arrays on a real Slurm: controller and node on this machine, started and
# stopped here.
#
#   PYTHON=.venv/bin/python tests/slurm/run_on_slurm.sh six_runs     (as root, Debian or Ubuntu; 5 to 8 minutes)
#   PYTHON=.venv/bin/python tests/slurm/run_on_slurm.sh search       (3 to 6 minutes)
#
# Needs no cgroups and no accounting. Everything is kept in a new folder below /tmp, which is removed at the end.
# All processes run where this script runs: start it under taskset to leave cores to others.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$(realpath -s "${PYTHON:-python3}")
[ $# -gt 0 ] || set -- six_runs search
[ "$(id -u)" = 0 ] || { echo "run_on_slurm: must be root, to start the daemons" >&2; exit 2; }
command -v slurmctld >/dev/null && command -v munged >/dev/null ||
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends slurm-wlm munge >/dev/null

work=$(mktemp -d /tmp/slurm-XXXXXX)
chmod 755 "$work"
pids=()
stop() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap stop EXIT

mkdir "$work"/{munge,state,spool}
chown munge:munge "$work/munge"
dd if=/dev/urandom of="$work/munge/key" bs=128 count=1 status=none
chown munge:munge "$work/munge/key"
chmod 600 "$work/munge/key"
runuser -u munge -- munged --foreground --force --key-file "$work/munge/key" --socket "$work/munge/socket" \
    --pid-file "$work/munge/pid" --seed-file "$work/munge/seed" --log-file "$work/munge/log" 2>/dev/null &
pids+=($!)

host=$(hostname -s)
cat >"$work/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
SlurmUser=root
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait=15
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=$host CPUs=2 State=UNKNOWN
PartitionName=test Nodes=$host Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=$host MaxTime=INFINITE State=UP PriorityTier=2
CONF
export SLURM_CONF="$work/slurm.conf"
sleep 1
slurmctld -D >"$work/slurmctld.log" 2>&1 &
pids+=($!)
slurmd -D >"$work/slurmd.log" 2>&1 &
pids+=($!)
for _ in $(seq 60); do
    sinfo --noheader --format=%T 2>/dev/null | grep -q idle && break
    sleep 1
done
sinfo --noheader --format='partition %P, node %T, %c CPUs' || { tail "$work"/slurm*.log >&2; exit 1; }
for program in "$@"; do
    "$python" -m tests.slurm.cluster "$program" "$work/$program"
done
