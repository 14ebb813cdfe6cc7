"""Numbers in texts as the world writes them: other groups, separators and digits, and what only resembles a group."""

import unicodedata

import pytest
from vernacular.types import last_number

DIGITS = ["٠", "۰", "०", "০", "੦", "૦", "୦", "௦", "౦", "೦", "൦", "๐", "໐", "༠", "၀", "០", "᠐", "０", "߀", "᱐", "𞥐"]


def in_digits(number: str, zero: str) -> str:
    return "".join(chr(ord(zero) + int(char)) if char.isdecimal() else char for char in number)


@pytest.mark.parametrize("zero", DIGITS, ids=unicodedata.name)
@pytest.mark.parametrize(
    ("written", "value"),
    [("1,25,000", "125000"), ("1٬234٫50", "1234.5"), ("0.125", "0.125"), ("-7", "-7"), ("12 345,6", "12345.6")],
)
def test_digits_of_every_script(zero, written, value):
    assert last_number(f"= {in_digits(written, zero)}।") == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Rs 12,34,56,789.25", "123456789.25"),  # crores
        ("رقم ٢٣،٤٥٦", "23456"),  # the comma of Arabic
        ("CHF 2'345'678.90", "2345678.9"),
        ("3\u2009456\u2009789,5 km", "3456789.5"),
        ("１，２３４．５", "1234.5"),
        ("1,2345,6789", "123456789"),  # myriads
        (r"$3{,}456$ or 3\,456", "3456"),
        ("2.345.678,9", "2345678.9"),
        ("2,345.678", "2345.678"),  # a separator divides groups or is the point
        ("−4,5", "-4.5"),
        ("-\u200e5", "-5"),
        ("\u2067−\u200f٣٫٥\u2069", "-3.5"),
        ("In 1999 250 people", "250"),
        ("1999, 250, 300", "300"),
        ("12,345,67", "12345.67"),
        ("1.23", "1.23"),
        ("en total 6.02e23", "602" + 21 * "0"),
        ("-1.5E-3 m", "-0.0015"),
        (r"$3{,}5 \times 10^{6}$", "3500000"),
        ("4 x 10 = 40", "40"),
        ("2·10⁻²", "0.02"),
        ("3 x 10", "10"),
        ("1_000_000", "1000000"),
        ("12‘345", "12345"),
        ("123456789012345678901234567890123456789", "123456789012345678901234567890123456789"),
        ("o modelo 5e", "5"),
    ],
)
def test_groups_and_separators(text, value):
    assert last_number(text) == value


def test_lakhs_of_different_numbers_are_different():
    assert len({last_number(f"₹{n},00,000") for n in range(1, 10)}) == 9
