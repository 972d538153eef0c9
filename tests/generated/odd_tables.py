"""Random descriptions of Parquet tables that DuckDB might read differently from Spark: mostly plain, with a few traps."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.generated.parquet import KINDS

NAMES = [
    *[
        "a",
        "A",
        "a_1",
        "A_1",
        "a_2",
        "b",
        "a b",
        "a.b",
        "é",
        "É",
        "😀",
        "it's",
        '"',
        'q"q',
        "scan",
        "scan_0",
        "input_0",
    ],
    *["result_0", "build_0", "keys_0", "side_0", "nothing", "c0"],
    *[
        "c1",
        "c12",
        "n",
        "select",
        "k=v",
        "a,b",
        "(x)",
        "%41",
        "column0",
        "NULL",
        "1",
        "value",
        "__x",
        "_metadata",
        "t",
        "*",
    ],
]
RESERVED = ["rowid", "file_row_number", "filename", "file_index"]
"""Names of virtual columns of DuckDB, which therefore renames such columns of a file."""
CASES = [["a", "A", "a_1"], ["A", "a", "A_1"], ["a", "A", "A_1", "a_1"], ["é", "É", "é_1"], ["b", "B", "b_1", "b_2"]]
"""Names that differ only by case, of which DuckDB renames some."""
USUAL = ["i8", "i16", "i32", "i64", "d5", "d15", "date", "text", "bool", "i32", "i64", "text", "d15", "i16", "date"]
UNUSUAL = ["u8", "u16", "u32", "u64", "f32", "f64", "d18", "d38", "d380", "dict"]
NEIGHBOURS = ["list", "struct", "null", "ts", "ntz", "bytes", "f64"]
CODECS = ["none", "snappy", "gzip", "zstd"]
OTHER_CODECS = ["lz4", "lz4", "brotli"]
"""Codecs that one of the engines cannot read, or reads differently."""
FOLDER_TYPES = {
    "decimal(10,2)": ["1.5", "1.50", "01", "-0", "99999999.99", "1e2", "1.005", "__HIVE_DEFAULT_PARTITION__"],
    "decimal(5,1)": ["1.5", "2.5", "-1.5", "1.55", "2", "1000"],
    "decimal(38,10)": ["1.5", "123456789", "-7", "0.00000000015"],
    "int": ["1", "01", "-1", "+1", "2147483647", "__HIVE_DEFAULT_PARTITION__"],
    "bigint": ["1", "007", "9223372036854775807", "-9223372036854775808"],
    "smallint": ["1", "-32768", "32767"],
    "tinyint": ["1", "-128"],
    "string": [
        "1",
        "01",
        "a",
        "A",
        "a%20b",
        "x%27y",
        "%22",
        "é",
        "1.0",
        "__HIVE_DEFAULT_PARTITION__",
        "%25",
        "%5Ba%5D",
    ],
    "date": ["2024-01-01", "0001-01-01", "1582-10-04", "1582-10-10", "1582-10-15", "9999-12-31", "2024-2-3"],
    "boolean": ["true", "false", "TRUE", "False", "__HIVE_DEFAULT_PARTITION__"],
    "double": ["1.5", "-0.0", "NaN", "1e3", "Infinity"],
    "float": ["1.5", "0.1", "-0"],
    "timestamp": ["2024-01-01 00%3A00%3A00", "2024-01-01"],
    "": ["1", "2", "3", "01", "1.50", "2024-01-01"],
}
"""Types of partition columns (empty if Spark infers the type), and values in folder names."""


def quoted(name: str) -> str:
    """Return a quoted identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class OddTable:
    """A described table: the SQL names and types of its columns, and the fields of the step that reads it."""

    columns: dict[str, str]
    fields: dict[str, object]
    flavours: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    def of_type(self, *types: str) -> list[str]:
        """Return the columns of some types; ``decimal`` stands for all decimal types."""
        return [name for name, kind in self.columns.items() if kind in types or kind.partition("(")[0] in types]


def odd_table(rng: random.Random, *, small: bool = False) -> OddTable:
    """Draw a table, with each trap occasionally."""
    names = rng.sample(NAMES, len(NAMES)) if rng.random() < 0.12 else [f"k{n}" for n in range(40)]
    settings: dict[str, str] = {}
    if rng.random() < 0.03:
        names.insert(0, rng.choice(RESERVED))
    cases = rng.choice(CASES) if rng.random() < 0.06 else []
    unique = list(cases)
    for name in names:
        if name.lower() not in {other.lower() for other in unique}:
            unique.append(name)
    kinds = [*(["i32"] * len(cases) or []), *USUAL[: 9 if small else 15]]
    kinds += rng.sample(UNUSUAL, rng.choice([0, 1, 2])) + rng.sample(NEIGHBOURS, rng.choice([0, 0, 1, 2]))
    if rng.random() < 0.3:
        head, tail = kinds[: len(cases)], kinds[len(cases) :]
        rng.shuffle(tail)
        kinds = head + tail
    writer = rng.choices(["arrow", "duckdb", "spark"], [6, 2, 1.5])[0] if not cases else "arrow"
    flavours = [_flavour(rng, kind, writer) for kind in kinds]
    described = [f"{kind} {flavour} {name}" for kind, flavour, name in zip(kinds, flavours, unique, strict=False)]
    rows = rng.choice([6, 24, 12]) if small else rng.choice([40, 80, 200])
    files = [_file(rng, writer, rows) for _ in range(rng.choice([1, 1, 2] if small else [1, 2, 3]))]
    is_odd = _damage_file(rng, files)
    partition_columns, folders = _folders(rng) if rng.random() < 0.08 else ([], [])
    if partition_columns:
        files = [f"{file} in={folder}" for file in files for folder in folders][: max(len(folders), 3)]
    schema = [f"{quoted(name)} {KINDS[kind][1]}" for kind, name in zip(kinds, unique, strict=False)]
    types = {quoted(name): KINDS[kind][1] for kind, name in zip(kinds, unique, strict=False)}
    if cases:
        if rng.random() < 0.35:
            settings["spark.sql.caseSensitive"] = "true"
        else:  # columns whose names differ only by case are not read
            lower = [name.lower() for name in unique[: len(kinds)]]
            ambiguous = {name for name in unique if lower.count(name.lower()) > 1}
            schema = [text for text, name in zip(schema, unique, strict=False) if name not in ambiguous]
            types = {name: kind for name, kind in types.items() if name not in map(quoted, ambiguous)}
    typed_columns = [column for column in partition_columns if " " in column]
    has_schema = bool(cases or is_odd or typed_columns or rng.random() < 0.5)
    types |= {f"p{n}": column.partition(" ")[2] or "int" for n, column in enumerate(partition_columns)}
    if has_schema:
        schema += typed_columns
    options = ["ignoreCorruptFiles"] if is_odd and rng.random() < 0.5 else []
    fields: dict[str, object] = {
        "columns": described,
        "files": files,
        "schema": schema if has_schema else [],
        "options": options,
        "folder": rng.choice(["t", "t", "t", "t", "a b", "it's", "x=1", "%41", "é"]),
        "seed": rng.randrange(1000),
    }
    flavour_of = {quoted(name): flavour for flavour, name in zip(flavours, unique, strict=False)}
    return OddTable(types, fields, flavour_of, settings)


def _flavour(rng: random.Random, kind: str, writer: str) -> str:
    if kind == "date":
        return rng.choice(["plain", "plain", "plain", "old", "infinite", "extreme", "nonull"])
    if kind in {"text", "dict"}:
        return rng.choices(
            ["plain", "nonull", "extreme", "broken" if writer == "arrow" else "plain"], [8, 3, 1.5, 0.5]
        )[0]
    if kind in {"list", "struct", "null", "bool", "bytes", "ts", "ntz"}:
        return "plain"
    return rng.choices(["plain", "nonull", "extreme", "empty", "constant", "sorted"], [8, 3, 2, 0.3, 0.5, 1])[0]


def _file(rng: random.Random, writer: str, rows: int) -> str:
    words = [writer, f"rows={rows}"]

    def add_sometimes(share: float, *choices: str) -> None:
        if rng.random() < share:
            words.append(rng.choice(choices))

    codecs = CODECS if rng.random() < 0.97 else OTHER_CODECS
    codecs = [codec for codec in codecs if writer == "arrow" or codec not in {"none", "lz4"}]
    add_sometimes(0.5, *(f"codec={codec}" for codec in codecs or ["snappy"]))
    if writer == "arrow":
        add_sometimes(0.35, "groups=3", "groups=2", "groups=7")
        add_sometimes(0.05, *(f"encoding={encoding}" for encoding in ("delta", "lengths", "split", "plain")))
        add_sometimes(0.2, "version=1.0", "version=2.4")
        for share, word in ((0.3, "page=2.0"), (0.1, "nostats"), (0.1, "index"), (0.1, "intdec"), (0.1, "noschema")):
            add_sometimes(share, word)
        for share, word in ((0.05, "int96"), (0.03, "legacy"), (0.03, "spark2"), (0.05, "checksum")):
            add_sometimes(share, word)
    elif writer == "duckdb":
        add_sometimes(0.3, "page")
    return " ".join(words)


def _damage_file(rng: random.Random, files: list[str]) -> bool:
    """Sometimes change or damage a file; return whether reading the table needs an explicit schema."""
    if rng.random() > 0.07:
        return "codec=brotli" in " ".join(files)
    number = rng.randrange(len(files))
    words = [f"drop={rng.randrange(20)}", f"other={rng.randrange(20)}", "swap", "upper", "cut", "garbage", "nothing"]
    word = rng.choice([*words, "flip codec=none"])
    base = [w for w in files[number].split(" ") if not (word.startswith("flip") and w.startswith("codec"))]
    files[number] = " ".join([*base, word])
    return True


def _folders(rng: random.Random) -> tuple[list[str], list[str]]:
    """Draw partition columns (name and type), and folders."""
    kind = rng.choice(list(FOLDER_TYPES))
    columns = [f"p0 {kind}".strip()]
    folders = [f"p0={value}" for value in rng.sample(FOLDER_TYPES[kind], min(3, len(FOLDER_TYPES[kind])))]
    if rng.random() < 0.25:
        columns.append("p1 string")
        folders = [f"{folder}/p1={rng.choice(FOLDER_TYPES['string'])}" for folder in folders]
    return columns, folders
