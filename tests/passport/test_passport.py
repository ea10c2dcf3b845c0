"""The passport of a cache tells what breaks: on numbers counted by hand, and on models into which a
wide channel was put."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
import torch
from rich.console import Console

from kvbench.experiments.catalogue import find_policy
from kvbench.models.load import LoadedModel
from kvbench.passport.facts import describe_layer, step_shares
from kvbench.passport.forecast import FORMATS, MOST_MOVED, FormatForecast, forecast, list_mends
from kvbench.passport.pages import publish_passport
from kvbench.passport.passport import count_percent, make_passport, read_states
from kvbench.passport.probe import LayerStates, read_text
from kvbench.passport.shifts import measure_shifts
from kvbench.passport.tables import formats_table, layers_text, outcomes_table
from kvbench.passport.trial import FormatOutcome, judge
from leaderboards.statistics.bootstrap import Estimate
from tests.support.models.runs import CommandLine
from tests.support.models.toy import HEAD_SIZE, model_of, toy_model

WIDE = 150.0  # in the bias of one key channel, as in the first layers of Qwen2.5


def layer(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, window: int | None = None
) -> LayerStates:
    return LayerStates(0, queries, keys, values, 1.0, window, 0.0)


def drawn(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def with_wide_channel() -> LoadedModel:
    """A toy Qwen 2 with a wide number in the bias of a key channel of each layer: the one that
    turns most slowly with the position, as those of Qwen2.5 are."""
    model = toy_model("qwen2")
    with torch.no_grad():
        for each in model.network.model.layers:
            each.self_attn.k_proj.bias[HEAD_SIZE // 2 - 1] = WIDE
    return model


def test_attention_is_counted_by_hand_and_sees_no_later_token() -> None:
    keys = torch.tensor([[[1.0], [0.0], [0.0]]])
    states = layer(torch.full((1, 2, 1), float(torch.log(torch.tensor(2.0)))), keys, keys)
    weights = states.attention(keys)
    assert torch.allclose(weights[0, 0], torch.tensor([2 / 3, 1 / 3, 0.0]))
    assert torch.allclose(weights[0, 1], torch.tensor([0.5, 0.25, 0.25]))
    assert torch.allclose(states.output(weights, keys)[0, 1], torch.tensor([0.5]))
    sliding = layer(states.queries, keys, keys, window=2).attention(keys)
    assert sliding[0, 1].tolist() == [0.0, 0.5, 0.5]


def test_query_heads_look_at_the_keys_that_they_share() -> None:
    keys, queries = drawn(2, 6, 4), drawn(4, 3, 4, seed=4)
    weights = layer(queries, keys, keys).attention(keys)
    alone = layer(queries[2:3], keys[1:], keys[1:]).attention(keys[1:])
    assert torch.allclose(weights[2], alone[0])


def test_a_channel_that_varies_less_than_a_step_of_its_block_is_below_it() -> None:
    """A block of 32 channels with a magnitude of 80 has steps of 10."""
    keys = torch.zeros(1, 4, 32)
    keys[..., 0] = 80.0
    keys[0, :, 1] = torch.tensor([0.0, 1.0, 0.0, 1.0])
    keys[0, :, 2] = torch.tensor([20.0, -20.0, 20.0, -20.0])
    shares = step_shares(layer(drawn(1, 1, 32), keys, keys))[0]
    assert shares[1] == pytest.approx(float(keys[0, :, 1].std()) / 10)
    assert shares[2] == pytest.approx(float(keys[0, :, 2].std()) / 10)
    assert shares[1] < 1 < shares[2]
    assert shares[0] == 0


def test_facts_tell_what_was_put_into_a_layer() -> None:
    keys, values = drawn(1, 40, 32), drawn(1, 40, 32, seed=5)
    keys[..., 7] += 100
    keys[:, 0] *= 0.1
    facts = describe_layer(layer(drawn(2, 6, 32, seed=6), keys, values))
    assert facts.outlier_channels == 1
    assert facts.key_magnitude == pytest.approx(float(keys.abs().max()))
    assert facts.sink_norm == pytest.approx(0.1, abs=0.02)
    assert facts.below_step > 0.9
    assert 0 <= facts.sink_attention <= 1
    assert len(facts.channel_steps) == 32


def test_ranks_follow_the_attention() -> None:
    """Keys along one direction: the longer, the more attention; against it, the less."""
    direction = torch.zeros(16)
    direction[0] = 1.0
    keys = (torch.linspace(1, 2, 30)[:, None] * direction)[None]
    towards = describe_layer(layer(direction.expand(1, 1, 16), keys, keys))
    away = describe_layer(layer(-direction.expand(1, 1, 16), keys, keys))
    assert towards.norm_rank == pytest.approx(1.0)
    assert away.norm_rank == pytest.approx(-1.0)


def test_reading_a_text_leaves_the_tokenizer_as_it_was() -> None:
    """A tokenizer that goes on to truncate cuts the contexts of every run behind it."""
    model = model_of("llama")
    read_text(model, "one two three four five six " * 30, 64, 8)
    assert model.tokenizer.backend_tokenizer.truncation is None
    assert len(model.tokenizer.backend_tokenizer.encode("one two " * 60).ids) > 100


def test_rows_are_treated_as_the_format_itself_treats_them() -> None:
    model = model_of("llama")
    states = read_text(model, "one two three four five six " * 30, 64, 8)
    assert [each.tokens for each in states] == [64] * len(states)
    shifts = measure_shifts(find_policy("q4_0(tensor=K)"), states)
    kind = find_policy("q4_0(tensor=K)").treatment.step_treatment
    assert kind
    for each, shift in zip(states, shifts, strict=True):
        context = each.keys[:, :56]
        assert shift.value_error == 0
        blocks = context.unflatten(-1, (-1, 32))
        largest = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True))
        steps = -largest / 8
        read = (blocks / steps).round().clamp(-8, 7) * steps
        error = float((read - blocks).norm() / blocks.norm())
        assert shift.key_error == pytest.approx(error, rel=1e-3)
        assert 0 < shift.moved < 1


def test_more_bits_move_less() -> None:
    states = read_states(model_of("llama"))
    moved = []
    for name in ("int8", "int4", "int3", "int2"):
        moved.append(forecast(find_policy(name), states).moved)
    assert moved == sorted(moved)
    assert len(set(moved)) == 4


def test_a_wide_channel_is_foretold_to_break_formats_by_token_alone() -> None:
    """The cause is in the model: without the bias the same formats hold."""
    wide, plain = read_states(with_wide_channel()), read_states(model_of("qwen2"))
    for states in (wide, plain):
        assert not forecast(find_policy("int8"), states).breaks
    by_token = find_policy("q4_0")
    assert forecast(by_token, wide).moved > 2 * forecast(by_token, plain).moved
    by_channel = find_policy("int4(residual=0)")
    assert forecast(by_channel, wide).moved < forecast(by_token, wide).moved / 2
    assert describe_layer(wide[0]).key_bias == WIDE
    assert describe_layer(wide[0]).below_step > describe_layer(plain[0]).below_step


def foretold(name: str, layers: tuple[int, ...] = ()) -> FormatForecast:
    return FormatForecast(name, True, 0.5, layers, 0.0, 0.0, 0.0)


def test_mends_are_formats_that_there_are() -> None:
    names = list_mends(foretold("q4_0", (0, 1, 8)), 24)
    assert names == [
        "q8_0(values=q4_0)",
        "int4",
        "q4_0(layers=2-)",
        "q4_0(rotate=hadamard)",
        "q4_0(layers=2-,rotate=hadamard)",
    ]
    for name in FORMATS:
        for mend in list_mends(foretold(name, (0,)), 24):
            assert find_policy(mend).family == "quantisation"
    assert "q4_0(layers" not in " ".join(list_mends(foretold("q4_0", (3, 4)), 24))


def test_bytes_are_percents_of_sixteen_bits() -> None:
    states = read_states(model_of("llama"))
    assert count_percent(find_policy("q8_0"), states) == pytest.approx(100 * 34 / 64)
    assert count_percent(find_policy("fp8_e4m3"), states) == pytest.approx(50)
    half = count_percent(find_policy("q8_0(layers=1-)"), states)
    assert half == pytest.approx(50 + 50 * 34 / 64)


def answers(policy: str, right: list[bool], nll: float) -> pd.DataFrame:
    rows = []
    for number, is_right in enumerate(right):
        rows.append(
            {
                "task": "base",
                "question_id": f"q{number}",
                "draw_id": f"c{number // 2}",
                "policy": policy,
                "right": is_right,
                "gold_nll": nll,
            }
        )
    return pd.DataFrame(rows)


def test_outcomes_are_counted_question_by_question() -> None:
    frame = pd.concat(
        [
            answers("full", [True, True, True, False], 1.0),
            answers("q4_0", [True, False, False, True], 1.5),
            answers("q8_0", [True, True, True, False], 1.0),
        ]
    )
    broken, sound = judge(frame)
    assert (broken.format, broken.right, broken.full) == ("q4_0", 50.0, 75.0)
    assert broken.lost.mean == 25.0
    assert broken.broke
    assert broken.perplexity == pytest.approx(1.6487, abs=1e-3)
    assert (sound.lost.mean, sound.broke, sound.perplexity) == (0.0, False, 1.0)


def test_a_loss_has_an_interval_with_width_where_no_answer_differs() -> None:
    """Six contexts that agree show no more than that few others differ."""
    right = [True] * 12
    (outcome,) = judge(pd.concat([answers("full", right, 1.0), answers("q8_0", right, 1.0)]))
    low, high = outcome.lost.interval or (0, 0)
    assert low < -10
    assert high > 10


def test_in_80_columns_each_format_stands_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """With the longest names, layers and mends that a passport has."""
    mends = ("int8(values=int4(k_axis=token))", "int4", "int4(k_axis=token,rotate=hadamard)")
    forecasts, outcomes, held = [], {}, {}
    for name in FORMATS:
        layers = tuple(range(0, 24, 2))
        forecasts.append(FormatForecast(name, True, 0.56, layers, 0.5, 0.5, 0.5, mends))
        lost = Estimate(100.0, None, None, 8)
        outcomes[name] = FormatOutcome(name, 0.0, 100.0, lost, 123.45, 8)
        held[name] = 28.0
    for made in (formats_table(forecasts, held), outcomes_table(forecasts, outcomes)):
        Console(width=80).print(made)
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80
        first_words = [line.split(" ")[0] for line in lines if line]
        for name in FORMATS:
            assert name in first_words, made.name


def test_layers_are_written_as_runs() -> None:
    assert layers_text([0, 1, 2, 5]) == "0-2, 5"
    assert layers_text([]) == ""


def test_a_page_says_which_forecasts_were_wrong(tmp_path: Path) -> None:
    passport = make_passport(model_of("llama"), ["q8_0", "int2(k_axis=token)"])
    outcomes = {}
    for each in passport.forecasts:
        lost = Estimate(50.0 if each.format == "q8_0" else 0.0, None, None, 8)
        outcomes[each.format] = FormatOutcome(each.format, 40.0, 90.0, lost, 1.2, 8)
    wrong = 2 - sum(outcomes[each.format].broke == each.breaks for each in passport.forecasts)
    tested = type(passport)(**{**vars(passport), "outcomes": outcomes, "tasks": ["base"]})
    files = publish_passport(tested, tmp_path / "site")
    page = files["page"].read_text()
    assert f"{2 - wrong} of 2 forecasts came true" in page
    assert page.count("no: it broke") + page.count("no: it held") == wrong
    assert page.count('<path class="') == 3
    content = json.loads(files["passport"].read_text())
    assert content["outcomes"]["q8_0"]["lost"]["mean"] == 50.0
    assert [each["format"] for each in content["forecasts"]] == ["q8_0", "int2(k_axis=token)"]


def test_the_command_prints_and_writes_a_passport(cli: CommandLine, tmp_path: Path) -> None:
    site = tmp_path / "site/passport"
    words = ("doctor", "--model", cli.model, "--kv", "--site", site)
    assert cli(*words, "--json") == 0
    result = json.loads(cli.out)
    assert [row["format"] for row in result["tables"]["formats"]] == list(FORMATS)
    assert len(result["tables"]["layers"]) == 2
    holding = [row for row in result["tables"]["formats"] if row["forecast"] == "holds"]
    assert result["verdict"].startswith(f"{len(holding)} of {len(FORMATS)} formats")
    assert all(row["moved"] <= MOST_MOVED for row in holding)
    assert re.search("<h1>Passport of the cache", (site / "passport.html").read_text())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--test",), "--test goes with --kv"),
        (("--site", "x"), "--site goes with --kv"),
        (("--kv", "--tasks", "base"), "--kv chooses its questions"),
        (("--kv", "--site", "site"), "holds the list of all runs"),
        (("snapkv", "--kv"), "--kv is for a model alone"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    cli: CommandLine, words: tuple[str, ...], said: str
) -> None:
    assert cli("doctor", *words) == 1
    assert said in cli.err
