"""halves.py WORK [CONTEXTS]: what is right with rows of halves, thirds, ... destroyed, of the checkpoint in WORK."""
import sys, torch
from pathlib import Path
from datasets_gen import TASKS
from transformers import PreTrainedTokenizerFast
from kvbench.reference.training.architecture import SHAPES, new_model
from kvbench.reference.training.batches import evaluation_batch
from kvbench.reference.training.read_profile import destroyed_slots, right_answers
torch.set_num_threads(1)
work=Path(sys.argv[1]); n=int(sys.argv[2]) if len(sys.argv)>2 else 8
tok=PreTrainedTokenizerFast.from_pretrained(work/"tokenizer")
m=new_model(tok,"reference-qwen",SHAPES["full"])
st=torch.load(work/"checkpoint.pt",weights_only=True); m.load_state_dict(st["model"]); m.eval()
print("step",st["progress"]["step"])
L=m.config.num_hidden_layers;H=m.config.num_key_value_heads
cases={"none":[], "0-5":range(6),"6-11":range(6,12),"0-3":range(4),"4-7":range(4,8),"8-11":range(8,12)}
cases|={str(i):[i] for i in range(L)}
for name,hops in (("base",None),("hops",2),("multi_presence",None),("coreference",None)):
    res={k:[] for k in cases}
    for i in range(n):
        b=evaluation_batch(tok,TASKS[name],1000,i,1)
        for k,ls in cases.items():
            res[k]+=right_answers(m,b,destroyed_slots([float(x in ls) for x in range(L)],H,b,i),hops)
    print(name,hops,{k:round(100*sum(v)/len(v)) for k,v in res.items()},len(res["none"]),flush=True)
