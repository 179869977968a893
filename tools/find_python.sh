#!/bin/sh
# Prints the path of the first interpreter that can make an environment for asyncgrad.
# Candidates are names or paths given as arguments; without any, the usual names, tested ones first.
#
# A name on the PATH is run before it is believed: version managers put shims there that fail.

[ $# -gt 0 ] || set -- python3.13 python3.12 python3.11 python3.14 python3 python

without_venv=
for candidate in "$@"; do
    minor=${candidate#python}
    for python in "$candidate" "$HOME/.pyenv/versions/$minor".*/bin/python; do
        path=$("$python" -c 'if True:
            import sys
            if sys.version_info < (3, 11):
                sys.exit(1)
            print(sys.executable)' 2>/dev/null) || continue
        if "$path" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "$path"
            exit 0
        fi
        without_venv=${without_venv:-$path}
    done
done

if [ -n "$without_venv" ]; then
    version=$("$without_venv" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    cat >&2 <<END
$without_venv (Python $version) lacks the standard modules venv and ensurepip.
Install them (Debian, Ubuntu: sudo apt install python$version-venv),
or name another Python: make PYTHON=/path/to/python
END
else
    cat >&2 <<END
asyncgrad needs Python 3.11 or newer; tried without success: $*.
Install one:
  Debian, Ubuntu   sudo apt install python3 python3-venv
  Fedora           sudo dnf install python3
  macOS            brew install python (or the installer from https://www.python.org)
or name one: make PYTHON=/path/to/python
END
fi
exit 1
