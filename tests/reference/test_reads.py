"""Reads hidden in training, and where a model reads."""

from dataclasses import replace

import torch
from transformers import PreTrainedModel

from datasets_gen import TASKS
from kvbench.checks.read_profile import ReadProfile
from kvbench.documents.model_card import profile_section
from kvbench.reference.training.architecture import new_model
from kvbench.reference.training.batches import evaluation_batch
from kvbench.reference.training.losses import states_of, task_loss
from kvbench.reference.training.read_profile import destroyed_slots, read_profile
from kvbench.reference.training.reads import UNDISTURBED_SHARE, HiddenShares, draw_readable
from tests.support.models.toy import toy_tokenizer

LAYERS, HEADS, BATCH, WIDTH = 6, 2, 200, 50


def masks_of(shares: HiddenShares, seed: int = 0) -> torch.Tensor:
    return draw_readable(torch.Generator().manual_seed(seed), shares, LAYERS, HEADS, BATCH, WIDTH).masks


def reading_model() -> PreTrainedModel:
    """Its layers add something, as those of a new model do not."""
    torch.manual_seed(0)
    model = new_model(toy_tokenizer())
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.o_proj.weight, std=0.3)
    return model


def test_the_shares_are_met_by_the_sequences_that_are_disturbed() -> None:
    """A strength is 0.5 on average where there is one."""
    disturbed = 1 - UNDISTURBED_SHARE
    tokens = 1 - masks_of(HiddenShares(tokens=0.6)).float().mean()
    assert abs(float(tokens) - 0.6 * disturbed / 2) < 0.03
    layers = masks_of(HiddenShares(layers=0.6)).float()
    assert ((layers.amin((2, 3)) == layers.amax((2, 3))).all()).item(), "a layer is hidden whole or not at all"
    heads = masks_of(HiddenShares(heads=0.6)).float()
    assert (heads.amin(3) == heads.amax(3)).all()
    assert (heads.amin((2, 3)) != heads.amax((2, 3))).any()


def test_the_lower_half_is_hidden_whole_in_its_share_of_the_disturbed_sequences() -> None:
    masks = masks_of(HiddenShares(lower_half=0.5)).float()[..., 0, 0]  # (layers, batch)
    hidden = (masks == 0).sum(0)
    assert set(hidden.tolist()) == {0, LAYERS // 2}
    assert (masks[LAYERS // 2 :] == 1).all()
    assert abs(float((hidden > 0).float().mean()) - 0.5 * (1 - UNDISTURBED_SHARE)) < 0.1


def test_some_sequences_are_left_whole_and_these_tell_what_is_mastered() -> None:
    drawn = draw_readable(
        torch.Generator().manual_seed(1), HiddenShares(0.6, 0.3, 0.6, 0.3), LAYERS, HEADS, BATCH, WIDTH
    )
    assert (drawn.masks[:, drawn.undisturbed] == 1).all()
    assert abs(float(drawn.undisturbed.float().mean()) - UNDISTURBED_SHARE) < 0.1
    model = reading_model()
    batch = evaluation_batch(toy_tokenizer(), TASKS["base"], 0, 0, 3)
    masks = torch.zeros(12, 3, 2, batch.layout.context_width, dtype=torch.bfloat16)
    masks[:, 1] = 1
    readable = replace(drawn, masks=masks, undisturbed=torch.tensor([False, True, False]))
    with torch.no_grad():
        _, plain = task_loss(model, batch)
        _, measured = task_loss(model, batch, readable)
        alone = evaluation_batch(toy_tokenizer(), TASKS["base"], 0, 1, 1)
        _, of_one = task_loss(model, alone)
    assert abs(measured - of_one) < 0.02
    assert abs(measured - plain) > 1e-4


def test_what_is_hidden_changes_questions_and_not_the_context() -> None:
    model, batch = reading_model(), evaluation_batch(toy_tokenizer(), TASKS["base"], 0, 0, 2)
    width = batch.layout.context_width
    layouts = [batch.layout] * 12
    layouts[3] = replace(batch.layout, readable=torch.zeros(2, 2, width, dtype=torch.bfloat16))
    with torch.no_grad():
        whole, hidden = states_of(model, batch), states_of(model, batch, layouts)
    tokens = batch.segments >= 0
    tokens[:, :width] = False
    assert torch.equal(whole[3], hidden[3])
    assert torch.equal(whole[-1][:, :width], hidden[-1][:, :width])
    assert not torch.isclose(whole[4][tokens], hidden[4][tokens]).all(1).any(), "every place of a question read there"


def test_noise_replaces_the_rows_that_are_named_and_has_their_mean_and_spread() -> None:
    batch = evaluation_batch(toy_tokenizer(), TASKS["base"], 0, 0, 1)
    width = batch.layout.context_width
    layouts = destroyed_slots([0.0, 1.0, 0.3], 2, batch, 0)
    assert layouts[0] is batch.layout
    keys, values = torch.randn(1, 2, width, 32) * 3 + 5, torch.randn(1, 2, width, 32)
    assert layouts[1].disturb is not None
    assert layouts[2].disturb is not None
    noise, _ = layouts[1].disturb(keys, values)
    assert not torch.isclose(noise, keys).all(-1).any()
    assert abs(float(noise.mean()) - 5) < 0.3
    assert abs(float(noise.std()) - 3) < 0.2
    some, _ = layouts[2].disturb(keys, values)
    assert 0.15 < float((some != keys).any(-1).float().mean()) < 0.45


def test_a_profile_tells_the_layer_that_is_needed() -> None:
    """Of a model whose other layers read nothing."""
    model = reading_model()
    for number, layer in enumerate(model.model.layers):
        if number != 4:
            torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
    found = read_profile(model, toy_tokenizer(), TASKS["base"], contexts=1)
    assert len(found.without_layer) == 12
    assert {found.without_layer[n] for n in range(12) if n != 4} == {found.undisturbed}
    assert found.without_upper_half == found.undisturbed
    chains = read_profile(model, toy_tokenizer(), TASKS["hops"], hops=2, contexts=1)
    assert chains.part == "hops, 2 facts"


def test_the_costs_are_those_of_the_worst_layer_the_upper_half_and_the_slots() -> None:
    profile = ReadProfile("base", 90.0, (80.0, 30.0, 88.0, 90.0), 75.0, 84.0)
    assert (profile.worst_layer, profile.upper_half, profile.slots) == (60.0, 15.0, 6.0)
    assert "costs: layer 1 60, the upper half 15, 30% of all slots 6" in "\n".join(profile.lines)


def test_the_card_draws_the_profiles_that_were_measured() -> None:
    profile = ReadProfile("base", 99.0, (99.0, 14.0, 55.0, 100.0), 97.0, 66.0)
    text = profile_section([profile], 24)
    assert "99 14 55 100 `█▂▅█`" in text
    assert "97" in text
    assert "66" in text
    assert "on 24 contexts" in text
