"""rename.py FILE OLD NEW: renames a module-level class where it is defined and wherever it is imported from there."""
import ast, io, pathlib, re, sys, tokenize
TOPS = ("kvbench", "leaderboards", "policies", "datasets_gen", "tests")
def module(path): 
    parts = list(path.with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
def rename(path, old, new, names, dotted):
    text = path.read_text(); lines = text.splitlines(keepends=True)
    toks = list(tokenize.generate_tokens(io.StringIO(text).readline)); edits = []
    for i, t in enumerate(toks):
        if t.type == tokenize.NAME and t.string == old:
            prev = toks[i-1].string if i else ""
            if prev == ".":
                if i > 1 and toks[i-2].string in dotted: edits.append((t.start, len(old)))
            elif names:
                nxt = toks[i+1].string
                # a keyword argument or an attribute of that name is none of ours
                if nxt == "=" and prev in "(,": print("  keyword?", path, t.start)
                edits.append((t.start, len(old)))
        elif t.type == tokenize.STRING and names and (t.string.startswith(('"""', "'''", '"', "'", 'r"', 'f"'))):
            for m in re.finditer(r"(?<=:class:`)(~?[\w.]*\.)?"+old+r"(?=`)|(?<=``)"+old+r"(?=``)|^\"(?:tuple\[)?"+old+r"(?=[\"\],])", t.string):
                s = m.end() - len(old); before = t.string[:s]; row = t.start[0] + before.count("\n")
                col = (t.start[1] + s) if "\n" not in before else s - before.rfind("\n") - 1
                edits.append(((row, col), len(old)))
    for (r, c), n in sorted(set(edits), reverse=True):
        l = lines[r-1]; lines[r-1] = l[:c] + new + l[c+n:]
    if edits: path.write_text("".join(lines)); print("  ", path, len(set(edits)))
src, old, new = pathlib.Path(sys.argv[1]), *sys.argv[2:4]
home = module(src); leaf = home.rpartition(".")[2]
allfiles = [p for t in TOPS for p in pathlib.Path(t).rglob("*.py")]
for p in allfiles:
    if re.search(r"\bclass "+new+r"\b", p.read_text()): sys.exit(f"{new} exists in {p}")
for p in allfiles:
    text = p.read_text()
    if p == src: rename(p, old, new, True, set()); continue
    if old not in text: continue
    names, dotted = False, set()
    for n in ast.walk(ast.parse(text)):
        if isinstance(n, ast.ImportFrom):
            base = n.module or ""
            if n.level: base = ".".join(module(p).split(".")[: -n.level + (p.name == "__init__.py")] + ([n.module] if n.module else []))
            for a in n.names:
                if base == home and a.name == old:
                    if a.asname: print("  ALIAS", p, a.asname); text2=p.read_text(); p.write_text(re.sub(r"\b"+old+r"(?= as "+a.asname+r"\b)", new, text2))
                    else: names = True
                if f"{base}.{a.name}" == home: dotted.add(a.asname or a.name)
        elif isinstance(n, ast.Import):
            for a in n.names:
                if a.name == home: dotted.add(a.asname or leaf)
    if names or dotted: rename(p, old, new, names, dotted)
