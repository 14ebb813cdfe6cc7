#!/usr/bin/env bash
# Start a private SLURM on loopback, without systemd: a controller and a few pretended nodes, each with one pretended
# GPU, so that one can be lost while the others work. Everything lives under $SLURMLAB_RUN but for one symlink,
# /etc/slurm/slurm.conf. A second call returns at once when the cluster already answers; what a run that was aborted has
# left behind is ended and taken over. Needs Debian: slurmctld slurmd slurm-client munge.
#   eval "$(./start-slurm.sh)"       # exports SLURM_CONF; messages go to stderr
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
RUN=${SLURMLAB_RUN:-${TMPDIR:-/tmp}/vernacular-slurm}
NODES=${SLURMLAB_NODES:-4}          # slurmd daemons, each a node of 8 CPUs and 1 GPU
CPUS=8                              # may be more than there are (config_overrides), as may the memory:
MEM_MB=20000
CTLD_PORT=${SLURMLAB_CTLD_PORT:-16817}
SLURMD_PORT=${SLURMLAB_SLURMD_PORT:-16818}  # the first node's; the others' follow
WAIT_S=${SLURMLAB_WAIT_S:-60}
ETC=/etc/slurm/slurm.conf
export SLURM_CONF="$RUN/slurm.conf"
export SLURMLAB_OF="$RUN"           # a mark: stop-slurm.sh ends every process that carries it
say() { echo "start-slurm: $*" >&2; }
alive() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }
names() { seq -f 'lab%.0f' -s "${1:- }" 1 "$NODES"; }
all_alive() { alive "$RUN/slurmctld.pid" || return 1; for n in $(names); do alive "$RUN/slurmd-$n.pid" || return 1; done; }
# whether a daemon has ended; one that has not written its PID file yet is starting
any_dead() { for f in "$RUN"/slurmctld.pid "$RUN"/slurmd-*.pid; do [ -s "$f" ] && ! alive "$f" && return 0; done; return 1; }
ready() { [ "$(timeout 10 sinfo -h -N -p gpu -o %T 2>/dev/null | grep -cE '^(idle|mixed|allocated)$')" = "$NODES" ]; }

for b in munged slurmctld slurmd sbatch squeue; do
  command -v "$b" >/dev/null || { say "missing '$b': apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge"; exit 3; }
done
[ "$(id -u)" = 0 ] || { say "must run as root (slurmd launches steps as the job's user)"; exit 3; }

if all_alive && ready; then
  say "already running"; echo "export SLURM_CONF=$SLURM_CONF"; exit 0
fi

# The default path must lead here too: snakemake's slurm-jobstep plugin (0.6.1) strips SLURM_CONF (every SLURM_* but a
# few) from the environment of the inner srun.
old=$(readlink "$ETC" || true)
if [ -e "$ETC" ] && { [ -z "$old" ] || ! grep -qx 'ClusterName=slurmlab' "$ETC"; }; then
  say "$ETC exists and is not ours: refusing to replace it"; exit 4
fi
if [ -n "$old" ] && [ "$old" != "$RUN/slurm.conf" ]; then
  before=$(dirname "$old")
  # whoever started it holds owner.lock as long as he lives; without that file it was started by hand
  if alive "$before/slurmctld.pid" && { [ ! -e "$before/owner.lock" ] || ! flock --nonblock "$before/owner.lock" true; }; then
    say "another one is running, of $before: SLURMLAB_RUN=$before $HERE/stop-slurm.sh stops it"; exit 4
  fi
  say "ending what an aborted run left in $before"
  SLURMLAB_RUN="$before" "$HERE/stop-slurm.sh"
fi

mkdir -p "$RUN"/{state,spool,log,munge,dev} /etc/slurm
chmod 0755 "$RUN" "$RUN/munge"
ln -sfn "$RUN/slurm.conf" "$ETC"
[ -s "$RUN/munge/munge.key" ] || (umask 077; head -c 128 /dev/urandom > "$RUN/munge/munge.key")
chmod 0400 "$RUN/munge/munge.key"

cat > "$RUN/slurm.conf" <<CONF
ClusterName=slurmlab
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$CTLD_PORT
SrunPortRange=60001-60999
# bind to the named (loopback) address, never to 0.0.0.0
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$RUN/munge/munge.sock
CredType=cred/munge
StateSaveLocation=$RUN/state
SlurmdSpoolDir=$RUN/spool/%n
SlurmctldPidFile=$RUN/slurmctld.pid
SlurmdPidFile=$RUN/slurmd-%n.pid
SlurmctldLogFile=$RUN/log/slurmctld.log
SlurmdLogFile=$RUN/log/slurmd-%n.log
# no cgroups, no affinity
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
# sample memory once a second and end a job over its --mem (no cgroup needed)
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
# generous: the machine may be busy with other things
MessageTimeout=60
SlurmdTimeout=300
SlurmctldTimeout=60
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$RUN/log/jobcomp.txt
DefMemPerCPU=200
NodeName=$(names ,) NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$(seq -s , "$SLURMD_PORT" $((SLURMD_PORT + NODES - 1))) CPUs=$CPUS Boards=1 SocketsPerBoard=1 CoresPerSocket=$CPUS ThreadsPerCore=1 RealMemory=$MEM_MB Gres=gpu:1 State=UNKNOWN
PartitionName=cpu Nodes=ALL Default=YES MaxTime=1-00:00:00 DefaultTime=10 State=UP
PartitionName=gpu Nodes=ALL Default=NO MaxTime=1-00:00:00 DefaultTime=10 State=UP
CONF
# Pretended GPUs: gres/gpu insists on one File per device (a bare Count is reported as 0 and the node goes INVAL). A copy
# of /dev/null (c 1 3) makes CUDA_VISIBLE_DEVICES appear in jobs; where mknod is not allowed a plain empty file still
# schedules, but then CUDA_VISIBLE_DEVICES is not set.
: > "$RUN/gres.conf"
for n in $(names); do
  [ -e "$RUN/dev/$n" ] || mknod "$RUN/dev/$n" c 1 3 2>/dev/null || : > "$RUN/dev/$n"
  echo "NodeName=$n Name=gpu File=$RUN/dev/$n Flags=nvidia_gpu_env" >> "$RUN/gres.conf"
done

t0=$(date +%s.%N)
if ! alive "$RUN/munge/munged.pid"; then
  rm -f "$RUN/munge/munge.sock"*
  munged --force --key-file="$RUN/munge/munge.key" --socket="$RUN/munge/munge.sock" \
         --pid-file="$RUN/munge/munged.pid" --log-file="$RUN/munge/munged.log" \
         --seed-file="$RUN/munge/munged.seed" --num-threads=2 2>>"$RUN/log/munged.start.log"
fi
alive "$RUN/slurmctld.pid" || { rm -f "$RUN/slurmctld.pid"; slurmctld -f "$RUN/slurm.conf" >>"$RUN/log/start.log" 2>&1; }
for n in $(names); do
  mkdir -p "$RUN/spool/$n"
  alive "$RUN/slurmd-$n.pid" || { rm -f "$RUN/slurmd-$n.pid"; slurmd -f "$RUN/slurm.conf" -N "$n" >>"$RUN/log/start.log" 2>&1; }
done
deadline=$(( $(date +%s) + WAIT_S ))
until ready; do
  if [ "$(date +%s)" -ge "$deadline" ] || any_dead; then
    say "not ready (a daemon died, or ${WAIT_S}s passed)"; grep -hE 'fatal|Setting node' "$RUN"/log/*.log >&2 || true
    sinfo -Nl >&2 || true
    for log in "$RUN"/log/*.log; do echo "== $log"; tail -n 15 "$log"; done >&2
    SLURMLAB_RUN="$RUN" "$HERE/stop-slurm.sh"; exit 1
  fi
  sleep 0.1
done
say "up in $(awk -v a="$t0" -v b="$(date +%s.%N)" 'BEGIN{printf "%.2f", b-a}') s ($NODES nodes of $CPUS cpus, 1 gpu, $MEM_MB MB)"
echo "export SLURM_CONF=$SLURM_CONF"
