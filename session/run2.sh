#!/bin/bash
# run2.sh NAME [ARGS]: as run.sh, with two processes, a core each
TREE=${TREE:-/work/tr}; NAME=$1; shift
cd $TREE || exit 1
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
mkdir -p /root/kvbench-training/logs
PYTHONPATH=. setsid nohup nice -n 10 .venv/bin/torchrun --nproc-per-node 2 -m kvbench.reference.train --work /root/kvbench-training/$NAME \
  --out /root/kvbench-training/$NAME/model --state /root/kvbench-training/training_state "$@" \
  >> /root/kvbench-training/logs/$NAME.log 2>&1 &
echo $! > /root/kvbench-training/$NAME.pid
# sched_autogroup: nice counts inside of a session only, so that the sessions of the processes are made nice themselves
sleep 12; for p in $(pgrep -f kvbench.reference.train); do echo 5 > /proc/$p/autogroup; done
