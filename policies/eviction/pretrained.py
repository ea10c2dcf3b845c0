"""Presses that need something learned or measured for the model beforehand, which has to be
downloaded."""

from policies.declaration.lazy import kvpress
from policies.declaration.policy import Needs, Policy
from policies.declaration.shape import EVERY_LAYER, NOT_GEMMA, ONE_ROTATION
from policies.eviction.private_prefill import dms, dms_press, over_the_cache
from policies.eviction.scorers import SINK, expected_attention_press, scorer

PRETRAINED = (
    scorer(
        name="qfilter",
        paper="arXiv 2503.02812",
        description="Keys along a learned direction of each head",
        build=lambda situation: kvpress.QFilterPress(situation.ratio),
        ratio_free_score=True,
        needs=Needs(weights="its Q-filters (hub: nthngdy)"),
    ),
    scorer(
        name="expected_attention_stats",
        paper="arXiv 2510.00636",
        description="Attention expected from queries of other texts",
        build=lambda situation: kvpress.ExpectedAttentionStatsPress(situation.ratio, n_sink=SINK),
        needs=Needs(
            check_model=ONE_ROTATION,
            more_tokens_than=SINK,
            weights="the statistics of its queries (hub: alessiodevoto)",
        ),
        ratio_free_score=True,
    ),
    # kvpress has KVzap score for a DMSPress, whose threshold is set for the ratio as with K-norm.
    dms(
        name="kvzap",
        paper="arXiv 2601.07891",
        description="KVzip's scores, predicted from the hidden states",
        build=lambda situation: dms_press(kvpress.KVzapPress(), situation),
        needs=Needs(weights="its KVzap predictor (hub: nvidia)"),
    ),
    over_the_cache(
        name="fastkvzip",
        paper="arXiv 2601.17668",
        description="KVzip's scores, predicted by gates",
        build=lambda situation: kvpress.FastKVzipPress(situation.ratio, n_sink=SINK),
        needs=Needs(check_model=EVERY_LAYER, weights="its gates (hub: Jang-Hyun/Fast-KVzip)"),
    ),
    Policy(
        name="lukv",
        family="wrapper",
        paper="arXiv 2602.08585",
        description="Expected attention, budgets of heads as measured",
        build=lambda situation: kvpress.LUKVPress(
            expected_attention_press(situation), compression_ratio=situation.ratio
        ),
        needs=Needs(
            check_model=ONE_ROTATION,
            more_tokens_than=SINK,
            weights="its budget curve (github: baidu-baige/LU-KV)",
        ),
        budget="a share for each head, from the curve",
        counted="nowhere",
        frees=False,
    ),
    over_the_cache(
        name="restorekv",
        paper="arXiv 2608.01247",
        description="KVzip, with learned tokens that restore some of it",
        build=lambda situation: kvpress.RestoreKVPress(situation.ratio, n_sink=SINK),
        needs=Needs(
            check_model=NOT_GEMMA,
            more_tokens_than=16,
            weights="its restore tokens and adapter (hub: higokri)",
        ),
        rewrites=True,
        renumbers=True,
    ),
)
