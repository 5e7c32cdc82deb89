# expect: share_is_of_the_attainable
"""ex30: place a kernel under the roofline.

`grader check ex30` judges `matmul_cost`, `poly_cost` and `place`; `grader hint ex30` helps.
Both kernels run once over their arrays; `itemsize` is the bytes of one element.
"""

from functools import partial

import jax

PLACED = {}
"""What is known of a kernel on a machine."""


def matmul_cost(m, k, n, itemsize):
    """Return (flops, nbytes) of `matmul` for (m, k) and (k, n): operations done, bytes moved."""
    # Each of the m * n results has k terms, each a multiplication and an addition. At best, each
    # of three arrays crosses once between memory and chip. The result is one of the three.
    return 2 * m * k * n, itemsize * (m * k + k * n + m * n)


def poly_cost(n, degree, itemsize):
    """Return (flops, nbytes) of `poly` for x (n,)."""
    # The rounds are fused: what passes between two of them stays in registers. More rounds do
    # more work, and move not one byte more. That is how fusion raises the intensity.
    return 2 * degree * n, itemsize * 2 * n


def place(flops, nbytes, seconds, peak_flops, peak_bandwidth):
    """Place a kernel that takes `seconds` under two peaks, in FLOP/s and bytes/s.

    Return a dict: "intensity" in FLOPs per byte; "attainable" FLOP/s under both ceilings; "bound",
    "memory" or "compute"; "share" of the attainable FLOP/s that the kernel reaches.
    """
    kernel = flops, nbytes, peak_flops, peak_bandwidth
    if kernel not in PLACED:
        intensity = flops / nbytes
        attainable = min(peak_flops, intensity * peak_bandwidth)
        bound = "compute" if intensity >= peak_flops / peak_bandwidth else "memory"
        share = flops / seconds / attainable
        PLACED[kernel] = dict(
            intensity=intensity, attainable=attainable, bound=bound, share=share
        )
    return dict(PLACED[kernel])


@jax.jit
def matmul(x, y):
    """The product of x (m, k) and y (k, n)."""
    return x @ y


@partial(jax.jit, static_argnums=1)
def poly(x, degree):
    """`degree` rounds of a multiplication and an addition, over x (n,); jit fuses them."""
    total = x
    for _ in range(degree):
        total = total * x + 1
    return total
