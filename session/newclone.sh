#!/bin/bash
# newclone.sh NAME: a clone of /work/main at /work/NAME with a virtual environment of its own
set -e
cd /work; git clone -q main $1; cd $1
python3 -m venv .venv
V=$(ls -d /work/main/.venv/lib/python3*/site-packages)
D=$(ls -d .venv/lib/python3*/site-packages)
rm -rf $D; cp -al $V $D; rm -rf $D/__editable__* $D/kvbench-*.dist-info
.venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e . 2>&1 | grep -v WARNING || .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps -e .
for f in /work/main/.venv/bin/*; do b=$(basename $f); [ -e .venv/bin/$b ] || { sed "1s#/work/main/#/work/$1/#" $f > .venv/bin/$b && chmod +x .venv/bin/$b; }; done
touch .venv/installed
cd / && /work/$1/.venv/bin/python -c "import kvbench; print(kvbench.__file__)"
