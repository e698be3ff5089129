#!/usr/bin/env bash
# jupyter.sh: Jupyter on this machine@HOW@.
set -euo pipefail
: "${CUDA_VISIBLE_DEVICES?no GPU is yours: see gpu-masks.sh, or start through gpuq}"
echo "From your own machine:  ssh -L 8888:localhost:8888 $(hostname -s)"
exec jupyter lab --no-browser --ip=localhost --port=8888 --ServerApp.port_retries=50
