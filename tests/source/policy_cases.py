"""Reads the sources for the policy's tests: attacks, which it refuses, and unusual answers.

`policy_attacks.txt` marks with `# here` the line that must be named. Each reaches for something
that would let a submission forge what is observed: a module, a frame, a text that is run, an
attribute of JAX. The answers in `policy_answers.txt` are odd, and do nothing of the kind.
"""

from pathlib import Path

IMPORTS = "import jax\nimport jax.numpy as jnp\nimport numpy as np\n"


def _cases(name: str) -> dict[str, str]:
    """The sources of a file, by the names in its lines `== name`."""
    text = (Path(__file__).parent / name).read_text("utf-8")
    blocks = [block.partition("\n") for block in ("\n" + text).split("\n== ")[1:]]
    return {title: source.strip("\n") for title, _, source in blocks}


def attacks() -> dict[str, str]:
    """Attacks by name."""
    return {name: IMPORTS + source for name, source in _cases("policy_attacks.txt").items()}


def answers() -> dict[str, str]:
    """Unusual right answers by name."""
    found = _cases("policy_answers.txt")
    return {n: s if "__future__" in s else IMPORTS + s for n, s in found.items()}
