"""The suite of the board: which methods stand on it, which do not and why, and what they are asked."""

from collections.abc import Mapping

from datasets_gen import TASKS
from datasets_gen.tasks.ruler import niah
from kvbench.studies.declaration import Suite

SCORERS = (
    "streaming_llm",
    "snapkv",
    "tova",
    "knorm",
    "expected_attention",
    "pyramidkv",
    "keydiff",
    "lagkv",
    "leverage",
    "non_causal",
    "compactor",
    "cur",
    "capkv",
    "h2o",
)
WRAPPERS = (
    "adakv_snapkv",
    "adakv_expected_attention",
    "criticalkv_expected_attention",
    "critical_adakv_snapkv",
    "chunk_knorm",
    "chunkkv_snapkv",
    "block_keydiff",
    "rerotated_streaming_llm",
    "rerotated_snapkv",
    "merging_snapkv",
    "simlayerkv",
)
OWN_PREFILLS = (
    "kvzip",
    "kvzip_plus",
    "kvgrad",
    "kvcompose_unstructured",
    "duo_attention",
    "dms_knorm",
)
AS_DEPLOYED = ("snapkv+pages16", "snapkv+shared")
# They run on contexts with instructions alone.
PROTECTIONS = ("snapkv+whitelist", "snapkv+fair")
QUANTISATIONS = (
    "q8_0",
    "q5_1",
    "q4_0",
    "q4_0(rotate=hadamard)",
    "q8_0(values=q4_0)",
    "int4",
    "int2",
    "fp8_e4m3",
)
# Those that are made for a question in view; the others stand beside them.
FOR_QUESTIONS = ("finch", "snapkv", "tova", "adakv_snapkv", "chunkkv_snapkv", "keydiff")
METHODS = (*SCORERS, *WRAPPERS, *OWN_PREFILLS, *AS_DEPLOYED, *PROTECTIONS, *QUANTISATIONS)

_OTHER_BASE = "the idea of the wrapper stands on the board with another base"
_SMALL_STEP = "a small step from a method that is on the board"
_DECODING = "it cuts while answers are written, and answers of the board are short"
_WEIGHTS = "it needs weights that are trained for each model, and these models have none"
_FAIR = "of each protection the form around SnapKV stands on the board"
# Each method that is registered and does not stand on the board, with the reason.
LEFT_OUT: Mapping[str, str] = {
    "finch": "it needs the question, and stands on the board of question-aware methods",
    "adakv_compactor": _OTHER_BASE,
    "criticalkv_snapkv": _OTHER_BASE,
    "entropy_chunkkv_snapkv": _SMALL_STEP,
    "per_layer_knorm": _SMALL_STEP,
    "composed_snapkv_think": _SMALL_STEP,
    "snapkv+ends": _SMALL_STEP,
    "snapkv+shared+pages16": _SMALL_STEP,
    "kvcompose": _SMALL_STEP,
    "think": "it removes at most 0.49 of the cache, and the board begins at 0.5",
    **dict.fromkeys(
        (
            "decoding_knorm",
            "decoding_streaming_llm",
            "decoding_tova",
            "decoding_keydiff",
            "decoding_ratio_knorm",
            "prefill_decoding_knorm",
            "cam_knorm",
        ),
        _DECODING,
    ),
    **dict.fromkeys(
        ("qfilter", "expected_attention_stats", "kvzap", "fastkvzip", "lukv", "restorekv"), _WEIGHTS
    ),
    **{
        f"{base}+{protection}": _FAIR
        for base in ("streaming_llm", "tova", "h2o", "knorm")
        for protection in ("whitelist", "fair", "debias0.5")
    },
    "snapkv+debias0.5": "it is half-way between SnapKV and its fair form",
}

NEEDLES = ("niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multivalue")

SUITE = Suite(
    name="board",
    description="Where does each method stand among all? About 1,000 tokens, 24 contexts of each task",
    tasks=(
        *(task for task in niah.TASKS if task.name in NEEDLES),
        TASKS["base"],
        TASKS["knowledge"],
        TASKS["instructions"],
    ),
    policies=",".join(METHODS),
    if_aware=",".join(FOR_QUESTIONS),
    levels={"ratio": "0.5,0.75,0.9"},
    limit=24,
    left_out=LEFT_OUT,
)
