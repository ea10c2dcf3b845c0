"""Presses that remove something else than tokens of every layer: whole layers' middles, or channels of the keys."""

from policies.declaration.lazy import LazyModule
from policies.declaration.policy import Press, Situation
from policies.eviction.scorers import LONGEST_WINDOW, SINK, observation_window
from policies.eviction.wrappers import wrapper

kvpress = LazyModule("kvpress")

LONGEST_THINK = 32


def _think(ratio: float, context_length: int) -> Press:
    return kvpress.ThinKPress(2 * ratio, window_size=min(LONGEST_THINK, observation_window(context_length)))


def _simlayerkv(situation: Situation) -> Press:
    """Sets a threshold: 1 compresses nothing, 0 every layer."""
    recent = observation_window(situation.context_length)
    return kvpress.SimLayerKVPress(lazy_threshold=1 - situation.ratio, n_recent=recent + 1, n_initial=SINK)


def _compose_with_think(situation: Situation) -> Press:
    """Composes two presses, each of which removes as large a share of what it is given."""
    each = 1 - (1 - situation.ratio) ** 0.5
    length = situation.context_length
    return kvpress.ComposedPress(
        [kvpress.SnapKVPress(each, window_size=observation_window(length)), _think(each, length)]
    )


LAYERS_AND_CHANNELS = (
    wrapper(
        name="simlayerkv",
        paper="arXiv 2410.13846",
        description="The first and last tokens alone, in some layers",
        build=_simlayerkv,
        budget="the ratio sets how lazy a layer has to be; what comes of it differs",
        counted="nowhere",
        more_tokens_than=16,
        paper_arguments={"n_recent": 1024},
    ),
    wrapper(
        name="think",
        paper="arXiv 2407.21018",
        description="All tokens, the weakest key channels blanked",
        build=lambda situation: _think(situation.ratio, situation.context_length),
        budget="channels of the keys, of which all are half of the cache",
        counted="nowhere",
        frees=False,
        rewrites=True,
        highest_ratio=0.49,
        paper_arguments={"window_size": LONGEST_THINK},
    ),
    wrapper(
        name="composed_snapkv_think",
        paper="arXiv 2407.21018",
        description="SnapKV, then ThinK on what it keeps",
        build=_compose_with_think,
        budget="tokens and channels, as large a share of either",
        counted="nowhere",
        rewrites=True,
        prefill="private",
        highest_ratio=0.74,
        paper_arguments={"presses.0.window_size": LONGEST_WINDOW, "presses.1.window_size": LONGEST_THINK},
    ),
)
