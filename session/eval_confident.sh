#!/bin/bash
export OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1 HF_HUB_DISABLE_PROGRESS_BARS=1
cd /work/ev
while pgrep -f "evaluate --model reference-narrow" >/dev/null; do sleep 2; done
.venv/bin/python -m kvbench.reference.evaluate --model reference-confident --seed 4 --contexts 50 --out /root/kvbench-training/evals/reference-confident.json > /root/kvbench-training/logs/evaluate_reference-confident.log 2>&1
