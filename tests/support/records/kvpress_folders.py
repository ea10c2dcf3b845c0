"""Folders as kvpress's evaluation writes them, without kvpress."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

NAME = "qa"


def evaluation(
    folder: Path,
    metrics: Any,
    predicted: list[str] | None = None,
    answers: list[str] | None = None,
    **config: Any,
) -> Path:
    """One result, with the settings that its ``config.yaml`` would hold."""
    settings = {
        "dataset": "ruler",
        "data_dir": "4096",
        "model": "meta-llama/Meta-Llama-3.1-8B-Instruct",
        "device": None,
        "press_name": "snapkv",
        "compression_ratio": 0.5,
        "key_channel_compression_ratio": None,
        "fraction": 1.0,
        "max_new_tokens": None,
        "max_context_length": None,
        "query_aware": False,
        "fp8": False,
        "needle_depth": None,
        "model_kwargs": {"attn_implementation": None, "dtype": "auto"},
        "press_init_command": "SnapKVPress(compression_ratio=0.5, window_size=64, kernel_size=5)",
        "seed": 42,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.dump({**settings, **config}, sort_keys=False))
    (folder / "metrics.json").write_text(json.dumps(metrics, indent=4))
    columns = {
        "task": NAME,
        "predicted_answer": predicted or ["Paris", "Rome"],
        "question": "Where?",
    }
    if answers != []:
        columns["answer"] = answers or ["['Paris']", "['Oslo' 'Rome city']"]
    pd.DataFrame(columns).to_csv(folder / "predictions.csv", index=False)
    return folder
