#!/bin/bash
# keep.sh NAME MODEL [SHAPE]: puts the training's state, the session's files and the branch ship into the history of main, outside of its tree
export OMP_NUM_THREADS=1 HF_HUB_DISABLE_PROGRESS_BARS=1
cd /work/tr && PYTHONPATH=. .venv/bin/python -m kvbench.reference.train --model ${2:-reference} --shape ${3:-full} --work /root/kvbench-training/${1} --keep /work/instrument/training_state || exit 1
cd /work/instrument && git checkout -q --detach && mkdir -p session && cp -r /work/tools/* session/ && git add -A -f training_state session && git commit -qm "Keep the training's state: ${1}, $(grep -o '"step": [0-9]*' training_state/progress.json)" && git rev-parse HEAD
cd /work/main && git fetch -q /work/instrument HEAD && git merge -q -s ours FETCH_HEAD -m "Keep the training's state in the history; no file of main changes"
[ -d /work/ship ] && git fetch -q /work/ship ship && git merge -q -s ours FETCH_HEAD -m "Keep the branch ship (the models to come) in the history; no file of main changes"
git log --oneline | head -4
