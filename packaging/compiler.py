"""Prints `yes` if this Python can compile a module of its own (it has a C compiler and its own
headers), else `no`, and to standard error what is missing."""

import os
import shutil
import sys
import sysconfig

compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
headers = os.path.join(sysconfig.get_path("include"), "Python.h")
missing = []
if shutil.which(compiler) is None:
    missing.append(f"a C compiler ({compiler}; Debian: gcc)")
if not os.path.exists(headers):
    missing.append(f"Python's headers ({headers}; Debian: python3-dev)")
if missing:
    print(
        f"Requests will take a third more processor time than they need: nothing is compiled"
        f" without {' and '.join(missing)}. With it, `rm -r .built` has it tried again.",
        file=sys.stderr,
    )
print("no" if missing else "yes")
