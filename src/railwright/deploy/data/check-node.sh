#!/usr/bin/env bash
# Is this host what the design of @TITLE@ says?
# One line for each thing that is wrong; status 1 if there is any.
# As Prolog and HealthCheckProgram of Slurm, or by hand.  Every figure below is from the design.
set -uo pipefail
@FIGURES@

SYS="${CHECK_NODE_SYS:-/sys/class/infiniband}"
SMI="${CHECK_NODE_SMI:-nvidia-smi}"
bad=0
wrong() { echo "check-node: $*"; bad=1; }
none() { case "$1" in 0 | No | *N/A*) true ;; *) false ;; esac; }
asked="index,pcie.link.width.current,pcie.link.width.max,ecc.errors.uncorrected.volatile.total"
asked="$asked,remapped_rows.pending,remapped_rows.failure"

if [ "$GPUS" -gt 0 ]; then
  if ! command -v "$SMI" >/dev/null; then
    wrong "nvidia-smi is missing: no driver"
  elif ! rows=$(timeout 30 "$SMI" --query-gpu="$asked" --format=csv,noheader,nounits 2>&1); then
    wrong "nvidia-smi fails: $(head -n 1 <<<"$rows")"
  else
    found=$(grep -c . <<<"$rows")
    [ "$found" -eq "$GPUS" ] || wrong "$found GPUs, $GPUS expected"
    while IFS=', ' read -r index width most ecc pending failure; do
      [ "$width" = "$most" ] || wrong "GPU $index: PCIe x$width, x$most expected"
      none "$ecc" || wrong "GPU $index: $ecc uncorrected memory errors since the driver loaded"
      none "$pending" || wrong "GPU $index: memory rows wait to be remapped; reset the GPU"
      none "$failure" || wrong "GPU $index: memory rows cannot be remapped; replace it"
    done <<<"$rows"
    if [ "$NVLINKS" -gt 0 ]; then
      while read -r index up; do
        [ "$up" -eq "$NVLINKS" ] || wrong "GPU $index: $up NVLinks up, $NVLINKS expected"
      done < <(timeout 30 "$SMI" nvlink --status 2>/dev/null | awk '
        /^GPU [0-9]+/ { if (gpu != "") print gpu, n; gpu = $2 + 0; n = 0 }
        /Link [0-9]+: [0-9.]+ GB\/s/ { n++ }
        END { if (gpu != "") print gpu, n }')
    fi
  fi
fi

for adapter in $ADAPTERS; do
  if [ ! -d "$SYS/$adapter" ]; then
    wrong "$adapter: no such adapter"
    continue
  fi
  for port in "$SYS/$adapter"/ports/*; do
    name="$adapter port ${port##*/}"
    state=$(cat "$port/state" 2>/dev/null) || state="unreadable"
    case "$state" in *ACTIVE*) ;; *) wrong "$name: state '$state', ACTIVE expected"; continue ;; esac
    rate=$(cat "$port/rate" 2>/dev/null) || rate="0"
    [ "$(awk '{ print $1 + 0 }' <<<"$rate")" = "$(awk '{ print $1 + 0 }' <<<"$RATE")" ] ||
      wrong "$name: rate '$rate', $RATE Gb/s expected"
    layer=$(cat "$port/link_layer" 2>/dev/null) || layer="$LAYER"
    [ "$layer" = "$LAYER" ] || wrong "$name: $layer, $LAYER expected"
  done
done

exit "$bad"
