"""The numbers that a file names, however it writes them down."""

import time

import pytest

from grader.source.numbers import HOW_MANY, own


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("if step > 200: read()", 200),
        ("N = 8 * 25\nfor n in range(N): pass", 200),
        ("MANY = 200\nif step > MANY * 3: read()", 600),
        ("if x.nbytes > 1 << 14: read()", 16384),
        ("if x.size >= 10**6: read()", 1e6),
        ("if step > 1_000 // 3: read()", 333),
        ("if step > int('200'): read()", 200),
        ("if step > len(('a',) * 200): read()", 200),
        ("if step > len(range(200)): read()", 200),
        ("if step > len('abcde'): read()", 5),
        ("if step > round(2e2): read()", 200),
        ("if loss < -1e30: read()", 1e30),
        ("if loss < 0.37: read()", 0.37),
        ("if step == 5 - -4: read()", 9),
        ("f(*[0] * 77)", 77),
        ("if step > int('c8', 16): read()", 200),
        ("if step > 2 * ord('d'): read()", 200),
        ("if step > sum([50, 60, 90]): read()", 200),
    ],
)
def test_a_number_is_found_however_it_is_written(text: str, expected: float) -> None:
    assert expected in own(text, "")


@pytest.mark.parametrize(
    "text",
    [
        "if step > limit: read()",
        "step = 1 / 0",
        "step = 10 ** 400",
        "step = 1e999",
        "step = float('nan')",
        "step = int('two hundred')",
        "step = (-8) ** 0.5 if 1 else True",
        "step = int('c8', 1)",
        "step = ord('ab')",
        "this is no Python",
        "\0",
    ],
)
def test_what_is_no_number_is_none(text: str) -> None:
    found = own(text, "")
    assert all(0 < number < 500 for number in found)


def test_numbers_of_the_model_count_only_where_they_come_more_often() -> None:
    model = "def run():\n    return 100, 0.5\n"
    assert own(model, model) == ()
    assert own(model.replace("100", "101"), model) == (101,)
    assert own(model + "LATE = 100\n", model) == (100,)


def test_a_long_sum_and_a_long_list_end() -> None:
    assert own("x = " + "3 + " * 2000 + "3", "")
    assert len(own(f"x = {list(range(5000))}", "")) == HOW_MANY
    assert own(f"x = len([1, 1, 1]{' * 1' * 2000})", "") == (3,)


def test_a_long_text_takes_no_longer_for_each_number() -> None:
    def seconds(lines: int) -> float:
        text = f"x = {'1 + ' * 400}1\n" * lines
        begin = time.process_time()
        assert own(text, "")
        return time.process_time() - begin

    assert min(seconds(40) for _ in range(3)) < 40 * min(seconds(2) for _ in range(3))
