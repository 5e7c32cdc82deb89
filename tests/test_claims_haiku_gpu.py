"""Proofs of the claims of *Why is my JAX + Haiku code not using the GPU?* (S0).

`proving` says how they run; `test_claims` that every claim of the ledger has one.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from proving import fresh


@pytest.mark.proves("S0-07: false")
def test_every_array_lies_on_a_device_from_birth() -> None:
    born = jnp.asarray(np.ones(3))
    assert born.devices() == {jax.devices()[0]}
    assert not born.committed  # what is optional is not the device, but the commitment
    assert jax.device_put(born, jax.devices()[1]).committed


@pytest.mark.gpu
@pytest.mark.proves("S0-08: false", "S0-02: false")
def test_arrays_are_born_on_the_gpu() -> None:
    ended = fresh("import jax.numpy as jnp; print(jnp.ones(3).devices())", gpu=True)
    assert "CudaDevice" in ended.out
