#!/usr/bin/env bash
# Stop the private SLURM started by start-slurm.sh: cancels jobs, then ends each daemon by its pid file.
# --purge also deletes the run directory.
set -uo pipefail
RUN=${SLURMLAB_RUN:-${TMPDIR:-/tmp}/vernacular-slurm}
export SLURM_CONF="$RUN/slurm.conf"
alive() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }
if alive "$RUN/slurmctld.pid"; then
  ids=$(timeout 5 squeue -h -t PD,R,CF,CG -o %A 2>/dev/null | tr '\n' ' ')
  [ -n "$ids" ] && timeout 10 scancel $ids
  for _ in $(seq 50); do [ -z "$(timeout 5 squeue -h -t R,CG -o %A 2>/dev/null)" ] && break; sleep 0.1; done
fi
for p in "$RUN/slurmd.pid" "$RUN/slurmctld.pid" "$RUN/munge/munged.pid"; do alive "$p" && kill "$(cat "$p")"; done   # TERM all at once
for p in "$RUN/slurmd.pid" "$RUN/slurmctld.pid" "$RUN/munge/munged.pid"; do
  if alive "$p"; then
    pid=$(cat "$p")
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -0 "$pid" 2>/dev/null && { echo "stop-slurm: $p ($pid) ignored TERM, killing" >&2; kill -9 "$pid"; }
  fi
  rm -f "$p"
done
[ "$(readlink /etc/slurm/slurm.conf 2>/dev/null)" = "$RUN/slurm.conf" ] && rm -f /etc/slurm/slurm.conf
[ "${1:-}" = --purge ] && rm -rf "$RUN"
echo "stop-slurm: stopped" >&2
exit 0

