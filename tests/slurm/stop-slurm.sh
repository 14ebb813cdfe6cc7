#!/usr/bin/env bash
# Stop the private SLURM started by start-slurm.sh and everything that ran in it: cancels jobs, ends each daemon by its
# pid file, then whatever still carries its mark (jobs of a lost node, daemons whose pid file is gone).
# --purge also deletes the run directory.
set -uo pipefail
RUN=${SLURMLAB_RUN:-${TMPDIR:-/tmp}/vernacular-slurm}
# this script must not carry the mark itself, nor anything it starts
[ -z "${SLURMLAB_OF:-}" ] || exec env -u SLURMLAB_OF SLURMLAB_RUN="$RUN" "$0" "$@"
export SLURM_CONF="$RUN/slurm.conf"
alive() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }
# a slurmstepd writes its name over its environment, but holds its node's log open
left() {
  grep -lzxF "SLURMLAB_OF=$RUN" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3
  for comm in $(grep -lx slurmstepd /proc/[0-9]*/comm 2>/dev/null); do
    pid=$(cut -d/ -f3 <<< "$comm")
    [[ "$(readlink /proc/"$pid"/fd/* 2>/dev/null)" == *"$RUN/"* ]] && echo "$pid"
  done
}

if alive "$RUN/slurmctld.pid"; then
  ids=$(timeout 5 squeue -h -t PD,R,CF,CG -o %A 2>/dev/null | tr '\n' ' ')
  [ -n "$ids" ] && timeout 10 scancel $ids
  for _ in $(seq 50); do [ -z "$(timeout 5 squeue -h -t R,CG -o %A 2>/dev/null)" ] && break; sleep 0.1; done
fi
pids=("$RUN"/slurmd-*.pid "$RUN/slurmctld.pid" "$RUN/munge/munged.pid")
for p in "${pids[@]}"; do alive "$p" && kill "$(cat "$p")"; done   # TERM all at once
for p in "${pids[@]}"; do
  if alive "$p"; then
    pid=$(cat "$p")
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -0 "$pid" 2>/dev/null && { echo "stop-slurm: $p ($pid) ignored TERM, killing" >&2; kill -9 "$pid"; }
  fi
  rm -f "$p"
done
for _ in 1 2 3; do pids=$(left); [ -n "$pids" ] && kill -9 $pids 2>/dev/null && sleep 0.2; done
[ "$(readlink /etc/slurm/slurm.conf 2>/dev/null)" = "$RUN/slurm.conf" ] && rm -f /etc/slurm/slurm.conf
[ "${1:-}" = --purge ] && rm -rf "$RUN"
echo "stop-slurm: stopped" >&2
exit 0
