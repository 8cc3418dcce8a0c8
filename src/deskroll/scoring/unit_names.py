"""The words that count as units, each with pint's name for it (and a power, where the word has one).

Left out on purpose: what is a unit in one place and a word, another unit or a magnitude in the next (`a`, `at`, `pm`,
`M`, `ton`, a bare `C` or `F`). A number with such a word has no unit, and counts by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

_PREFIXES = {"T": "tera", "G": "giga", "M": "mega", "k": "kilo", "h": "hecto", "d": "deci", "c": "centi", "m": "milli",
             "μ": "micro", "u": "micro", "n": "nano", "p": "pico", "f": "femto"}  # fmt: skip
_BINARY = {"Ki": "kibi", "Mi": "mebi", "Gi": "gibi", "Ti": "tebi"}
_SYMBOLS = {
    "m": "meter", "g": "gram", "s": "second", "A": "ampere", "K": "kelvin", "mol": "mole", "Hz": "hertz",
    "N": "newton", "Pa": "pascal", "J": "joule", "W": "watt", "V": "volt", "Ω": "ohm", "T": "tesla", "H": "henry",
    "Wb": "weber", "S": "siemens", "L": "liter", "l": "liter", "eV": "electron_volt", "Wh": "watt_hour",
    "cal": "calorie", "bar": "bar", "lm": "lumen", "lx": "lux", "Bq": "becquerel", "Gy": "gray", "Sv": "sievert",
    "cd": "candela", "C": "coulomb", "F": "farad", "B": "byte", "b": "bit", "bit": "bit", "t": "metric_ton",
}  # fmt: skip
"""Symbols that take the prefixes above."""
_ONLY_PREFIXED = frozenset("CFHS")
"""A bare `25 C` is a temperature as often as a charge: no unit, the number alone counts."""
_FEW_PREFIXES = {"B": "kMGT", "b": "MGT", "bit": "kMGT", "t": "kMG"}
_PLAIN = {
    "min": "minute", "h": "hour", "hr": "hour", "hrs": "hour", "d": "day", "sec": "second", "secs": "second",
    "mins": "minute", "yr": "year", "yrs": "year", "wk": "week", "ha": "hectare", "ft": "foot", "yd": "yard",
    "yds": "yard", "mi": "mile", "lb": "pound", "lbs": "pound", "oz": "ounce", "gal": "gallon", "mph": "mile_per_hour",
    "kph": "kilometer_per_hour", "kmh": "kilometer_per_hour", "kmph": "kilometer_per_hour", "kn": "knot", "psi": "psi",
    "atm": "standard_atmosphere", "mmHg": "mmHg", "Torr": "torr", "rpm": "revolutions_per_minute", "Å": "angstrom",
    "ly": "light_year", "pc": "parsec", "AU": "astronomical_unit", "au": "astronomical_unit", "rad": "radian",
    "deg": "degree", "°": "degree", "°C": "degree_Celsius", "°F": "degree_Fahrenheit", "°K": "kelvin",
    "degC": "degree_Celsius", "degF": "degree_Fahrenheit", "cc": "cubic_centimeter", "hp": "horsepower",
    "kcal": "kilocalorie", "KB": "kilobyte", "mb": "megabyte", "gb": "gigabyte", "tb": "terabyte", "KM": "kilometer",
    "Km": "kilometer", "KG": "kilogram", "Kg": "kilogram", "kgs": "kilogram", "kms": "kilometer", "cms": "centimeter",
    "CM": "centimeter", "MM": "millimeter", "ML": "milliliter", "KWh": "kilowatt_hour", "KW": "kilowatt",
    "in": "inch", "sqm": "meter 2", "sqft": "foot 2",
}  # fmt: skip
_LONG_PREFIXES = ("", "tera", "giga", "mega", "kilo", "hecto", "deci", "centi", "milli", "micro", "nano", "pico")
_NAMES = {
    "meter": "meter", "metre": "meter", "gram": "gram", "gramme": "gram", "second": "second", "ampere": "ampere",
    "amp": "ampere", "kelvin": "kelvin", "mole": "mole", "hertz": "hertz", "newton": "newton", "pascal": "pascal",
    "joule": "joule", "watt": "watt", "volt": "volt", "ohm": "ohm", "tesla": "tesla", "coulomb": "coulomb",
    "farad": "farad", "henry": "henry", "liter": "liter", "litre": "liter", "byte": "byte", "bit": "bit",
    "calorie": "calorie", "electronvolt": "electron_volt",
}  # fmt: skip
"""Words that take the long prefixes and an s."""
_WORDS = {
    "minute": "minute", "hour": "hour", "day": "day", "week": "week", "month": "month", "year": "year",
    "century": "century", "centuries": "century", "inch": "inch", "inches": "inch", "foot": "foot", "feet": "foot",
    "yard": "yard", "mile": "mile", "pound": "pound", "ounce": "ounce", "tonne": "metric_ton",
    "gallon": "gallon", "quart": "quart", "acre": "acre", "hectare": "hectare", "knot": "knot", "degree": "degree",
    "radian": "radian", "celsius": "degree_Celsius", "centigrade": "degree_Celsius", "fahrenheit": "degree_Fahrenheit",
    "angstrom": "angstrom", "parsec": "parsec", "horsepower": "horsepower", "atmosphere": "standard_atmosphere",
    "micron": "micrometer", "stone": "stone", "carat": "carat",
}  # fmt: skip
CHINESE: Mapping[str, str] = {
    "千米": "kilometer", "公里": "kilometer", "分米": "decimeter", "厘米": "centimeter", "毫米": "millimeter",
    "微米": "micrometer", "纳米": "nanometer", "米": "meter", "千克": "kilogram", "公斤": "kilogram",
    "毫克": "milligram", "克": "gram", "公吨": "metric_ton", "吨": "metric_ton", "毫秒": "millisecond",
    "秒钟": "second", "秒": "second", "分钟": "minute", "个小时": "hour", "小时": "hour", "天": "day", "个月": "month",
    "年": "year", "毫升": "milliliter", "升": "liter", "摄氏度": "degree_Celsius", "华氏度": "degree_Fahrenheit",
    "千瓦时": "kilowatt_hour", "千瓦": "kilowatt", "瓦": "watt", "伏": "volt", "安培": "ampere", "牛顿": "newton",
    "焦耳": "joule", "公顷": "hectare", "平方千米": "kilometer 2", "平方公里": "kilometer 2", "平方米": "meter 2",
    "平方厘米": "centimeter 2", "立方米": "meter 3", "立方厘米": "centimeter 3", "度": "degree",
}  # fmt: skip
MONEY: Mapping[str, str] = {
    "$": "USD", "US$": "USD", "USD": "USD", "dollar": "USD", "dollars": "USD", "美元": "USD", "€": "EUR", "EUR": "EUR",
    "euro": "EUR", "euros": "EUR", "欧元": "EUR", "£": "GBP", "GBP": "GBP", "英镑": "GBP", "CNY": "CNY", "RMB": "CNY",
    "yuan": "CNY", "元": "CNY", "人民币": "CNY", "JPY": "JPY", "yen": "JPY", "円": "JPY", "日元": "JPY", "₹": "INR",
    "INR": "INR", "Rs": "INR", "rupees": "INR", "₩": "KRW", "KRW": "KRW", "₽": "RUB", "CHF": "CHF", "¥": "",
    "A$": "AUD", "AU$": "AUD", "AUD": "AUD", "Australian dollars": "AUD", "澳元": "AUD",
    "C$": "CAD", "CA$": "CAD", "CAD": "CAD", "Canadian dollars": "CAD", "加元": "CAD",
    "HK$": "HKD", "HKD": "HKD", "Hong Kong dollars": "HKD", "港元": "HKD", "港币": "HKD",
    "NZ$": "NZD", "NZD": "NZD", "S$": "SGD", "SGD": "SGD", "NT$": "TWD", "TWD": "TWD", "R$": "BRL", "BRL": "BRL",
}  # fmt: skip
"""Signs and words of money; `¥` may be yen or yuan and counts as no unit."""


def symbols_and_words() -> dict[str, str]:
    """Every symbol and word, with each prefix and plural that it takes: pint's name by how it is written."""
    table = {word + plural: name for word, name in _WORDS.items() for plural in ("", "s")}
    for word, name in _NAMES.items():
        table.update({p + word + plural: p + name for p in _LONG_PREFIXES for plural in ("", "s")})
    for symbol, name in _SYMBOLS.items():
        short = _FEW_PREFIXES.get(symbol, "".join(_PREFIXES))
        table.update({p + symbol: _PREFIXES[p] + name for p in short})
        if symbol not in _ONLY_PREFIXED:
            table[symbol] = name
    table.update({p + symbol: name + _SYMBOLS[symbol] for p, name in _BINARY.items() for symbol in "Bb"})
    return table | _PLAIN
