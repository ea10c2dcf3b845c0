"""The pretended device refuses what CUDA refuses and takes what CUDA takes: else the tests beside
this one show nothing."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from kvbench.engine.decode import bundle
from kvbench.engine.treat import keep
from policies import POLICIES
from tests.support.models import pretended_cuda as pretended
from tests.support.models.pretended_cuda import pretended_cuda
from tests.support.models.toy import LAYERS, ActingScorer, answers, pressing, toy_prompt, treat
from tests.support.models.where import on_card, on_host

Work = Callable[[torch.Tensor], object]


def ones(device: str = "cpu") -> torch.Tensor:
    return torch.ones(4, device=device)


REFUSED: dict[str, Work] = {
    "a sum with a tensor of the host": lambda here: here + ones(),
    "a mask of the host": lambda here: here.masked_fill(ones().bool(), 0.0),
    "an index of the host for gather": lambda here: here.gather(0, torch.arange(4)),
    "an index of the host for index_select": lambda here: here.index_select(0, torch.arange(4)),
    "rows written from the host": lambda here: here.index_put(
        (torch.arange(4, device="cuda"),), ones()
    ),
    "a tensor of the host inside of attention": lambda here: (
        torch.nn.functional.scaled_dot_product_attention(
            here.view(1, 1, 4), here.view(1, 1, 4), ones().view(1, 1, 4)
        )
    ),
    "numpy": lambda here: here.numpy(),
    "a draw from a generator of the host": lambda here: torch.rand(
        4, device="cuda", generator=torch.Generator()
    ),
    "a tensor of the device written into one of the host": lambda here: ones().add_(here),
}
TAKEN: dict[str, Work] = {
    "a number of the host": lambda here: here + torch.tensor(1.0),
    "rows by an index of the host": lambda here: here[torch.tensor([1, 0, 2, 3])],
    "rows by a mask of the host": lambda here: here[ones().bool()],
    "rows written by an index of the host": lambda here: here.index_put(
        (torch.arange(4),), torch.tensor(1.0)
    ),
    "a move to the host and back": lambda here: here.cpu().to("cuda"),
    "a copy into a tensor of the device": lambda here: here.clone().copy_(ones()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cuda_refuses_is_refused(name: str) -> None:
    with pretended_cuda():
        there = ones("cuda")
        with pytest.raises(
            (RuntimeError, TypeError),
            match=r"same device|cuda:0 device type|device type for generator",
        ):
            REFUSED[name](there)


@pytest.mark.parametrize("name", TAKEN)
def test_what_cuda_takes_is_taken(name: str) -> None:
    with pretended_cuda():
        result: Any = TAKEN[name](ones("cuda"))
        assert result.device == torch.device("cuda", 0)
        assert result.cpu().tolist() == [1.0] * 4 if name != "a number of the host" else [2.0] * 4


def test_the_process_is_as_before() -> None:
    before = (
        torch.cuda.is_available(),
        torch.cuda.Event,
        torch.autograd.grad_mode.inference_mode.__enter__,
    )
    with pretended_cuda():
        assert torch.cuda.is_available()
    assert before == (
        torch.cuda.is_available(),
        torch.cuda.Event,
        torch.autograd.grad_mode.inference_mode.__enter__,
    )
    with torch.inference_mode():
        assert ones().is_inference()


def by_norm(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The score of a press, with a fault in it."""
    return lambda _, __, keys, *___: change(keys.norm(dim=-1))


FAULTY = {
    "a mask on the host": by_norm(
        lambda norms: norms.masked_fill(torch.zeros(norms.shape, dtype=torch.bool), 0.0)
    ),
    "an index on the host": by_norm(
        lambda norms: norms.gather(2, torch.zeros(norms.shape, dtype=torch.long))
    ),
    "numpy of a tensor of the device": by_norm(
        lambda norms: torch.from_numpy(norms.float().numpy())
    ),
    "a generator of the host": by_norm(
        lambda norms: (
            norms + torch.rand(norms.shape, device=norms.device, generator=torch.Generator())
        )
    ),
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_press_that_works_on_a_cpu_alone_is_found(name: str) -> None:
    policy = pressing("faulty", lambda situation: ActingScorer(situation.ratio, FAULTY[name]))
    (branch,) = treat(on_host(), [policy], [0.5], toy_prompt(questions=1)).branches
    assert branch.error is None, "on a CPU it works"
    with pretended_cuda():
        (branch,) = treat(on_card(), [policy], [0.5], toy_prompt(questions=1)).branches
    assert branch.error is not None
    assert "device" in branch.error


def test_an_index_that_the_engine_forgets_on_the_host_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept_last = keep.kept_last
    monkeypatch.setattr(bundle, "kept_last", lambda *arguments: kept_last(*arguments).cpu())
    with pretended_cuda(), pytest.raises(RuntimeError, match="same device"):
        answers(on_card(), treat(on_card(), [POLICIES["knorm"]], [0.5], toy_prompt(questions=1)))


def waits_of_prefill(monkeypatch: pytest.MonkeyPatch, ratios: Sequence[float]) -> int:
    """How often the host waits for a number of the device while a context is read and scored."""
    waits: list[str] = []
    compute, tolist = pretended._compute, pretended.Pretended.tolist

    def counting(operation: Any, *arguments: Any) -> Any:
        if operation._schema.name == "aten::_local_scalar_dense":  # of item, bool and int
            waits.append("item")
        return compute(operation, *arguments)

    def listed(tensor: pretended.Pretended) -> Any:
        waits.append("tolist")
        return tolist(tensor)

    model, prompt = on_card(), toy_prompt(questions=1)
    with monkeypatch.context() as patch:
        patch.setattr(pretended, "_compute", counting)
        patch.setattr(pretended.Pretended, "tolist", listed)
        trace = treat(model, [POLICIES["knorm"]], ratios, prompt)
    assert all(branch.seconds > 0 and branch.host_seconds > 0 for branch in trace.branches)
    return len(waits)


def test_a_scoring_waits_for_the_device_once_whatever_it_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each wait lets a card stand still; at the end of the prefill it is waited for all the
    same."""
    with pretended_cuda():
        counts = [
            waits_of_prefill(monkeypatch, ratios) for ratios in ((0.5,), (0.1, 0.3, 0.5, 0.7, 0.9))
        ]
    assert counts[0] == counts[1] >= LAYERS
