import sys, torch, numpy as np
torch.set_num_threads(1)
from datasets_gen import TASKS
from kvbench.models.load import load_model
from kvbench.engine.decode.answers import decode
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.prompts.prompt import build_prompts
from policies import POLICIES
from policies.quantisation.registry import quantisation_of
name, count = sys.argv[1], int(sys.argv[2])
model = load_model(name)
task = TASKS["multi_entity"]
pol = [POLICIES["full"], quantisation_of("int8"), quantisation_of("int8(residual=0)")]
rows = {p.name: [] for p in pol[1:]}; q=0; largest=0.0; allq={p.name: [] for p in pol[1:]}
for i in range(count):
    prompt = build_prompts(model.tokenizer, task, task.example(0, i), "agnostic")[0]
    trace = prefill(model, prompt, plan(pol, (), prompt, 0))
    g = decode(model, trace, 1, 10**9, gold=True)
    by = {(x.branch.treatment.policy.name, x.question): x.gold_nll for x in g}
    full = {k[1]: v for k, v in by.items() if k[0] == "full" and v is not None}
    for p in rows:
        d = [by[p, k] - v for k, v in full.items()]
        rows[p].append(np.mean(d)); allq[p] += d
    q += len(full)
    if i + 1 in (6, 24, 48, 96, 192) or i + 1 == count:
        for p, r in rows.items():
            r = np.array(r); print(name, i + 1, "contexts", q, "questions", p, f"mean {np.mean(allq[p]):+.5f} mean of contexts {r.mean():+.5f} se {r.std(ddof=1)/len(r)**.5:.5f} largest {np.abs(allq[p]).max():.3f} median |d| {np.median(np.abs(allq[p])):.6f} full nll {np.mean(list(full.values())):.3f}", flush=True)
