#!/bin/bash
# after_claims.sh: default runs at both lengths, reasons of verdicts, routing suites, after the claims of the two main models
export OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1 HF_HUB_DISABLE_PROGRESS_BARS=1
cd /work/cl; L=/root/kvbench-training/logs
w() { while pgrep -f "kvbench claims --model $1( |\$)" >/dev/null; do sleep 3; done; }
run() { local n=$1; shift; /usr/bin/time -f "%U+%S CPU s, %e s" .venv/bin/python -m kvbench run --quiet --name $n --site /tmp/site-$n "$@" > $L/run_$n.log 2>&1; }
( w reference; run default; run default-confident --model reference-confident --tasks base,long_context; run default-native --context-tokens native; /work/tools/because.sh reference > $L/because_reference.log 2>&1; run routing-reference --suite routing --limit 12 ) &
( w reference-qwen; sleep 5; /work/tools/because.sh reference-qwen > $L/because_qwen.log 2>&1; run routing-qwen --suite routing --limit 12 --model reference-qwen; run default-narrow --model reference-narrow ) &
wait
