#!/usr/bin/env bash
# Prints the path of a Python >= 3.12 that really runs and can make a virtual environment.
# Looks at $PYTHON, then PATH, then the usual places. Each candidate is run, because a name on
# PATH proves nothing (pyenv leaves shims of Pythons that are not active).
# Exit 1 and one line on stderr when there is none.
set -u

PROBE='
import sys, sysconfig
if sys.version_info < (3, 12):
    sys.exit("is %d.%d" % sys.version_info[:2])
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    sys.exit("is free-threaded, for which jax has few wheels")
for module in ("ssl", "venv", "ensurepip"):
    try:
        __import__(module)
    except ImportError:
        sys.exit("has no module " + module)
print(sys.executable)
'

candidates() {
    [ -n "${PYTHON:-}" ] && printf '%s\n' "$PYTHON"
    printf '%s\n' python3.14 python3.13 python3.12 python3
    local home=${HOME:-/nonexistent} place
    for place in "${PYENV_ROOT:-$home/.pyenv}"/versions/*/bin \
        "${UV_PYTHON_INSTALL_DIR:-$home/.local/share/uv/python}"/*/bin \
        "$home"/.local/bin "$home"/*conda*/bin "$home"/miniforge*/bin \
        ${FIND_PYTHON_PLACES-/usr/local/bin /usr/bin /opt/*/bin}; do
        printf '%s\n' "$place"/python3.14 "$place"/python3.13 "$place"/python3.12 "$place"/python3
    done
}

seen=
while IFS= read -r candidate; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    if found=$("$candidate" -I -c "$PROBE" 2>&1 </dev/null); then
        printf '%s\n' "$found"
        exit 0
    fi
    why=${found##*$'\n'}
    case $why in "is "* | "has no "*) ;; *) why="does not run" ;; esac
    case $seen in *"$candidate $why"*) ;; *) seen="$seen${seen:+, }$candidate $why" ;; esac
done < <(candidates)

cat >&2 <<END
setup: no Python >= 3.12 that runs (${seen:-none on this machine}); install one (Debian: python3.12 and python3.12-venv; macOS: brew install python@3.13), or name it: make start PYTHON=/path/to/python3
END
exit 1
