#!/usr/bin/env bash
# Removes what `make` made: the environment, what was built, and caches. An environment that
# set-up did not make stays, and so does whatever else lies in these folders' place as a link.
set -u
cd -P "$(dirname "$0")/.." || exit 1

if [ -f .venv/.made ] && [ ! -L .venv ]; then
    rm -rf .venv
elif [ -e .venv ] || [ -L .venv ]; then
    echo "kept .venv, which set-up did not make"
fi
for made in .venv.lock site wheelhouse build/gpu build/gpu-rehearsal build/where-does-my-array-live .cache \
    .pytest_cache .mypy_cache .ruff_cache .import_linter_cache; do
    [ -L "$made" ] || rm -rf "$made"
done
rmdir build 2>/dev/null
exit 0
