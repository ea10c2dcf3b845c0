#!/bin/bash
# chain3.sh: waits for reference3, then reference-confident and reference-small, one after the other; each resumes
cd /work/tr
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_DISABLE_PROGRESS_BARS=1 PYTHONPATH=.
K=/root/kvbench-training
one() { NAME=$1; shift
  setsid nice -n 10 .venv/bin/torchrun --nproc-per-node 2 -m kvbench.reference.train --work $K/$NAME --out $K/$NAME/model "$@" >> $K/logs/$NAME.log 2>&1 &
  P=$!; sleep 15; for p in $(pgrep -f kvbench.reference.train); do echo ${AUTOGROUP:--11} > /proc/$p/autogroup; done; wait $P; }
while pgrep -f kvbench.reference.train > /dev/null; do sleep 2; done
one confident3 --model reference --from $K/reference3 --seed 5 --confident --steps 300 --fall 300
one small --model reference-qwen --shape small --widened reference-qwen --seed 6 --steps ${SMALL_STEPS:-2400} --fall 800
