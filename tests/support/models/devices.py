"""Has the engine work on a CPU as it works on another kind of device."""

from dataclasses import replace
from typing import Any

import pytest

from policies.declaration import devices


def work_as(monkeypatch: pytest.MonkeyPatch, kind: str = "cpu", **values: Any) -> None:
    """Gives the CPU the values of a kind of device, or these instead; what only a card's library
    can do stays the CPU's."""
    own = devices.DEVICE_KINDS["cpu"]
    of_library = {
        name: getattr(own, name)
        for name in (
            "raises_out_of_memory",
            "synchronize",
            "free_bytes",
            "empty_cache",
            "mark",
            "seconds_between",
        )
    }
    changed = replace(devices.DEVICE_KINDS[kind], **{**of_library, **values})
    monkeypatch.setattr(devices, "DEVICE_KINDS", {**devices.DEVICE_KINDS, "cpu": changed})
