#!/bin/sh
# make_venv.sh DIRECTORY [PYTHON]: sees to it that a working environment is there.
# One that works stays as it is, unless PYTHON is given and is of another version.
set -eu
directory=$1
wanted=${2:-}

version() {
    "$1" -c 'import sys; print(sys.version)' 2>/dev/null
}

python=
if [ -n "$wanted" ]; then
    python=$(sh tools/find_python.sh "$wanted")
fi
# One whose making was cut short has no pip.
if present=$(version "$directory/bin/python") && [ -f "$directory/pyvenv.cfg" ] &&
    "$directory/bin/python" -c 'import pip' 2>/dev/null; then
    if [ -z "$python" ] || [ "$present" = "$(version "$python")" ]; then
        exit 0
    fi
fi
if [ -z "$python" ]; then
    python=$(sh tools/find_python.sh)
fi
echo "Making $directory with $python"
rm -rf "$directory"
"$python" -m venv "$directory"
