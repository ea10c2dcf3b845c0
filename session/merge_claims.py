"""merge_claims.py REGISTER DOCS_JSON: puts the claims of a register that was run with --only into the whole one, in the order of texts and numbers."""
import json, sys
new, path = json.load(open(sys.argv[1])), sys.argv[2]
old = json.load(open(path))
names = {c["claim"] for c in new["claims"]}
old["claims"] = sorted([c for c in old["claims"] if c["claim"] not in names] + new["claims"], key=lambda c: (c["claim"][0], int(c["claim"][1:])))
old["runs"] |= new["runs"]
json.dump(old, open(path, "w"), indent=1, ensure_ascii=False); open(path, "a").write("\n")
