"""The toy model on the host and on the pretended device, in several dtypes."""

from functools import cache
from typing import Any

import torch

from kvbench.models.load import LoadedModel, wrap_model
from tests.support.models.toy import toy_model


@cache
def on_host(dtype: torch.dtype = torch.float32) -> LoadedModel:
    """The toy model on the host. Tests leave it as it is."""
    return _in(dtype, "cpu")


@cache
def on_card(dtype: torch.dtype = torch.float32) -> LoadedModel:
    """The same model on the pretended device: to be called inside of it."""
    return _in(dtype, "cuda")


def _in(dtype: torch.dtype, device: str) -> LoadedModel:
    model = toy_model()
    network: Any = model.network
    network = network.to(dtype).to(device)
    return wrap_model(model.name, network, model.tokenizer, model.fingerprint)
