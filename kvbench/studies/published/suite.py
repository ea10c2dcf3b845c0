"""The suite of published orders: do presses keep needles in the order of kvpress's public board?"""

from datasets_gen.tasks.ruler import niah
from kvbench.studies.declaration import Suite

# The presses of the board that run without a question and without weights of their own.
PUBLISHED = (
    *(
        "kvzip",
        "adakv_expected_attention",
        "adakv_compactor",
        "keydiff",
        "lagkv",
        "cur",
        "tova",
        "snapkv",
    ),
    *("pyramidkv", "streaming_llm", "h2o", "knorm", "random"),
)

SUITE = Suite(
    name="published",
    description="Do presses keep needles in the order of kvpress's public board? (about 1,024 tokens)",
    tasks=niah.TASKS,
    policies=",".join(PUBLISHED),
    if_aware="chunkkv_snapkv,adakv_snapkv,finch,snapkv",
    levels={"ratio": "0.25,0.5,0.75"},
    limit=12,
)
