"""numeric_match: notations, units, which number counts, and that no text makes it slow or wrong."""

from __future__ import annotations

import subprocess
import sys
import time
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.errors import ConfigError
from deskroll.scoring import Tolerance, compare, score_answer
from tests.scoring.hostile import HUGE


def value(answer: str, reference: str) -> float | None:
    return compare("numeric_match", answer, reference).value


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        # separators
        ("1,234,567", "1234567"), ("1 234 567", "1234567"), ("1\u202f234\u00a0567", "1234567"), ("1_234", "1234"),
        ("1'234'567", "1234567"), ("1’234", "1234"), ("12,34,567", "1234567"), ("1,2345,6789", "123456789"),
        ("1.234.567", "1234567"), ("1.234,56", "1234.56"), ("1,234.5", "1234.5"), ("3,14", "3.14"), ("0,5", "1/2"),
        ("12{,}345", "12345"), ("1\\,234", "1234"), (".5", "0.5"), ("5.", "5"), ("007", "7"),
        ("0,125", "1/8"), ("-0,125", "-0.125"), ("0,333", "0.333"), ("1234,567", "1234.567"), ("1 234,567", "1234.567"),
        # fractions
        ("\\cfrac{1}{2}", "1/2"), ("\\tfrac{1}{2}", "1/2"), ("\\dfrac{1}{2}", "1/2"), ("\\nicefrac12", "1/2"),
        ("0.\\dot{3}", "1/3"), ("-0.1\\dot6", "-1/6"), ("0.\\overline{142857}", "1/7"), ("0.\\bar{3}", "1/3"),
        ("0.\\dot{1}4285\\dot{7}", "1/7"), ("33.\\dot{3}%", "1/3"),
        ("3/4", "0.75"), ("1 1/2", "1.5"), ("\\frac{3}{4}", "0.75"), ("\\dfrac34", "0.75"), ("½", "0.5"), ("1½", "1.5"),
        ("-½", "-0.5"), ("1\\frac{1}{2}", "3/2"), ("-\\frac{3}{4}", "-0.75"), ("3⁄4", "0.75"), ("３／４", "0.75"),
        ("0.333333", "1/3"), ("6/8", "3/4"),
        # powers of ten
        ("1.2e-3", "0.0012"), ("1.2E+3", "1200"), ("1.2×10^-3", "0.0012"), ("1.2*10**5", "120000"),
        ("1.2×10⁻³", "0.0012"), ("1.2 x 10^{5}", "120000"), ("1.2 \\times 10^{5}", "120000"), ("10^5", "100000"),
        ("2^10", "1024"), ("5²", "25"), ("6.02·10^(23)", "6.02e23"), ("1e400", "10^400"),
        # signs
        ("−5", "-5"), ("–5", "-5"), ("+5", "5"), ("minus 5", "-5"), ("负5", "-5"), ("= - 5", "-5"), ("(-5)", "-5"),
        ("10-5", "5"), ("3–5", "5"), ("为-5", "-5"), ("-0", "0"),
        ("零下5度", "-5"), ("气温是零下 5 度", "-5 °C"), ("温度=零下5", "-5"), ("Answer: - 5", "-5"),
        # other digits, and magnitudes
        ("４２", "42"), ("٤٢", "42"), ("१२", "12"), ("３．５", "3.5"), ("3万", "30000"), ("1.5亿", "150000000"),
        ("1亿2000万", "120000000"), ("3万5千", "35000"), ("2万亿", "2e12"), ("1.5 million", "1500000"), ("5k", "5000"),
        ("$2B", "2 billion"), ("$5k", "5,000"), ("3 thousand", "3000"),
        # percent
        ("50%", "0.5"), ("0.5", "50%"), ("50", "50%"), ("50%", "50"), ("50 percent", "50%"), ("５０％", "1/2"),
        ("50\\%", "50%"), ("百分之50", "50%"), ("5‰", "0.005"), ("5‰", "0.5%"), ("12.5 per cent", "1/8"),
        # money
        ("$5", "5"), ("$5", "5 USD"), ("US$5", "5 dollars"), ("-$5", "-5"), ("$-5", "-5"), ("€5", "5 euros"),
        ("5元", "RMB 5"), ("￥5", "5元"), ("¥5", "5 yen"), ("$1,234.50", "1234.5"), ("£5", "5 pounds"),
        ("US$5", "$5"), ("A$5", "5 AUD"), ("A\\$5", "AU$5"), ("HK$5", "5港元"), ("C$5", "5 Canadian dollars"),
        ("A$5", "5"), ("x = A$5", "5 AUD"),
        # words that are no units
        ("5 apples", "5"), ("5 cats", "5 dogs"), ("5个", "5"), ("5th", "5"), ("7am", "7"), ("5 in the end", "5"),
        ("25C", "25"), ("5 points", "5 m"), ("5K", "5"), ("300K", "300 K"), ("x = 5K", "5 m"),
        # LaTeX and Markdown around
        ("$5$", "5"), ("$\\frac{1}{2}$", "0.5"), ("\\(5\\)", "5"), ("**5**", "5"), ("`5`", "5"), ("$$5$$", "5"),
        ("$5$ and no more", "5 €"),
    ],
)  # fmt: skip
def test_the_same_number(answer: str, reference: str) -> None:
    score = compare("numeric_match", answer, reference)
    assert score.value == 1.0, score.reason
    assert score.reason.startswith("numeric_match with the reference answer: ")


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("5", "6"), ("5", "-5"), ("5.001", "5"), ("0.3333", "1/3"), ("3.14", "3.14159"), ("1,234", "1.234"),
        ("50", "0.5"), ("50%", "0.05"), ("5%", "5‰"), ("50%", "50 km"), ("1e-12", "2e-12"), ("1e-30", "1e-31"),
        ("10^5", "10^6"), ("3万", "3"), ("$5", "€5"), ("$5", "5元"), ("1e-8", "0"), ("0", "0.1"), ("", "5"),
        ("no", "5"), ("infinity", "5"), ("∞", "1e400"), ("nan", "5"), ("1e999999999", "1e400"), ("9^999999", "9"),
        ("1/0", "0"),
        ("3x", "3"), ("x^2", "2"), ("2\\sqrt{3}", "3"), ("3π", "3"), ("π/4", "4"), ("\\frac{\\pi}{4}", "4"),
        ("6*sqrt(10)", "6"), ("sqrt(10)", "10"), ("2 sqrt(3)", "3"), ("10/3*pi", "10/3"), ("2pi", "2"), ("pi*4", "4"),
        ("H2O", "2"), ("2024-05-01", "1"), ("12/25/2024", "2024"), ("2024年5月1日", "1"), ("12:30", "30"),
        ("1.2.3", "3"), ("3:4", "4"), ("5 ± 0.1", "0.1"), ("1" * 500, "1"), ("five", "5"), ("4D", "4"),
        # neither groups of thousands nor a decimal comma nor a list
        ("0,125", "125"), ("0,333", "333"), ("1234,567", "567"), ("0,125,000", "125000"), ("1234,567,890", "567890"),
        ("12,345,67", "67"), ("0,125.5", "125.5"), ("0.125.000", "125000"), ("1,2,345", "345"),
        # powers and roots that are not worked out, other bases, recurring digits that cannot be read
        ("4^0.5", "0.5"), ("4^{0.5}", "4"), ("8^{1/3}", "8/3"), ("4**0.5", "0.5"), ("1,234**0.5", "0.5"),
        ("1/4^0.5", "0.5"), ("3×10^0.5", "3"), ("4^0,5", "5"), ("4^(x+5)", "5"), ("\\sqrt[3]{8}", "8"),
        ("\\sqrt[3]{8}", "3"), ("0b11", "0"), ("0b11", "0 bit"), ("0x1F", "1"), ("0.\\dot{3}5", "5"),
        ("0.\\dot{3}", "3"), ("0.\\overline{x}", "0"), ("0.3\u0307", "0.3"), ("0.1\u03074\u0307", "4"),
        ("5K", "5000"),
        # other currencies
        ("A$5", "$5"), ("HK$5", "$5"), ("C$5", "US$5"), ("5 AUD", "5 USD"), ("A$5", "C$5"), ("NT$5", "HK$5"),
        ("5澳元", "5美元"),
    ],
)  # fmt: skip
def test_another_number_or_none(answer: str, reference: str) -> None:
    assert value(answer, reference) == 0.0


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("5 km", "5000 m", 1), ("5 km", "5 m", 0), ("5 km", "5", 1), ("5", "5 km", 1), ("5 km", "5 kg", 0),
        ("5km", "5 kilometers", 1), ("5 Kilometres", "5公里", 1), ("36 km/h", "10 m/s", 1),
        ("36 km per hour", "10 m/s", 1), ("10 米/秒", "36 km/h", 1), ("9.8 m/s²", "9.8 m/s^2", 1),
        ("9.8 m s^-2", "9.8 m/s/s", 1), ("5 m²", "5 sqm", 1),
        ("5 square meters", "50000 cm^2", 1), ("5平方米", "5 m2", 1), ("1 L", "1000 cm³", 1), ("25 °C", "298.15 K", 1),
        ("77 °F", "25°C", 1), ("25 degrees Celsius", "25 ℃", 1), ("25^\\circ C", "25 °C", 1),
        ("25 degrees", "25 °C", 1), ("0 °C", "0 K", 0), ("0 °C", "32 °F", 1), ("180°", "3.14159265 rad", 1),
        ("1 kWh", "3.6 MJ", 1),
        ("1 N m", "1 J", 1), ("4.18 J/(g·K)", "4180 J/(kg·°C)", 1), ("1 GB", "1000 MB", 1), ("1 GiB", "1024 MiB", 1),
        ("8 Mb", "1 MB", 1), ("1 hour", "60 min", 1), ("2小时", "120分钟", 1), ("5 feet", "1.524 m", 1),
        ("1 in", "2.54 cm", 1), ("10 lbs", "4.5359237 kg", 1), ("60 mph", "26.8224 m/s", 1), ("1 atm", "101325 Pa", 1),
        ("5 μm", "5000 nm", 1), ("5 µm", "5 um", 1), ("3 kΩ", "3000 ohms", 1), ("5\\text{ km}", "5000 m", 1),
        ("5\\,\\mathrm{km}", "5 km", 1), ("1e3 m", "1 km", 1), ("1/2 km", "500 m", 1), ("5 KM", "5 km", 1),
        ("1 rad", "1 bit", 0), ("1 m", "1 m^2", 0), ("5 $", "5 m", 0), ("1.6e-19 C", "1.6e-19", 1), ("5 ㎞", "5 km", 1),
        ("1,5 km", "1500 m", 1), ("2 dozen m", "2 m", 1), ("1 week", "7 days", 1), ("-40 °C", "-40 °F", 1),
        ("5 K", "-268.15 °C", 1), ("5\\text{K}", "-268.15 °C", 1), ("5K", "5 °C", 1), ("5K/s", "5 m/s", 0),
        ("每小时36公里", "36 km/h", 1), ("每小时行驶36公里", "10 m/s", 1), ("每小时36公里", "36 km", 1),
        ("每小时36公里", "36 km/s", 0), ("每天8小时", "8 hours", 1), ("每分钟60米", "每秒1米", 1),
        ("每小时36公里", "36 kg", 0),
    ],
)  # fmt: skip
def test_units(answer: str, reference: str, expected: float) -> None:
    score = compare("numeric_match", answer, reference)
    assert score.value == expected, score.reason


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("150 minutes", "2 hours 30 minutes", 1), ("2.5 hours", "2 hours 30 minutes", 1),
        ("30 minutes", "2 hours 30 minutes", 0), ("2 hours", "2 hours 30 minutes", 0),
        ("2 h, 30 min", "2 hours and 30 minutes", 1), ("2h30min", "150 min", 1), ("2h30min", "2 h", 0),
        ("2 hours, and 30 minutes", "9000 s", 1), ("It took 2 Hours AND 30 Minutes.", "2.5 h", 1),
        ("11 inches", "5 feet 11 inches", 0), ("71 inches", "5 feet 11 inches", 1), ("5 ft 11 in", "1.8034 m", 1),
        ("5小时30分钟", "330分钟", 1), ("5小时又30分钟", "5.5 hours", 1), ("1小时零5分钟", "65分钟", 1),
        ("90 s", "1 min 30 s", 1), ("30 s", "1 min 30 s", 0), ("3 lb 4 oz", "52 oz", 1),
        ("1 day, 2 hours and 30 minutes", "26.5 h", 1), ("2 years 3 months", "27 months", 1),
        ("3 months 10 days", "10 days", 0), ("1 km 500.5 m", "1500.5 m", 1), ("-2 hours 30 minutes", "-150 min", 1),
        ("The answer is 2 hours 30 minutes, of 5 hours.", "150 min", 1), ("t = 2 h 30 min", "150 min", 1),
        ("\\boxed{2\\text{ h }30\\text{ min}}", "150 min", 1), ("每天2小时30分钟", "2.5 hours", 1),
        # other kinds, no units, lists, the same twice, ranges, another line: the last one counts
        ("5 km, 30 minutes", "30 min", 1), ("2 apples and 3 pears", "3", 1), ("3 m, 2 m", "2 m", 1),
        ("3 m, 2 m and 1 m", "1 m", 1), ("30 minutes 2 hours", "2 h", 1), ("2 hours, 120 minutes", "120 min", 1),
        ("2.5 hours, 30 minutes", "30 min", 1), ("1 inch, 2.5 cm", "2.5 cm", 1), ("1 mile, 1.6 km", "1.6 km", 1),
        ("2 hours to 30 minutes", "30 min", 1), ("2 h - 30 min", "30 min", 1), ("2 hours or 30 minutes", "30 min", 1),
        ("2 hours\n30 minutes", "30 min", 1), ("2 hours; 30 minutes", "30 min", 1), ("2 hours and 30", "30", 1),
        ("20 °C 5 °F", "5 °F", 1), ("5 $ 30 minutes", "30 min", 1), ("50% 30 minutes", "30 min", 1),
        ("2 hours (30 minutes)", "2 h", 1),
    ],
)  # fmt: skip
def test_a_quantity_in_several_units_is_one(answer: str, reference: str, expected: float) -> None:
    score = compare("numeric_match", answer, reference)
    assert score.value == expected, score.reason


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("First 3, then 4, so 7", "7"), ("\\boxed{7} and 8", "7"), ("\\boxed{6} no, \\boxed{7}. 3 tries", "7"),
        ("\\boxed{\\frac{1}{2}} of 4", "0.5"), ("\\boxed{x = 7}", "7"), ("\\boxed{7\\text{ km}}", "7 km"),
        ("The answer is 7 km, about 4.35 miles.", "7 km"), ("The answer is 7. I checked 3 times.", "7"),
        ("**Answer:** 7\nI used 2 steps.", "7"), ("Answer: 3 + 4 = 7", "7"), ("The answer is:\n\n7\n\n3 notes", "7"),
        ("The answer is as follows:\n3 + 4 = 7", "7"), ("答案是7，共3步", "7"), ("答案：7。因为3+4", "7"),
        ("3 + 4 #### 7", "7"), ("x = 3 + 4 = 7 (rounded to 2 places)", "7"), ("7 km (4.35 mi)", "7 km"),
        ("f(3) = 7", "7"), ("(7)", "7"), ("so x ≈ 7.", "7"), ("I got 7, see section (3)", "7"), ("1,2,7", "7"),
        ("the answer is unclear, but 3 or 7", "3"), ("The answer is 3. No, the answer is 7", "7"),
        ("4 = \\sqrt{16}", "4"), ("sqrt(16) = 4", "4"), ("Raspberry Pi 4", "4"),
        ("It was 2024-05-01 when 7 came", "7"), ("7 in version 1.2.3", "7"),
        # nothing before a number reaches over the end of a line
        ("Total\n7", "7"), ("The total is\n7", "7"), ("Final Answer\n7", "7"), ("sum\n-7", "-7"), ("a) 3\nb\n7", "7"),
        ("-\n7", "7"), ("x_\n7", "7"), ("±\n7", "7"), ("Total\r\n7", "7"), ("-\u20287", "7"), ("minus\n7", "7"),
        ("The answer is:\n- 7", "7"), ("3\n$7", "$7"),
        # nor anything behind it
        ("7\nmillion", "7"), ("3\n* 10^1", "10"), ("7\n√", "7"), ("7\n^2", "7"), ("3\n/ 7", "7"),
        ("7 km\nper hour", "7 km"),
        # citations
        ("7 [1]", "7"), ("7[1]", "7"), ("7 km [1][2].", "7 km"), ("7 [1, 2]", "7"), ("7 [1-3]", "7"),
        ("7 [1] km", "7 km"), ("It is 7 today [12].", "7"), ("x = 7 [1]", "7"), ("3[1]7", "7"),
        ("7 [[1]](https://example.org/3)", "7"),
        ("7【4:0†source】", "7"), ("[7]", "7"), ("I take [7]", "7"), ("After 3 tries it is [7]", "7"),
        ("3 tries: [7]", "7"), ("[3, 7]", "7"), ("\\[7\\]", "7"),
        ("The answer is 7" + " because" * 200, "7"), ("3 " * 4000 + "and 7", "7"),
    ],
)  # fmt: skip
def test_which_number_counts(answer: str, expected: str) -> None:
    score = compare("numeric_match", answer, expected)
    assert score.value == 1.0, score.reason
    assert value(answer, "12345") == 0.0


@pytest.mark.parametrize(
    "reference", ["", "Paris", "2\\sqrt{3}", "6*sqrt(10)", "pi/4", "3x", "2024-05-01", "\\boxed{}", "∞", "1" * 500]
)
def test_a_reference_without_a_number_gives_no_score(reference: str) -> None:
    score = compare("numeric_match", "5", reference)
    assert (score.value, score.scored) == (None, False)
    assert "the reference answer holds no plain number" in score.reason


def test_the_reason_names_both_numbers() -> None:
    assert compare("numeric_match", "It is 5 km.", "6 m").reason.endswith(": 5 kilometer does not match 6 meter")
    assert compare("numeric_match", "50%", "$7").reason.endswith(": 50% does not match 7 USD")
    assert compare("numeric_match", "1e400", "7").reason.endswith(": a number of 401 digits does not match 7")
    assert compare("numeric_match", "no", "7").reason == "numeric_match: the answer holds no plain number"


async def test_tolerance_is_of_the_larger_number_and_absolute_at_zero() -> None:
    wide = Tolerance(relative=0.01, absolute=0.1)
    for answer, reference, expected in [
        ("99", "100", 1.0), ("98.9", "100", 0.0), ("0.05", "0", 1.0), ("0.2", "0", 0.0), ("0.005", "0.01", 0.0),
        ("26 °C", "25 °C", 0.0), ("25.2 °C", "25 °C", 1.0),
    ]:  # fmt: skip
        assert compare("numeric_match", answer, reference, tolerance=wide).value == expected
        assert (await score_answer("numeric_match", answer, reference, tolerance=wide)).value == expected
    assert compare("numeric_match", "1.0000001", "1", tolerance=Tolerance(relative=0)).value == 0.0
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=r"tolerance\.relative is .*; allowed: 0 or more"):
            Tolerance(relative=wrong)


@pytest.mark.parametrize("name", HUGE)
def test_huge_texts_take_no_time(name: str) -> None:
    begun = time.process_time()
    for answer, reference in ((HUGE[name], "7 km"), ("7 km", HUGE[name]), (HUGE[name] + " 7 km", "7000 m")):
        assert compare("numeric_match", answer, reference).value in (None, 0.0, 1.0)
    assert time.process_time() - begun < 10


def test_the_end_of_a_long_answer_is_read() -> None:
    assert value("3 is one of them. " * 100_000 + "It comes to 7", "7") == 1.0


def test_pint_is_loaded_only_where_two_units_differ() -> None:
    script = (
        "import sys; from deskroll.scoring import compare\n"
        "assert compare('numeric_match', '5 km', '5 km').value == 1\n"
        "assert 'pint' not in sys.modules\n"
        "assert compare('numeric_match', '5 km', '5000 m').value == 1\n"
        "assert 'pint' in sys.modules\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


WRITTEN = st.text(alphabet="0123456789.,-+eE%/ ^{}()$\\frac=kmsKC°×½²万亿分之百x_:'answeri", max_size=60)


@given(st.text() | WRITTEN, st.text() | WRITTEN)
def test_any_two_texts_can_be_compared_in_either_order(one: str, other: str) -> None:
    forth, back = value(one, other), value(other, one)
    assert forth in (None, 0.0, 1.0)
    if forth is not None and back is not None:
        assert forth == back


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**12), max_value=10**12))
def test_a_number_is_itself_in_every_notation(number: Decimal) -> None:
    grouped = f"{number:,}"
    apart = [grouped.replace(",", each) for each in ("_", " ", "'")]
    around = [f"It is {number}.", f"\\boxed{{{number}}}", f"答案是{number}。", f"{number} km"]
    for written in (f"{number:e}", grouped, *apart, *around):
        assert value(written, str(number)) == 1.0, written


@given(st.fractions(min_value=-1000, max_value=1000, max_denominator=1000))
def test_a_fraction_is_itself(number: Fraction) -> None:
    latex = f"\\frac{{{number.numerator}}}{{{number.denominator}}}"
    assert value(latex, str(number)) == value(str(number), latex) == 1.0
