"""costs.py: sums of /tmp/cpu_times by module, by test function; needs nothing."""
import glob, collections, re, sys
mod=collections.Counter(); wall=collections.Counter(); fn=collections.Counter(); n=collections.Counter()
tot=0
for f in glob.glob("/tmp/cpu_times/*.txt"):
    for l in open(f):
        c,w,i=l.rstrip("\n").split("\t"); c=float(c); m=i.split("::")[0]
        t=i.split("[")[0]
        mod[m]+=c; wall[m]+=float(w); fn[t]+=c; n[t]+=1; tot+=c
print(tot)
for m,c in mod.most_common(50): print(f"{c:7.1f} {wall[m]:7.1f} {m}")
print()
for m,c in fn.most_common(90): print(f"{c:7.1f} {n[m]:5d} {m}")
