"""AdaKV: one budget for a layer, shared out among its heads by score. It masks and frees no memory."""

from kvpress import AdaKVPress

from policies.kvpress_scorers import snapkv_arguments, snapkv_press
from policies.policy import Policy

ADAKV_SNAPKV = Policy(
    name="adakv_snapkv",
    family="head-wise",
    paper="arXiv 2407.11550",
    description="SnapKV's scores, the budget shared among the heads of a layer",
    build=lambda situation: AdaKVPress(snapkv_press(situation)),
    ratio_free_score=True,
    arguments=lambda context_length: {
        **snapkv_arguments(context_length),
        "alpha_safeguard": AdaKVPress.alpha_safeguard,
    },
)
