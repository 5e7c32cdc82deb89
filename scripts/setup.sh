#!/usr/bin/env bash
# Makes .venv ready: `scripts/setup.sh` for the grader, `scripts/setup.sh dev,site` for all.
# Safe to repeat, and quick when nothing changed. The next run repairs what an interrupted one left.
# On failure: one line on stderr that says what is wrong, exit 1.
set -u -o pipefail
cd -P "$(dirname "$0")/.." || exit 1

EXTRAS=${1:-}
VENV=.venv
STAMP="$VENV/.ready-${EXTRAS:-base}"
LOG=$VENV/.setup.log # exists only while an installation runs, or after one that failed
MADE=$VENV/.made     # exists if this script made .venv; says `part` until .venv is `whole`
NEEDED_KIB=$((1536 * 1024))

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# What the environment was made from; when it changes, the environment is brought up to date.
key() {
    pwd
    "$VENV/bin/python" -VV 2>/dev/null || return 1
    cat pyproject.toml constraints.txt | cksum
    grep '^__version__' grader/__init__.py
}

is_ready() { [ ! -e "$LOG" ] && [ -f "$STAMP" ] && [ "$(key)" = "$(cat "$STAMP")" ]; }

# Broken means: made only in part, interrupted while packages were being put in place, without a
# Python that runs, or made in another folder.
is_broken() {
    grep -qs part "$MADE" ||
        grep -qs '^Installing collected packages' "$LOG" ||
        ! "$VENV/bin/python" -c 'import pip' 2>/dev/null ||
        ! grep -qsF "$PWD/$VENV" "$VENV/bin/pip" "$VENV/bin/activate"
}

# A healthy environment of another Python is somebody's work: it is named, and not filled.
other_python() {
    local has wanted
    has=$("$VENV/bin/python" -V 2>/dev/null) || return 0 # not healthy
    case $has in
    "Python 3."[0-9] | "Python 3."[0-9].* | "Python 3.1"[01] | "Python 3.1"[01].* | "Python 2"*)
        fail "$PWD/$VENV is an environment of $has, and the course needs 3.12 or newer; remove or rename it, then run this again"
        ;;
    esac
    [ -n "${PYTHON:-}" ] || return 0
    wanted=$("$PYTHON" -V 2>/dev/null) || return 0 # `find_python.sh` says what is wrong with it
    [ "$has" = "$wanted" ] ||
        fail "$PWD/$VENV is an environment of $has, and PYTHON=$PYTHON is $wanted; remove or rename it, then run this again"
}

free_kib() { df -Pk . | awk 'NR == 2 { print $4 }'; }

enough_disk() {
    local free
    free=$(free_kib)
    [ "$free" -ge "$NEEDED_KIB" ] ||
        fail "only $((free / 1024)) MiB free on this disk; the packages need $((NEEDED_KIB / 1024)) MiB"
}

make_venv() {
    local python said
    python=$(bash scripts/find_python.sh) || exit 1
    enough_disk
    rmdir "$VENV" 2>/dev/null
    [ ! -e "$VENV" ] || [ -e "$MADE" ] || fail "$PWD/$VENV was not made by this script and cannot be used (no pip, or moved); remove it"
    rm -rf "$VENV" && mkdir "$VENV" && echo part >"$MADE" || fail "cannot write $PWD/$VENV"
    printf 'setup: making %s with %s (%s)\n' "$VENV" "$("$python" -V)" "$python"
    said=$("$python" -m venv "$VENV" 2>&1) || fail "$python cannot make $VENV: ${said##*$'\n'}"
    echo whole >"$MADE"
}

# Why pip failed, in one line for a learner; the log has the details.
reason() {
    local last pin
    last=$(grep -E '^ *(ERROR|error)' "$LOG" | tail -n 1)
    pin=$(sed -n 's/.*(constraint) //p; s/.*No matching distribution found for //p' "$LOG" | tail -n 1)
    # The log of a full disk ends before the line that says so.
    if grep -qE 'No space left|Errno 28' "$LOG" || [ "$(free_kib)" -lt 1024 ]; then
        echo "the disk is full"
    elif grep -q 'Operation cancelled' "$LOG"; then
        echo "interrupted; run it again to finish"
    elif grep -qE 'NewConnectionError|NameResolution|ConnectTimeout|ReadTimeout|Max retries|Temporary failure|ProxyError|Network is unreachable' "$LOG"; then
        echo "no network: pip cannot reach its package index"
    elif [ -n "$pin" ]; then
        echo "pip finds no $pin: no network or package index, or no wheel for $("$VENV/bin/python" -V)"
    else
        echo "pip failed: ${last:-no reason given}"
    fi
}

pip_install() {
    env -u PIP_USER -u PIP_TARGET -u PIP_PREFIX \
        "$VENV/bin/python" -I -m pip --disable-pip-version-check install --no-input \
        -c constraints.txt "$@" >>"$LOG" 2>&1 || fail "$(reason) (all of it: $LOG)"
}

# An earlier version of this script installed JAX's CUDA plugin into the environment, and every JAX
# program then complained that cuDNN is missing. The plugin is removed, unless cuDNN is installed
# too: then the environment is meant for a GPU.
remove_plugin() {
    local stamps=("$VENV"/.ready-*target*) cudnn=("$VENV"/lib/python3*/site-packages/nvidia_cudnn*)
    [ -e "${stamps[0]}" ] || return 0
    if [ ! -e "${cudnn[0]}" ]; then
        echo "setup: removing JAX's CUDA plugin from $VENV; make target installs it beside"
        "$VENV/bin/python" -I -m pip --disable-pip-version-check uninstall --yes jax-cuda13-pjrt \
            jax-cuda13-plugin nvidia-cuda-{crt,nvcc,runtime} nvidia-nvvm >>"$LOG" 2>&1 ||
            fail "$(reason) (all of it: $LOG)"
    fi
    rm -f "${stamps[@]}"
}

install() {
    : >"$LOG" || fail "cannot write $PWD/$LOG"
    remove_plugin
    pip_install hatchling editables # the build back end, pinned, so pip fetches no other
    pip_install --no-build-isolation -e ".${EXTRAS:+[$EXTRAS]}"
    # pip compiles what it installs, and not what stays where it is: the first start would, and
    # each start where Python is told to write no bytecode.
    "$VENV/bin/python" -I -m compileall -q grader || true
    key >"$STAMP" || fail "cannot write $PWD/$STAMP"
    rm -f "$LOG"
}

other_python
is_ready && exit 0
if command -v flock >/dev/null; then # two set-ups at once would undo each other's work
    exec 9>.venv.lock && flock 9 || fail "cannot write $PWD/.venv.lock"
    is_ready && exit 0
fi
[ -r grader/__init__.py ] || fail "$PWD is not a checkout: grader/ is missing"
started=$SECONDS
is_broken && make_venv
printf 'setup: installing pinned packages (the first time: a minute or more, up to 1.3 GB)\n'
install
printf 'setup: ready after %d s\n' $((SECONDS - started))
