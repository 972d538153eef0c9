"""Functions of numbers."""

from __future__ import annotations

from penstock.duckdb.expressions.entry import INTEGERS, Entry, cases

_STRICT = "its result may differ from Java's in the last digit"
_NONDETERMINISTIC_DIGITS = (
    ("Exp", "exp"),
    ("Expm1", "expm1"),
    ("Log", "ln, log"),
    ("Log10", "log10"),
    ("Log2", "log2"),
    ("Log1p", "log1p"),
    ("Sin", "sin"),
    ("Cos", "cos"),
    ("Tan", "tan"),
    ("Asin", "asin"),
    ("Acos", "acos"),
    ("Atan", "atan"),
    ("Sinh", "sinh"),
    ("Cosh", "cosh"),
    ("Tanh", "tanh"),
    ("Cbrt", "cbrt"),
)


_EXACT_DIGITS = 14
"""The number of digits up to which Java and DuckDB round the text of a double to the same decimal.

Java 17 writes some doubles with a last digit that is not the closest, but none of a decimal of up to 15 digits. So both
write a tie, which has one digit more than the result, in the same way."""
_MAX_ROUNDED_DIGITS = 9
_LONG_DECIMAL = "a decimal of more than 34 digits, to which Spark rounds it"


def _rounded_double(digits: int) -> Entry:
    """Return an entry that rounds the text of a double, as Spark does."""
    decimal = f"CAST(CAST($0 AS VARCHAR) AS DECIMAL(15,{digits}))"
    branches = {
        "isnan($0) OR isinf($0)": "$0",
        f"abs($0) < 0.4e-{digits}::DOUBLE": "0::DOUBLE",
        f"abs($0) >= 1e{_EXACT_DIGITS - digits}::DOUBLE": "error('a number of many digits')",
        "NOT contains(CAST($0 AS VARCHAR), 'e')": f"CAST({decimal} AS DOUBLE)",
    }
    sql = cases(branches, "a number of many digits")
    example = "round(double1)" if digits == 0 else f"round(double1, {digits})"
    reason = f"a number of digits that is not constant, negative, or above {_MAX_ROUNDED_DIGITS}"
    return Entry("Round(double, int)", sql, "round", (example,), constants={1: str(digits)}, reason=reason)


ENTRIES = (
    Entry("Abs(integer)", "abs($0)", "abs", ("abs(int1)", "abs(long1)", "abs(byte1)")),
    Entry("Abs(decimal<=34)", "abs($0)", "abs", ("abs(dec1)",)),
    Entry("Abs(decimal)", None, "abs", reason=_LONG_DECIMAL),
    Entry("UnaryMinus(decimal)", None, "-", reason=_LONG_DECIMAL),
    Entry("Abs(floating)", "abs($0)", "abs", ("abs(double1)", "abs(float1)")),
    Entry(
        "UnaryMinus(integer|decimal<=34|floating)", "(-$0)", "-", ("-int1", "-dec1", "-double1", "-float1", "-long1")
    ),
    Entry("UnaryPositive(any)", "$0", "+", ("+int1",)),
    Entry(
        "Signum(Cast(integer|decimal))",
        "CAST(sign($0) AS DOUBLE)",
        "sign, signum",
        ("sign(int1)", "sign(dec1)", "sign(long1)"),
    ),
    Entry(
        "Signum(double)",
        "(CASE WHEN $0 = 0 OR isnan($0) THEN $0 ELSE CAST(sign($0) AS DOUBLE) END)",
        "sign, signum",
        ("sign(double1)",),
    ),
    Entry("Ceil(integer)", "CAST($0 AS $type)", "ceil, ceiling", ("ceil(int1)", "ceil(long1)")),
    Entry("Floor(integer)", "CAST($0 AS $type)", "floor", ("floor(int1)", "floor(long1)")),
    Entry("Ceil(decimal)", "CAST(ceil($0) AS $type)", "ceil, ceiling", ("ceil(dec1)", "ceil(wide1)")),
    Entry("Floor(decimal)", "CAST(floor($0) AS $type)", "floor", ("floor(dec1)", "floor(wide1)")),
    *(
        Entry(
            f"{name}(double)",
            f"(CASE WHEN $0 >= -9223372036854774784 AND $0 <= 9223372036854774784 THEN CAST({function}($0) AS BIGINT) "
            "WHEN $0 IS NOT NULL THEN error('a number that does not fit') END)",
            functions,
            (f"{function}(double1)",),
        )
        for name, function, functions in (("Ceil", "ceil", "ceil, ceiling"), ("Floor", "floor", "floor"))
    ),
    Entry(
        "Round(decimal, int)",
        "CAST(round($0, $1) AS $type)",
        "round",
        ("round(dec1, 1)", "round(dec1)", "round(wide1, 3)", "round(dec1, 5)"),
        constants={1: r"\d{1,2}"},
        reason="a number of digits that is not constant, or negative",
    ),
    Entry(
        f"Round({INTEGERS}, int)",
        "$0",
        "round",
        ("round(int1)", "round(long1, 2)"),
        constants={1: r"\d+"},
        reason="a number of digits that is not constant, or negative",
    ),
    *map(_rounded_double, range(_MAX_ROUNDED_DIGITS + 1)),
    Entry(
        "Round(floating, int)",
        None,
        "round",
        reason="a floating-point number that is rounded to many digits, or a float",
    ),
    Entry("BRound(floating|decimal|integer, int)", None, "bround", reason="rounding to the even neighbour (bround)"),
    Entry("Sqrt(double)", "sqrt($0)", "sqrt", ("sqrt(double1)", "sqrt(int1)")),
    *(
        Entry(f"{name}(double)", None, functions, reason=f"{functions}: {_STRICT}")
        for name, functions in _NONDETERMINISTIC_DIGITS
    ),
    Entry("Pow(double, double)", None, "pow, power", reason=f"pow: {_STRICT}"),
    Entry(
        "Remainder(integer, same)",
        "(CASE WHEN $1 = 0 THEN $invalid WHEN $1 = -1 THEN CAST($0 * 0 AS $type) ELSE $0 % $1 END)",
        "%, mod",
        ("int1 % int2", "long1 % long2", "int1 % 7", "byte1 % byte1"),
    ),
    Entry(
        "Pmod(integer, same)",
        "(CASE WHEN $1 = 0 THEN $invalid WHEN $1 < 0 THEN error('a negative divisor') WHEN $0 % $1 < 0 "
        "THEN CAST($0 % $1 + $1 AS $type) ELSE $0 % $1 END)",
        "pmod",
        ("pmod(int1, int2)", "pmod(long1, long2)", "pmod(int1, 7)", "pmod(byte1, byte1)"),
    ),
    Entry(
        "IntegralDivide(integer, same)",
        "(CASE WHEN $1 = 0 THEN $invalid ELSE CAST($0 // $1 AS $type) END)",
        "div",
        ("int1 div int2", "long1 div long2", "long1 div 10"),
    ),
    Entry("BitwiseAnd(integer, same)", "($0 & $1)", "&", ("int1 & int2", "long1 & long2", "byte1 & byte1")),
    Entry("BitwiseOr(integer, same)", "($0 | $1)", "|", ("int1 | int2", "long1 | long2")),
    Entry("BitwiseXor(integer, same)", "xor($0, $1)", "^", ("int1 ^ int2", "long1 ^ long2", "2 ^ int1")),
    Entry("BitwiseNot(integer)", "(~$0)", "~", ("~int1", "~long1", "~byte1")),
    Entry(
        "BitwiseCount(integer)",
        "CAST(bit_count(CAST($0 AS BIGINT)) AS INTEGER)",
        "bit_count",
        ("bit_count(int1)", "bit_count(long1)", "bit_count(byte1)"),
    ),
    Entry("BitwiseCount(boolean)", "CAST($0 AS INTEGER)", "bit_count", ("bit_count(bool1)",)),
    Entry(
        "ShiftRight(int|bigint, int)",
        "($0 >> $1)",
        ">>, shiftright",
        ("shiftright(int1, 3)", "shiftright(long1, 31)", "int1 >> 0"),
        constants={1: r"\d|[12]\d|3[01]"},
        reason="a shift by a number that is not constant, or above 31",
    ),
    Entry(
        "ShiftLeft(int, int)",
        "CAST(xor((CAST($0 AS BIGINT) * (1::BIGINT << $1)) & 4294967295, 2147483648) - 2147483648 AS INTEGER)",
        "<<, shiftleft",
        ("shiftleft(int1, 3)", "int1 << 31", "shiftleft(int1, 0)"),
        constants={1: r"\d|[12]\d|3[01]"},
        reason="a shift by a number that is not constant, or above 31",
    ),
    Entry("ShiftLeft(bigint, int)", None, "<<, shiftleft", reason="a shift of 64 bits to the left"),
    Entry("ShiftRightUnsigned(int|bigint, int)", None, ">>>, shiftrightunsigned", reason="an unsigned shift"),
    Entry("Hex(bigint)", "hex($0)", "hex", ("hex(long1)", "hex(int1)")),
    Entry("Bin(bigint)", "bin($0)", "bin", ("bin(long1)", "bin(int1)")),
    Entry("IsNaN(floating)", "coalesce(isnan($0), false)", "isnan", ("isnan(double1)", "isnan(float1)")),
    Entry(
        "NaNvl(floating, same)",
        "(CASE WHEN isnan($0) THEN $1 ELSE $0 END)",
        "nanvl",
        ("nanvl(double1, double2)", "nanvl(float1, float2)"),
    ),
    Entry("Murmur3Hash(any*)", None, "hash", reason="Spark's hash of values"),
    Entry("XxHash64(any*)", None, "xxhash64", reason="Spark's hash of values"),
)
