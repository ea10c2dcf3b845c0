"""Claim P5: protecting the instructions helps."""

from collections.abc import Mapping
from functools import partial

from leaderboards.claims.declaration import Claim, Measured, Statistic, each_part
from leaderboards.claims.evidence import Evidence, NoEvidenceError
from leaderboards.claims.pitfalls.prompts import POLICIES, PROMPTS, WAYS, prompts_of
from leaderboards.claims.texts import P
from leaderboards.studies.instructions.obedience import PromptRecords
from leaderboards.studies.instructions.protection import protection_gain
from leaderboards.studies.instructions.published import GAINS


def _measure(evidence: Mapping[str, Evidence]) -> Measured:
    prompts = prompts_of(evidence)
    return each_part({f"{policy}+{way}": partial(_gain, prompts, policy, way) for policy in POLICIES for way in WAYS})


def _gain(prompts: PromptRecords, policy: str, way: str) -> Statistic:
    gain = protection_gain(prompts, policy, f"{policy}+{way}")
    if gain is None:
        raise NoEvidenceError(f"{policy} and {policy}+{way} share no answers")
    theirs = " and ".join(f"{value:.3f}" for value in GAINS[policy, way])
    failed = f"; {gain.failed} answers failed" if gain.failed else ""
    return Statistic(gain.values, prompts.resampler.count, note=f"the text has {theirs}{failed}")


CLAIM = Claim(
    identifier="P5",
    text=P,
    words="Whitelists and fair eviction help.",
    reported="whitelist 0.196 and 0.169 (StreamingLLM) to 0.001 and 0.082 (K-Norm)",
    statistic="half the gain in directives obeyed plus half the fall in leakage against the plain policy, mean over "
    "ratios 0.5 and 0.7, by policy and way",
    side="above",
    threshold=0.0,
    experiments=(PROMPTS,),
    measure=_measure,
    because="Of knorm+fair: knorm obeys 8 % of the directives at 0.5, which is what silence obeys, and fair eviction "
    "keeps no more of them than that (8 %). It keeps more of the defence, 50 instead of 45 % of its tokens on "
    "`reference`: too little to refuse (10 % of the attacks instead of 53) and more that can leak (0.31 "
    "instead of 0.11). `reference-qwen`: 8 and 8 % obeyed, refused 1 and 17 %, leakage 0.42 and 0.18.",
)
