#!/bin/bash
# claims.sh: the rest of the claims, reasons of verdicts, routing suites; N last. Resumes by the runs that are there
unset PYTHONDONTWRITEBYTECODE
export OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1 HF_HUB_DISABLE_PROGRESS_BARS=1
cd /work/cl; L=/root/kvbench-training/logs
k() { local log=$1; shift; /usr/bin/time -f "%U+%S CPU s, %e s" .venv/bin/python -m kvbench claims "$@" > $L/claims_$log.log 2>&1; }
run() { local n=$1; shift; /usr/bin/time -f "%U+%S CPU s, %e s" .venv/bin/python -m kvbench run --quiet --name $n --site /tmp/site-$n "$@" > $L/run_$n.log 2>&1; }
w() { while pgrep -f "kvbench $1( |\$)" >/dev/null; do sleep 2; done; }
( w "claims --model reference --only E,F,P,R"; /work/tools/because.sh reference > $L/because_reference.log 2>&1; run routing-reference --suite routing --limit 12; k confident --model reference-confident --only E,F,P,R; k N_reference --model reference --only N ) &
( /work/tools/because.sh reference-qwen > $L/because_qwen.log 2>&1; k small --model reference-small --larger reference-qwen --only F5,R9; k narrow --model reference-narrow --only R; run routing-qwen --suite routing --limit 12 --model reference-qwen; k N_qwen --model reference-qwen --only N ) &
wait
