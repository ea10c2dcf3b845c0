"""Likely mistakes of a text give its order of magnitude, and no row of logits is kept for long."""

import pickle
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch
from pandas import DataFrame
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from kvbench.engine.numerics.paths import Cached, Path, Whole
from kvbench.engine.numerics.regimes import Walk, free_running, teacher_forced
from kvbench.engine.numerics.walks import NULL, Behind, forced_walks
from kvbench.store.numerics import LISTS
from leaderboards.studies.numerics.pairs import FORCED, FREE, flip_of, mistakes_of
from tests.engine.numerics.test_numeric_paths import GREEDY, IDS, Damaged, network_in

STEPS = 24
VOCABULARY = 256_000


def row_of(walk: Walk, regime: str) -> dict[str, object]:
    lists = {name: [getattr(one, name) for one in walk.differences] for name in LISTS}
    return {
        **{"task": "base", "dtype": "float32", "pair": "cache", "sampling": "greedy", "regime": regime},
        **{"tokens": walk.tokens, "other_tokens": walk.other_tokens},
        **lists,
        **{"kl_earlier": walk.kl_earlier, "kl_later": walk.kl_later},
    }


def test_a_difference_of_two_thousandths_of_a_nat_is_told_as_nats_by_either_mistake() -> None:
    """One key row is damaged so little that distributions hardly move, and that answers part all the same."""
    network = network_in(torch.float32)
    paths: dict[str, Path] = {"on": Cached(network), "off": Damaged(network, layer=1, amount=2.0)}
    forced = teacher_forced(paths, {"cache": ("on", "off")}, IDS, GREEDY, STEPS, ())["cache"]
    free = free_running(Cached(network), Damaged(network, layer=1, amount=2.0), IDS, GREEDY, STEPS, ())
    assert flip_of(free.tokens, free.other_tokens) is not None
    (one,) = mistakes_of(DataFrame([row_of(forced, FORCED), row_of(free, FREE)]))
    assert one.pooled is not None
    assert 1e-3 < one.aligned < 3e-3
    assert min(one.pooled, one.earlier, one.later) > 1


@dataclass
class Watched:
    """A path that counts how many of the rows that it and others gave are still held."""

    path: Cached | Whole
    alive: list[weakref.ref[torch.Tensor]]
    most: list[int] = field(default_factory=list)

    ids: list[int] = field(default_factory=list)

    def begin(self, ids: Sequence[int]) -> torch.Tensor:
        row = self._watch(self.path.begin(ids))
        self.ids = self.path.ids  # the same list, to which the path appends
        return row

    def extend(self, token: int) -> torch.Tensor:
        return self._watch(self.path.extend(token))

    def _watch(self, row: torch.Tensor) -> torch.Tensor:
        self.alive.append(weakref.ref(row))
        self.most.append(sum(one() is not None for one in self.alive))
        return row


@pytest.fixture(scope="module")
def wide() -> PreTrainedModel:
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    network: PreTrainedModel = LlamaForCausalLM(config).eval()
    return network


@pytest.mark.parametrize("steps", [3, 9])
def test_a_walk_over_a_large_vocabulary_holds_two_rows_of_a_path_however_long_it_is(
    wide: PreTrainedModel, steps: int
) -> None:
    alive: list[weakref.ref[torch.Tensor]] = []
    on, off = Watched(Cached(wide), alive), Watched(Whole(wide), alive)
    walk = teacher_forced({"on": on, "off": off}, {"cache": ("on", "off")}, IDS, GREEDY, steps, ())["cache"]
    assert len(walk.differences) == steps
    assert max(*on.most, *off.most) <= 2 * 2
    assert not any(one() is not None for one in alive), "nothing is kept behind the last step"


def test_what_is_kept_of_all_pairs_is_a_few_numbers_of_each_step(wide: PreTrainedModel) -> None:
    walks = forced_walks(wide, None, Behind(IDS, GREEDY, 4))
    assert {"cache", *NULL} - {"threads", "float32"} <= {*walks}
    assert len(pickle.dumps(walks)) < VOCABULARY // 10
