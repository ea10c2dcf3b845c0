import sys
from pathlib import Path
from kvbench.reference.train import Trainer, Plan
import shutil, tempfile
src=Path(sys.argv[1]); out=Path(sys.argv[2])
t=Path(tempfile.mkdtemp()); shutil.copytree(src,t/"w")
tr=Trainer(t/"w",0,Plan(shape="full"),"reference-qwen"); print(tr.progress.step); tr.export(out)
