"""Lays out ``--help``: a panel for each kind of option, and an example of each command."""

from collections.abc import Mapping

from policies.declaration.levels import KINDS

OTHER = "Options"
_LEVELS = " ".join(f"{kind.plural} {kind.name}" for kind in KINDS.values())
_PANELS: Mapping[str, str] = {
    "What": (
        "suite tasks profile limit phrasings context_tokens questions depth data defence essays max_new_tokens "
        "answer_prefix difficulty seed index question tag split task worst against family what kind only tiny "
        "every_task observe keep_attention replay dtypes sampling deterministic accept_terms"
    ),
    "Model": (
        "model larger beside dtype device_map tokenizer layers heads key_heads head_size parameters bytes_per_number"
    ),
    "Treatment": f"press policies policy {_LEVELS} repeats mode compress",
    "Resources": (
        "device cell_seconds max_kv_gb executor address workers cpus_per_worker gpus_per_worker machine memory_gb "
        "constants measure"
    ),
    "Output": "out name site formats width title tables as_json quiet",
}
PANEL_OF = {option: panel for panel, options in _PANELS.items() for option in options.split()}
# Commands of the first use, which a reader can copy. Those that need a run take the one of the first.
EXAMPLES: Mapping[str, str] = {
    "run": "run --tasks base,hops --policies snapkv,knorm --ratios 0.5,0.9 --name first",
    "site": "site runs/first",
    "figures": "figures runs/first --formats pdf",
    "score": "score runs/first",
    "bench": "bench --policies snapkv --ratios 0.5 --limit 1",
    "plan": "plan --tasks long_context --limit 100 --machine h100",
    "ls": "ls policies --family scorer",
    "fetch": "fetch smollm2",
    "export": "export --task hops --limit 100",
    "compare": "compare mine.py:MyPress --against snapkv --tasks base",
    "claims": "claims --only F,E --limit 16",
    "doctor": "doctor mine.py:MyPress",
    "show": "show runs/first --policy snapkv --ratio 0.9",
    "import-kvpress": "import-kvpress results",
    "check-submission": "check-submission runs/first",
}


def panel_of(parameter: str) -> str:
    """Returns the panel of an option; one that no panel names stands with ``--help``."""
    return PANEL_OF.get(parameter, OTHER)
