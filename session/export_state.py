"""export_state.py STATE ARCHITECTURE SHAPE OUT: writes the checkpoint of a kept state"""
import sys, tempfile
from pathlib import Path
from kvbench.reference.train import Trainer, TrainingPlan
state, arch, shape, out = sys.argv[1:]
t = Path(tempfile.mkdtemp()) / "w"
tr = Trainer(t, 0, TrainingPlan(shape=shape), arch, state=Path(state))
print(tr.progress.step, tr.progress.tokens); tr.export(Path(out))
