#!/bin/bash
# evals.sh: the full-cache scores of the five models, two at once; resumes with what is missing
export OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1 HF_HUB_DISABLE_PROGRESS_BARS=1
cd /work/ev; mkdir -p /root/kvbench-training/evals
one() { o=/root/kvbench-training/evals/$1.json; [ -f $o ] || .venv/bin/python -m kvbench.reference.evaluate --model $1 --seed 4 --contexts 50 --out $o > /root/kvbench-training/logs/evaluate_$1.log 2>&1; }
( one reference; one reference-small ) &
( one reference-qwen; one reference-narrow ) &
wait
