#!/usr/bin/env bash
# Makes .venv ready: `scripts/setup.sh` for the grader, `scripts/setup.sh dev,site,target` for all.
# Safe to repeat, and done in a blink when nothing changed. An interrupted run heals on the next.
# On failure: one line on stderr that says what is wrong, exit 1.
set -u -o pipefail
cd -P "$(dirname "$0")/.." || exit 1

EXTRAS=${1:-}
VENV=.venv
STAMP="$VENV/.ready-${EXTRAS:-base}"
LOG=$VENV/.setup.log # there only while an installation runs, or after one that failed
MADE=$VENV/.made     # says that this script made it, and whether in `part` or `whole`
NEEDED_KIB=$((1536 * 1024))
SIZE="1.3 GB"
case ",$EXTRAS," in *,target,*) NEEDED_KIB=$((2560 * 1024)) SIZE="2 GB" ;; esac

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

# Broken: made only in part, cut off while packages were being put in place, its Python gone,
# or made in another folder.
is_broken() {
    grep -qs part "$MADE" ||
        grep -qs '^Installing collected packages' "$LOG" ||
        ! "$VENV/bin/python" -c 'import pip' 2>/dev/null ||
        ! grep -qsF "$PWD/$VENV" "$VENV/bin/pip" "$VENV/bin/activate"
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
    python=$(scripts/find_python.sh) || exit 1
    enough_disk
    rmdir "$VENV" 2>/dev/null
    [ ! -e "$VENV" ] || [ -e "$MADE" ] || fail "$PWD/$VENV is not of this script's making and cannot be used (no pip, or moved); remove it"
    rm -rf "$VENV" && mkdir "$VENV" && echo part >"$MADE" || fail "cannot write $PWD/$VENV"
    printf 'setup: making %s with %s (%s)\n' "$VENV" "$("$python" -V)" "$python"
    said=$("$python" -m venv "$VENV" 2>&1) || fail "$python cannot make $VENV: ${said##*$'\n'}"
    echo whole >"$MADE"
}

# One line for a learner out of pip's log; the log keeps the rest.
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

install() {
    : >"$LOG" || fail "cannot write $PWD/$LOG"
    pip_install hatchling editables # the build back end, pinned, so pip fetches no other
    pip_install --no-build-isolation -e ".${EXTRAS:+[$EXTRAS]}"
    key >"$STAMP" || fail "cannot write $PWD/$STAMP"
    rm -f "$LOG"
}

is_ready && exit 0
if command -v flock >/dev/null; then # two at once would undo each other
    exec 9>.venv.lock && flock 9 || fail "cannot write $PWD/.venv.lock"
    is_ready && exit 0
fi
[ -r grader/__init__.py ] || fail "$PWD is not a checkout: grader/ is missing"
started=$SECONDS
is_broken && make_venv
printf 'setup: installing pinned packages (the first time: a minute or more, up to %s)\n' "$SIZE"
install
printf 'setup: ready after %d s\n' $((SECONDS - started))
