"""Functions of dates."""

from __future__ import annotations

from penstock.duckdb.expressions.entry import UNUSUAL_YEAR, USUAL_YEARS, Entry, cases

_INFINITE = "error('a date that DuckDB reads as infinite')"
_FINITE = f"CASE WHEN isinf($0) THEN {_INFINITE} ELSE $0 END"
_UNITS = {"year": "year|yyyy|yy", "quarter": "quarter", "month": "month|mon|mm", "week": "week"}
_DAYS = {"0": "su|sun|sunday", "1": "mo|mon|monday", "2": "tu|tue|tuesday", "3": "we|wed|wednesday"}
_DAYS |= {"4": "th|thu|thursday", "5": "fr|fri|friday", "6": "sa|sat|saturday"}


def _part(name: str, sql: str, functions: str, example: str = "") -> Entry:
    return Entry(
        f"{name}(date)",
        f"CAST({sql.replace('$0', _FINITE)} AS INTEGER)",
        functions,
        (example or f"{functions.partition(',')[0]}(date1)",),
    )


def _plain(sql: str) -> str:
    """Return SQL that is computed for dates of usual years, and an error for others."""
    return cases({USUAL_YEARS: sql}, UNUSUAL_YEAR)


ENTRIES = (
    _part("Year", "year($0)", "year, extract"),
    _part("Quarter", "quarter($0)", "quarter"),
    _part("Month", "month($0)", "month"),
    _part("DayOfMonth", "day($0)", "day, dayofmonth"),
    _part("DayOfWeek", "dayofweek($0) + 1", "dayofweek"),
    _part("WeekDay", "isodow($0) - 1", "weekday"),
    _part("DayOfYear", "dayofyear($0)", "dayofyear"),
    _part("WeekOfYear", "weekofyear($0)", "weekofyear"),
    _part("YearOfWeek", "isoyear($0)", "extract", "extract(yearofweek from date1)"),
    Entry(
        "DateAdd(date, tinyint|smallint|int)",
        f"CAST(({_FINITE} + $1) AS DATE)",
        "date_add, dateadd, +",
        ("date_add(date2, small1)", "datediff(date_add(date1, 1), date'1970-01-01')"),
    ),
    Entry(
        "DateSub(date, tinyint|smallint|int)",
        f"CAST(({_FINITE} - $1) AS DATE)",
        "date_sub, -",
        ("date_sub(date2, -1)",),
    ),
    Entry(
        "DateDiff(date, date)",
        f"(CASE WHEN isinf($1) THEN {_INFINITE} ELSE CAST({_FINITE} - $1 AS INTEGER) END)",
        "datediff, date_diff",
        ("datediff(date1, date2)",),
    ),
    Entry("LastDay(date)", _plain("last_day($0)"), "last_day", ("last_day(date1)",)),
    Entry(
        "AddMonths(date, int)",
        _plain("CAST($0 + to_months($1) AS DATE)"),
        "add_months",
        ("add_months(date2, 1)", "add_months(date2, -1)", "add_months(date2, int(byte1 % 13))"),
    ),
    *(
        Entry(
            "TruncDate(date, string)",
            _plain(f"CAST(date_trunc('{unit}', $0) AS DATE)"),
            "trunc",
            (f"trunc(date1, '{names.partition('|')[0]}')",),
            constants={1: f"(?i)({names})"},
            reason="a unit that is not constant or unknown",
        )
        for unit, names in _UNITS.items()
    ),
    *(
        Entry(
            "NextDay(date, string)",
            _plain(f"CAST($0 + CAST(({day} - dayofweek($0) + 6) % 7 + 1 AS INTEGER) AS DATE)"),
            "next_day",
            (f"next_day(date2, '{names.rpartition('|')[2]}')",),
            constants={1: f"(?i)({names})"},
            reason="a day of the week that is not constant or unknown",
        )
        for day, names in _DAYS.items()
    ),
    Entry(
        "MakeDate(int, int, int)",
        cases(
            {
                "$0 IS NULL": "NULL",  # before the others, as an error of the year is an error of the expression
                "$1 IS NULL": "NULL",
                "$2 IS NULL": "NULL",
                "$0 BETWEEN 1 AND 9999": "make_date($0, $1, $2)",
            },
            UNUSUAL_YEAR,
        ),
        "make_date",
        ("make_date(year(date1), month(date2), 28)",),
    ),
    Entry("UnixDate(date)", f"CAST({_FINITE} - DATE '1970-01-01' AS INTEGER)", "unix_date", ("unix_date(date1)",)),
    Entry(
        "DateFromUnixDate(int)",
        cases({"$0 BETWEEN -719162 AND 2932896": "CAST(DATE '1970-01-01' + $0 AS DATE)"}, UNUSUAL_YEAR),
        "date_from_unix_date",
        ("date_from_unix_date(small1 * 1000)",),
    ),
)
