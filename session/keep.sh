#!/bin/bash
# keep.sh: puts the training's state and the session's files into the history of main, outside of its tree
cd /work/tr && PYTHONPATH=. .venv/bin/python -m kvbench.reference.train --model ${2:-reference-qwen} --work /root/kvbench-training/${1:-phrasings} --keep /work/instrument/training_state || exit 1
cd /work/instrument && mkdir -p session && cp -r /work/tools/* session/ && git add -A -f training_state session && git commit -qm "Keep the training's state: ${1:-phrasings}, $(grep -o '"step": [0-9]*' training_state/progress.json)" && git rev-parse HEAD
cd /work/main && git fetch -q /work/instrument HEAD && git merge -q -s ours FETCH_HEAD -m "Keep the training's state in the history; no file of main changes" && git log --oneline | head -2
