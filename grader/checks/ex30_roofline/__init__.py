"""ex30_roofline: what a kernel does and moves, and which ceiling holds it down."""

from grader.judging.checking import Exercise

EXERCISE = Exercise(
    title="Place a kernel under the roofline",
    lesson="lessons/17-measure-before-you-tune",
    anchor="count-first",
    edits=("matmul_cost", "poly_cost", "place"),
    hints=(
        "Count what a kernel must do and must move, before you ask how fast it is.",
        "A product of (m, k) and (k, n) has m * n results, of k multiplications and k additions "
        "each. Every array is read or written once.",
        "intensity = flops / nbytes; attainable = min(peak_flops, intensity * peak_bandwidth); "
        "the lower of the two names the bound.",
    ),
)
