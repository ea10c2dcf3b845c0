#!/bin/bash
# because.sh MODEL: the further experiments that docs/claims.md names, on one model
unset PYTHONDONTWRITEBYTECODE; export OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1 HF_HUB_DISABLE_PROGRESS_BARS=1
cd /work/cl; FRESH=unit=value,phase=every_step,persistence=transient; M=$1
r() { .venv/bin/python -m kvbench run --quiet --model $M --seed 7 --limit 24 --context-tokens native --name because-$M-$1 --site /tmp/because-$M-$1 "${@:2}" || echo FAILED $1; }
r f1 --tasks base --repeats 2 --rates 0.02 --policies "gaussian($FRESH),gaussian(std=4,$FRESH),gaussian(std=8,$FRESH),gaussian(std=16,$FRESH),gaussian_matched($FRESH)"
r f2 --tasks base --repeats 2 --rates 0.3 --policies "distractor($FRESH),distractor(tensor=K,$FRESH),distractor(tensor=V,$FRESH),distractor(layers=0-5,$FRESH),distractor(layers=6-11,$FRESH)"
r f3 --tasks base --repeats 2 --rates 0.3 --policies "zeros(tensor=K,$FRESH),zeros(tensor=V,$FRESH),gaussian(layers=Q1,$FRESH),gaussian(layers=Q2,$FRESH),gaussian(layers=Q3,$FRESH),gaussian(layers=Q4,$FRESH)"
r e4 --tasks base --repeats 2 --rates 0.05 --policies "sign_flip(tensor=K),sign_flip(unit=row,tensor=K),same_sign(tensor=K),sign_flip(tensor=V),same_sign(tensor=V)"
r e5 --tasks base --repeats 2 --rates 1 --policies "multiplicative_uniform(low=-1.5,high=1.5),multiplicative_normal(std=0.577),multiplicative_normal(std=0.866)"
r e2 --tasks base --repeats 2 --rates 1 --policies "multiplicative_uniform,multiplicative_uniform(layers=0-5),multiplicative_uniform(layers=6-11),multiplicative_uniform(tensor=K),multiplicative_uniform(tensor=V)"
r p2 --tasks instructions --ratios 0.05,0.1,0.15,0.2,0.25 --policies streaming_llm,snapkv,knorm
