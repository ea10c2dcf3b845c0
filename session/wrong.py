"""wrong.py WORK TASK... : wrong answers (teacher-forced argmax) of the checkpoint, on 16 contexts of the train-like watched seed."""
import sys, torch, collections
from pathlib import Path
from datasets_gen import TASKS
from transformers import PreTrainedTokenizerFast
from kvbench.reference.training.architecture import SHAPES, new_model
from kvbench.reference.training.batches import evaluation_batch
from kvbench.reference.training.losses import answer_logits
torch.set_num_threads(1)
work=Path(sys.argv[1])
tok=PreTrainedTokenizerFast.from_pretrained(work/"tokenizer")
m=new_model(tok,"reference-qwen",SHAPES["full"])
st=torch.load(work/"checkpoint.pt",weights_only=True); m.load_state_dict(st["model"]); m.eval()
for name in sys.argv[2:]:
    kinds=collections.defaultdict(lambda:[0,0]); wrong=[]
    for i in range(0,16,4):
        b=evaluation_batch(tok,TASKS[name],2000,i,4)
        chosen=b.labels>=0
        pred=b.labels.clone()
        with torch.no_grad(): pred[chosen]=answer_logits(m,b,chosen).argmax(-1)
        for row,ex in enumerate(b.examples):
            for n,q in enumerate(ex.questions,1):
                at=(b.segments[row]==n)&(b.labels[row]>=0)
                g,p=b.labels[row][at],pred[row][at]
                ok=bool((g==p).all())
                k=str(getattr(q,'kind',None) or getattr(q,'hops',None) or '')
                f=f"{k} {getattr(q,'family','')} {getattr(q,'part','')}"
                kinds[f][0]+=ok; kinds[f][1]+=1
                if not ok: wrong.append((f,q.text if hasattr(q,'text') else q.question, tok.decode(g), tok.decode(p)))
    print("==",name,{k:f"{a}/{b}" for k,(a,b) in kinds.items()})
    for w in wrong[:25]: print("  ",w)
