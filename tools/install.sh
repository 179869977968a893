#!/bin/sh
# install.sh PYTHON ARGUMENTS: what `pip install` does with these arguments, in PYTHON's environment.
# If UV names uv's program, that is tried first: it takes a tenth of pip's time.
set -eu
python=$1
shift
if [ -n "${UV:-}" ] && "$UV" pip install --python "$python" "$@"; then
    exit 0
fi
exec "$python" -m pip install --disable-pip-version-check "$@"
