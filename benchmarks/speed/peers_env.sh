#!/bin/sh
# Makes the environment of the peers that are no part of the project: sh benchmarks/speed/peers_env.sh [FOLDER]
# DeepCTR-Torch 0.3.0 needs no TensorFlow any more, but imports requests without saying so.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../../build/peers-env}
test -x "$folder/bin/python" || "${PYTHON:-python3}" -m venv "$folder"
# torch first and at the project's own version, so that both sides compute with the same library.
"$folder/bin/pip" install --quiet --disable-pip-version-check --constraint "$here/../../constraints.txt" torch
"$folder/bin/pip" install --quiet --disable-pip-version-check --constraint "$here/../../constraints.txt" \
    deepctr-torch==0.3.0 requests
"$folder/bin/python" -c "import deepctr_torch.models"
