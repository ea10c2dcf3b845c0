"""Decoding of treated branches over that of knorm branches of the same ratios, in pairs in one process."""
import sys, time, statistics as st, gc, hashlib, torch
torch.set_num_threads(1)
from datasets_gen import TASKS
from kvbench.models.load import load_model
from kvbench.engine.decode.answers import decode
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.prompts.prompt import build_prompts
from policies import POLICIES, at_ratios
from policies.composition import built_in
class Nothing:
    def __init__(self, s, q): pass
    def after_prefill(self, c): pass
    def after_step(self, c, s): pass
    def copy_answers(self, c): pass
from dataclasses import replace
model = load_model("reference")
task = TASKS["base"]
example = task.example(0, 0)
prompt = build_prompts(model.tokenizer, task, example, "agnostic")[0]
ratios = [i / 10 for i in range(1, 9)]
names = {"knorm": POLICIES["knorm"], "nothing": replace(POLICIES["knorm"], name="nothing", step_treatment=Nothing),
 "int4": built_in("knorm+int4"), "zeros": built_in("knorm+zeros(phase=every_step,rate=0.05)"), "gaussian": built_in("knorm+gaussian(phase=every_step,rate=0.05)")}
if len(sys.argv) > 2: names = {k: names.get(k) or built_in("knorm+" + k) for k in ["knorm", *sys.argv[2].split(",")]}
turns = int(sys.argv[1])
def once(policy):
    trace = prefill(model, prompt, plan([policy], at_ratios(ratios), prompt, 0))
    gc.collect(); gc.disable()
    t = time.process_time()
    g = decode(model, trace, 12, 10**9, gold=True)
    t = time.process_time() - t
    gc.enable()
    d = hashlib.sha256(repr([(x.branch.treatment.policy.name, x.branch.treatment.ratio, x.question, x.token_ids, x.gold_nll) for x in g]).encode()).hexdigest()[:12]
    assert not any(b.error for b in trace.branches), [b.error for b in trace.branches]
    return t, len(g), d
times = {k: [] for k in names}
dig = {}; pairs = {}
first = once(names["knorm"])
for turn in range(turns + 1):
    for k, p in names.items():
        t, n, d = once(p)
        base = once(names["knorm"])[0]; pairs.setdefault(k, []).append(t / base) if turn else None
        dig.setdefault(k, set()).add(d)
        if turn: times[k].append(t)
for k in names:
    r = [a / b for a, b in zip(times[k], times["knorm"])]
    print(f"{k:12} least {min(times[k]):.3f} median {st.median(times[k]):.3f} | ratio of leasts {min(times[k])/min(times['knorm']):.2f} median of ratios {st.median(r):.2f} pairs: median {st.median(pairs[k]):.2f} quartiles {[round(q,2) for q in st.quantiles(pairs[k],n=4)]}", dig[k], len(prompt.token_ids), n)
