#!/bin/sh
# Prints the Python for the virtual environment: the python3 of PATH, unless that was compiled
# without its own optimisations, which is pyenv's default, and the system's Python can take its
# place. The same broker needs a tenth to a quarter less processor time with the latter.
# Usage: python.sh [the system's Python]
system=${1:-/usr/bin/python3}
optimised='import sys, sysconfig
sys.exit("--enable-optimizations" not in (sysconfig.get_config_var("CONFIG_ARGS") or ""))'
serves='import ensurepip, sys
sys.exit(sys.version_info < (3, 11))'

found=$(command -v python3)
if [ "$found" = "$system" ] || python3 -c "$optimised" 2>/dev/null ||
    ! "$system" -c "$serves" 2>/dev/null; then
    echo python3
else
    echo "$found was compiled without its own optimisations: $system takes its place" \
        "(PYTHON=python3 keeps it)" >&2
    echo "$system"
fi
