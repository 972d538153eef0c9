"""Functions of strings."""

from __future__ import annotations

from penstock.duckdb.expressions.entry import Entry, cases

_PORTABLE = (
    "1-DE E0-12F 131-148 14A-17F 400-52F 5D0-5EA 620-64A 900-DFF E00-EFF "
    "2000-206F 20A0-20BF 3040-30FF 4E00-9FFF AC00-D7A3 1F300-1FAFF"
)
"""Characters whose upper and lower case is the same in all releases of Java, ICU and DuckDB: Latin letters that map to
single letters, Cyrillic, scripts without case, symbols and emoji. Greek is excluded, as its final sigma depends on the
position in a word."""
_PORTABLE_CLASS = "\\x{" + _PORTABLE.replace("-", "}-\\x{").replace(" ", "}\\x{") + "}"
_IS_ASCII = "strlen($0) = length($0)"
_PORTABLE_CASE = f"{_IS_ASCII} OR regexp_full_match($0, '[{_PORTABLE_CLASS}]*')"
_NOT_ASCII = "a text with other than ASCII characters"
_LENGTH = r"-?\d{1,5}"
_LITERAL = r"[^\x00\ufffd]+"
_UNKNOWN_REGEX = "a regular expression that is not constant"


def _with_case(name: str, function: str) -> Entry:
    return Entry(
        f"{name}(string)",
        cases({_PORTABLE_CASE: f"{function}($0)"}, "a text with unusual letters"),
        function,
        (f"{function}(str1)",),
        reason="a language with its own upper and lower case",
        locale_sensitive=True,
    )


def _trim(name: str, function: str, side: str) -> tuple[Entry, Entry]:
    return (
        Entry(f"{name}(string)", f"{function}($0, ' ')", function, (f"{function}(str1)",)),
        Entry(
            f"{name}(string, string)",
            f"{function}($0, $1)",
            function,
            (f"trim({side} 'a ' from str1)", f"trim({side} str2 from str1)", f"trim({side} 'é😀' from str1)"),
        ),
    )


def _pad(name: str, function: str) -> Entry:
    return Entry(
        f"{name}(string, int, string)",
        f"(CASE WHEN $2 = '' THEN left($0, greatest($1, 0)) ELSE {function}($0, $1, $2) END)",
        function,
        (
            f"{function}(str1, 5, 'xy')",
            f"{function}(str1, 5, str2)",
            f"{function}(str1, 3, '')",
            f"{function}(str1, -1)",
        ),
        constants={1: _LENGTH},
        reason="a length that is not constant",
    )


ENTRIES = (
    Entry("Length(string)", "CAST(length($0) AS INTEGER)", "length, char_length", ("length(str1)",)),
    Entry("BitLength(string)", "CAST(bit_length($0) AS INTEGER)", "bit_length", ("bit_length(str1)",)),
    Entry("OctetLength(string)", "CAST(strlen($0) AS INTEGER)", "octet_length", ("octet_length(str1)",)),
    _with_case("Upper", "upper"),
    _with_case("Lower", "lower"),
    *_trim("StringTrim", "trim", "both"),
    *_trim("StringTrimLeft", "ltrim", "leading"),
    *_trim("StringTrimRight", "rtrim", "trailing"),
    _pad("StringLPad", "lpad"),
    _pad("StringRPad", "rpad"),
    Entry(
        "CharVarcharCodegenUtils.readSidePadding(string, int)",
        "(CASE WHEN length($0) < $1 THEN rpad($0, $1, ' ') ELSE $0 END)",
        "columns of type char(n)",
    ),
    Entry(
        "StringReplace(string, string, string)",
        "replace($0, $1, $2)",
        "replace",
        ("replace(str1, 'a', 'bb')", "replace(str1, str2, 'q')", "replace(str1, str2, str1)", "replace(str1, 'é')"),
    ),
    Entry(
        "StringTranslate(string, string, string)",
        "translate($0, $1, $2)",
        "translate",
        ("translate(str1, 'aX', 'bY')", "translate(str1, 'abc', 'x')", "translate(str1, 'aa😀', 'xy')"),
        constants={1: _LITERAL, 2: r"[^\x00\ufffd]*"},
        reason="characters that are not constant",
    ),
    Entry(
        "StringRepeat(string, int)",
        "repeat($0, $1)",
        "repeat, space",
        ("repeat(str1, 3)", "repeat(str1, 0)", "repeat(str1, -2)"),
        constants={1: _LENGTH},
        reason="a number of repetitions that is not constant",
    ),
    Entry(
        "Reverse(string)",
        cases({_IS_ASCII: "reverse($0)"}, _NOT_ASCII),
        "reverse",
        ("reverse(str1)",),
    ),
    Entry("StringInstr(string, string)", "CAST(instr($0, $1) AS INTEGER)", "instr", ("instr(str1, str2)",)),
    Entry(
        "StringLocate(string, string, int)",
        "CAST(instr($1, $0) AS INTEGER)",
        "locate, position, charindex",
        ("locate('a', str1)", "locate(str2, str1)", "position(str2 in str1)"),
        constants={2: "1"},
    ),
    Entry(
        "StringLocate(string, string, int)",
        cases(
            {
                "$0 IS NULL OR $1 IS NULL": "NULL",
                "$0 = ''": "1",
                "instr(substring($1, $2), $0) = 0": "0",
                "true": "CAST(instr(substring($1, $2), $0) + $2 - 1 AS INTEGER)",
            }
        ),
        "locate, position, charindex",
        ("locate('a', str1, 2)", "locate(str2, str1, 3)", "locate('b', str1, 4)"),
        constants={2: r"[1-9]\d{0,5}"},
        reason="a search from a position that is not constant or not positive",
    ),
    Entry(
        "Substring(string, int, int)",
        "substring($0, greatest($1, 1), $2)",
        "substring, left",
        ("substring(str1, 2, 3)", "substring(str1, 0, 2)", "left(str1, 2)", "substring(str1, 3)"),
        constants={1: r"\d+", 2: r"\d+"},
    ),
    Entry(
        "Substring(string, int, int)",
        "substring($0, $1, $2)",
        "substring, right",
        ("substring(str1, -3, 2)", "substring(str1, -3)", "substring(str1, -1, 5)"),
        constants={1: r"-\d{1,9}", 2: r"\d+"},
    ),
    Entry(
        "Substring(string, int, int)",
        "substring($0, $1, 0)",
        "substring, left",
        ("substring(str1, 2, -1)", "left(str1, -1)"),
        constants={1: r"-?\d+", 2: r"-\d+"},
        reason="a substring whose bounds are not constant",
    ),
    Entry(
        "ElementAt(StringSplitSQL(string, string), int)",
        "split_part($0, $1, $2)",
        "split_part",
        ("split_part(str1, ',', 2)", "split_part(str1, '.', -1)", "split_part(str1, 'ab', 5)"),
        constants={1: _LITERAL, 2: r"-?[1-9]\d{0,8}"},
        reason="a separator or index that is not constant",
    ),
    Entry(
        "Concat(string*)",
        "($concat)",
        "concat, ||",
        ("concat(str1, str2)", "str1 || 'x' || str2", "concat(str1)"),
    ),
    Entry(
        "ConcatWs(string, string, string*)",
        "concat_ws($list)",
        "concat_ws",
        ("concat_ws(',', str1, str2)", "concat_ws(str1, str2, 'a')", "concat_ws('-', str1)"),
    ),
    *(
        Entry(
            "SubstringIndex(string, string, int)",
            f"array_to_string(string_split($0, $1){part}, $1)",
            "substring_index",
            examples,
            constants={1: r"[^\x00\ufffd]", 2: count},
            reason="a separator of several characters, or a count that is not constant",
        )
        for part, count, examples in (
            ("[1:$2]", r"[1-9]\d{0,8}", ("substring_index(str1, '.', 2)", "substring_index(str1, ',', 1)")),
            ("[$2:]", r"-[1-9]\d{0,8}", ("substring_index(str1, '.', -2)", "substring_index(str1, 'a', -1)")),
        )
    ),
    Entry(
        "Chr(bigint)",
        "(CASE WHEN $0 < 0 THEN '' ELSE chr(CAST($0 & 255 AS INTEGER)) END)",
        "chr, char",
        ("chr(long1)",),
    ),
    Entry("Ascii(string)", "ascii($0)", "ascii", ("ascii(str1)",)),
    Entry("StartsWith(string, string)", "starts_with($0, $1)", "startswith, like 'x%'", ("startswith(str1, str2)",)),
    Entry("EndsWith(string, string)", "suffix($0, $1)", "endswith, like '%x'", ("endswith(str1, str2)",)),
    Entry("Contains(string, string)", "contains($0, $1)", "contains, like '%x%'", ("contains(str1, str2)",)),
    Entry("Overlay(string, string, int, int)", None, "overlay", reason="overlay"),
    Entry("Md5(Cast(string))", "md5($0)", "md5", ("md5(str1)",)),
    Entry("Sha1(Cast(string))", "sha1($0)", "sha, sha1", ("sha1(str1)",)),
    Entry(
        "Sha2(Cast(string), int)",
        "sha256($0)",
        "sha2",
        ("sha2(str1, 256)", "sha2(str1, 0)"),
        constants={1: "0|256"},
        reason="another hash than SHA-256",
    ),
    Entry("Hex(string)", "hex($0)", "hex", ("hex(str1)",)),
    Entry(
        "Base64.encode(Cast(string), boolean)",
        cases({"strlen($0) <= 57": "to_base64(encode($0))"}, "a text of several lines"),
        "base64",
        ("base64(str1)",),
        constants={1: "true"},
        reason="base64 in a single line",
    ),
    Entry(
        "Levenshtein(string, string)",
        cases(
            {
                "$0 IS NULL": "NULL",  # first, as an error of the first operand is an error of the expression
                "$1 IS NULL": "NULL",
                f"{_IS_ASCII} AND strlen($1) = length($1)": "CAST(levenshtein($0, $1) AS INTEGER)",
            },
            _NOT_ASCII,
        ),
        "levenshtein",
        ("levenshtein(str1, str2)",),
    ),
    Entry(
        "RLike(string, string)",
        "regexp_matches($0, $regex1)",
        "rlike, regexp, regexp_like",
        (
            "str1 rlike 'a.*b'",
            r"str1 rlike '^[a-z]+$'",
            r"str1 rlike '(?i)ABC|x'",
            r"str1 rlike '\\d+\\.\\d'",
            r"str1 rlike '\\bb\\b'",
            r"str1 rlike '^.$'",
            r"str1 rlike '\\s'",
            r"str1 rlike '[\\s\\S]b'",
            r"str1 rlike '[^\\w.]$'",
            r"str1 rlike 'é|\\u2028'",
            r"str1 rlike '(a|b)+?c'",
            r"str1 rlike '[^a-c]{2,3}'",
            r"str1 rlike '(?i)[x-z]'",
        ),
        constants={1: ".*"},
        reason=_UNKNOWN_REGEX,
    ),
    Entry(
        "RegExpExtract(string, string, int)",
        "regexp_extract($0, $group1, 1)",
        "regexp_extract, regexp_substr",
        (
            r"regexp_extract(str1, '([a-z]+)(\\d+)?')",
            r"regexp_extract(str1, '(a)|(b)', 2)",
            r"regexp_extract(str1, '.$', 0)",
            r"regexp_extract(str1, '[^,]*,([^,]*)', 1)",
            r"regexp_extract(str1, '@(\\w+)\\.', 1)",
        ),
        constants={1: ".*", 2: r"\d{1,2}"},
        reason=_UNKNOWN_REGEX,
    ),
    Entry(
        "RegExpReplace(string, string, string, int)",
        "regexp_replace($0, $groups1, $replacement2, 'g')",
        "regexp_replace",
        (
            r"regexp_replace(str1, '[^a-z0-9]', '')",
            r"regexp_replace(str1, '(a)(.)', '$2-$1')",
            r"regexp_replace(str1, '\\s+', ' ')",
            r"regexp_replace(str1, 'a|b', '\\$\\\\')",
            r"regexp_replace(str1, 'c$', '<$0>')",
            r"regexp_replace(str1, '(a)|(b)', '[$1$2]')",
            r"regexp_replace(str1, '😀', '$0$0')",
        ),
        constants={1: ".*", 2: ".*", 3: "1"},
        reason="a regular expression, replacement or position that is not constant",
    ),
    Entry("InitCap(string)", None, "initcap", reason="a function that DuckDB does not have: initcap"),
    Entry("SoundEx(string)", None, "soundex", reason="a function that DuckDB does not have: soundex"),
    Entry("Crc32(Cast(string))", None, "crc32", reason="a function that DuckDB does not have: crc32"),
)
