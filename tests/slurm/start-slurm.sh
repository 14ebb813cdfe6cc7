#!/usr/bin/env bash
# Start a private, single-node SLURM on loopback, without systemd: everything lives under
# $SLURMLAB_RUN but for one symlink, /etc/slurm/slurm.conf. Idempotent: a second call returns
# at once when the cluster already answers. Needs Debian: slurmctld slurmd slurm-client munge.
#   eval "$(./start-slurm.sh)"       # exports SLURM_CONF; messages go to stderr
set -euo pipefail
RUN=${SLURMLAB_RUN:-${TMPDIR:-/tmp}/vernacular-slurm}
CPUS=${SLURMLAB_CPUS:-8}            # virtual CPUs (config_overrides lets this exceed nproc)
GPUS=${SLURMLAB_GPUS:-2}            # fake gpu GRES
CTLD_PORT=${SLURMLAB_CTLD_PORT:-16817}
SLURMD_PORT=${SLURMLAB_SLURMD_PORT:-16818}
WAIT_S=${SLURMLAB_WAIT_S:-30}
NODE=$(hostname -s)
MEM_MB=${SLURMLAB_MEM_MB:-$(( $(awk '/^MemTotal/{print $2}' /proc/meminfo) / 1024 * 9 / 10 ))}
export SLURM_CONF="$RUN/slurm.conf"
say() { echo "start-slurm: $*" >&2; }
alive() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }
ready() { [[ "$(timeout 5 sinfo -h -N -p gpu -o %T 2>/dev/null | head -1)" =~ ^(idle|mixed|allocated)$ ]]; }

for b in munged slurmctld slurmd sbatch squeue; do
  command -v "$b" >/dev/null || { say "missing '$b': apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge"; exit 3; }
done
[ "$(id -u)" = 0 ] || { say "must run as root (slurmd launches steps as the job's user)"; exit 3; }

if alive "$RUN/slurmctld.pid" && alive "$RUN/slurmd.pid" && ready; then
  say "already running"; echo "export SLURM_CONF=$SLURM_CONF"; exit 0
fi

mkdir -p "$RUN"/{state,spool,log,munge}
chmod 0755 "$RUN"; chmod 0755 "$RUN/munge"
[ -s "$RUN/munge/munge.key" ] || (umask 077; head -c 128 /dev/urandom > "$RUN/munge/munge.key")
chmod 0400 "$RUN/munge/munge.key"

cat > "$RUN/slurm.conf" <<CONF
ClusterName=slurmlab
SlurmctldHost=$NODE(127.0.0.1)
SlurmctldPort=$CTLD_PORT
SlurmdPort=$SLURMD_PORT
SrunPortRange=60001-60999
# bind to the named (loopback) address, never to 0.0.0.0
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$RUN/munge/munge.sock
CredType=cred/munge
StateSaveLocation=$RUN/state
SlurmdSpoolDir=$RUN/spool
SlurmctldPidFile=$RUN/slurmctld.pid
SlurmdPidFile=$RUN/slurmd.pid
SlurmctldLogFile=$RUN/log/slurmctld.log
SlurmdLogFile=$RUN/log/slurmd.log
# no cgroups, no affinity
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
# sample memory once a second and end a job over its --mem (no cgroup needed): state OUT_OF_MEMORY
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
# declared CPUs may exceed the real ones
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0,bf_interval=1,defer_batch=0
GresTypes=gpu
# squeue must still show finished jobs when snakemake polls (>= 3 x init-seconds-before-status-checks)
MinJobAge=300
KillWait=5
OverTimeLimit=0
InactiveLimit=0
SlurmdTimeout=60
SlurmctldTimeout=30
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$RUN/log/jobcomp.txt
DefMemPerCPU=200
NodeName=$NODE NodeAddr=127.0.0.1 CPUs=$CPUS Boards=1 SocketsPerBoard=1 CoresPerSocket=$CPUS ThreadsPerCore=1 RealMemory=$MEM_MB Gres=gpu:$GPUS State=UNKNOWN
PartitionName=cpu Nodes=$NODE Default=YES MaxTime=1-00:00:00 DefaultTime=10 State=UP
PartitionName=gpu Nodes=$NODE Default=NO MaxTime=1-00:00:00 DefaultTime=10 State=UP
CONF
# Fake GPUs: gres/gpu insists on one File per device (a bare Count is reported as 0 and the node
# goes INVAL). A copy of /dev/null (c 1 3) makes CUDA_VISIBLE_DEVICES appear in jobs; where mknod is
# not allowed a plain empty file still schedules, but then CUDA_VISIBLE_DEVICES is not set.
mkdir -p "$RUN/dev"
for i in $(seq 0 $((GPUS-1))); do
  [ -e "$RUN/dev/fakegpu$i" ] || mknod "$RUN/dev/fakegpu$i" c 1 3 2>/dev/null || : > "$RUN/dev/fakegpu$i"
done
GPUFILES="$RUN/dev/fakegpu0"; [ "$GPUS" -gt 1 ] && GPUFILES="$RUN/dev/fakegpu[0-$((GPUS-1))]"
echo "NodeName=$NODE Name=gpu File=$GPUFILES Flags=nvidia_gpu_env" > "$RUN/gres.conf"

# The default path must lead here too: snakemake's slurm-jobstep plugin (0.6.1) strips SLURM_CONF
# (every SLURM_* but a few) from the environment of the inner srun.
ETC=/etc/slurm/slurm.conf
if [ -e "$ETC" ] && [ "$(readlink -f "$ETC")" != "$(readlink -f "$RUN/slurm.conf")" ]; then
  say "$ETC exists and is not ours: refusing to replace it"; exit 4
fi
mkdir -p /etc/slurm; ln -sfn "$RUN/slurm.conf" "$ETC"

t0=$(date +%s.%N)
if ! alive "$RUN/munge/munged.pid"; then
  rm -f "$RUN/munge/munge.sock"*
  munged --force --key-file="$RUN/munge/munge.key" --socket="$RUN/munge/munge.sock" \
         --pid-file="$RUN/munge/munged.pid" --log-file="$RUN/munge/munged.log" \
         --seed-file="$RUN/munge/munged.seed" --num-threads=2 2>>"$RUN/log/munged.start.log"
fi
alive "$RUN/slurmctld.pid" || slurmctld -f "$RUN/slurm.conf" >>"$RUN/log/start.log" 2>&1
alive "$RUN/slurmd.pid"    || slurmd -f "$RUN/slurm.conf" -N "$NODE" >>"$RUN/log/start.log" 2>&1
deadline=$(( $(date +%s) + WAIT_S ))
until ready; do
  if [ "$(date +%s)" -ge "$deadline" ] || ! alive "$RUN/slurmctld.pid" || ! alive "$RUN/slurmd.pid"; then
    say "not ready (a daemon died, or ${WAIT_S}s passed)"; grep -hE 'fatal|Setting node' "$RUN"/log/*.log >&2 || true
    sinfo -Nl >&2 || true
    tail -n 15 "$RUN"/log/*.log >&2 || true; exit 1
  fi
  sleep 0.1
done
say "up in $(awk -v a="$t0" -v b="$(date +%s.%N)" 'BEGIN{printf "%.2f", b-a}') s ($CPUS cpus, $GPUS gpus, $MEM_MB MB)"
echo "export SLURM_CONF=$SLURM_CONF"

