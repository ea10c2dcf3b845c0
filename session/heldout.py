"""heldout.py WORK TASK... : share of answers right (teacher-forced argmax) with held-out phrasings in statements, in questions, in both, in none;
and by template for held-out ones. Which side costs?"""
import sys, torch, collections, random
from pathlib import Path
from datasets_gen import TASKS
from datasets_gen.examples import wording
from transformers import PreTrainedTokenizerFast
from kvbench.reference.training.architecture import SHAPES, new_model
from kvbench.reference.training import batches
from kvbench.reference.training.losses import answer_logits
torch.set_num_threads(2)
work=Path(sys.argv[1])
tok=PreTrainedTokenizerFast.from_pretrained(work/"tokenizer")
m=new_model(tok,"reference-qwen",SHAPES["full"])
st=torch.load(work/"checkpoint.pt",weights_only=True); m.load_state_dict(st["model"]); m.eval()
MODE="none"; used=[]
def choose(self,rng,ph):
    q=ph.common[0].rstrip().endswith("?")
    held = MODE=="both" or (MODE=="questions" and q) or (MODE=="statements" and not q)
    t=rng.choice(ph.held_out) if held else rng.choice(ph.common[:self.count])
    return t
wording.Wording.choose=choose
import re
for name in sys.argv[2:]:
    for MODE in ("none","statements","questions","both"):
        n=r=0; by=collections.defaultdict(lambda:[0,0]); wr=[]
        for i in range(0,24,4):
            b=batches.evaluation_batch(tok,TASKS[name],7000,i,4)
            chosen=b.labels>=0
            pred=b.labels.clone()
            with torch.no_grad(): pred[chosen]=answer_logits(m,b,chosen).argmax(-1)
            for row,ex in enumerate(b.examples):
                for k,q in enumerate(ex.questions,1):
                    at=(b.segments[row]==k)&(b.labels[row]>=0)
                    g,p=b.labels[row][at],pred[row][at]
                    ok=bool((g==p).all()); n+=1; r+=ok
                    key=" ".join(w for w in q.text.split() if not w[0].isupper() or w in("Who","Whose","Where","What","Which","When","In","On","At","Whom")) 
                    by[key][0]+=ok; by[key][1]+=1
                    if not ok: wr.append((q.text,tok.decode(g),tok.decode(p)))
        print("==",name,MODE,f"{r}/{n} = {100*r/n:.0f}",flush=True)
        if MODE!="none":
            worst=sorted(((a/c,c,key) for key,(a,c) in by.items() if c>=3))[:14]
            for s,c,key in worst: print(f"     {100*s:.0f} % of {c}: {key}")
            if MODE=="both":
                for w in wr[:12]: print("   ",w)
