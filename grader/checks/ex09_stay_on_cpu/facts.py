"""The batches of ex09_stay_on_cpu: how many are prepared, and which kinds are predicted from."""

BATCHES = ("batch 0", "batch 1")
"""The values that `prepare` returns, call by call."""
COMMITMENTS = ("committed", "uncommitted")
"""How the batches that `predict` gets are placed on the CPU, call by call."""


def prediction(commitment: str) -> str:
    """The name of the value that `predict` returns for a batch of that commitment."""
    return f"prediction {commitment}"
