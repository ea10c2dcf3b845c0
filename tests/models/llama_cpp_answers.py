"""Prints what llama.cpp makes of texts, as one JSON object; it runs in a Python that has ``llama-cpp-python``.

Arguments: a GGUF file, and a JSON file with ``texts`` to tokenize and ``prompts`` to continue by ``steps`` tokens.
"""

import json
import sys
from pathlib import Path

from llama_cpp import Llama

path, job = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
model = Llama(path, n_ctx=1024, n_threads=1, verbose=False)
texts = [model.tokenize(text.encode(), add_bos=False, special=True) for text in job["texts"]]
answers = []
for prompt in job["prompts"]:
    tokens = model.tokenize(prompt.encode(), add_bos=True, special=True)
    model.reset()
    answer = []
    for token in model.generate(tokens, top_k=1, temp=0.0):
        answer.append(token)
        if len(answer) == job["steps"]:
            break
    answers.append({"prompt": tokens, "answer": answer})
print(json.dumps({"texts": texts, "answers": answers}))
