#!/usr/bin/env bash
# GPUs in containers of Docker or containerd: NVIDIA Container Toolkit (its repository must be set up before).
set -euo pipefail
apt-get install -y nvidia-container-toolkit
for runtime in docker containerd; do
  if systemctl is-active --quiet "$runtime"; then
    nvidia-ctk runtime configure --runtime="$runtime"
    systemctl restart "$runtime"
  fi
done
nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml
