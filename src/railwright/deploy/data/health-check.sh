#!/usr/bin/env bash
# HealthCheckProgram: a host that fails is drained with the reason.  Whoever repairs it resumes it.
set -uo pipefail
if ! wrong=$(/etc/slurm/check-node.sh 2>&1); then
  scontrol update nodename="$(hostname -s)" state=DRAIN reason="$(head -n 1 <<<"$wrong")"
fi
