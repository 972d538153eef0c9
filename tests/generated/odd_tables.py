"""Random descriptions of Parquet tables that DuckDB might read otherwise than Spark: mostly plain, with a few traps each."""

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
"""Names of columns that DuckDB adds, so that it renames those of the file."""
CASES = [["a", "A", "a_1"], ["A", "a", "A_1"], ["a", "A", "A_1", "a_1"], ["é", "É", "é_1"], ["b", "B", "b_1", "b_2"]]
"""Names of which DuckDB renames some."""
USUAL = ["i8", "i16", "i32", "i64", "d5", "d15", "date", "text", "bool", "i32", "i64", "text", "d15", "i16", "date"]
UNUSUAL = ["u8", "u16", "u32", "u64", "f32", "f64", "d18", "d38", "d380", "dict"]
NEIGHBOURS = ["list", "struct", "null", "ts", "ntz", "bytes", "f64"]
CODECS = ["none", "snappy", "gzip", "zstd"]
OTHER_CODECS = ["lz4", "lz4", "brotli"]
"""Codecs that one of both engines cannot read, or reads otherwise."""
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
"""Types of columns of folders, an empty one if Spark infers it, and values in their names."""


def quoted(name: str) -> str:
    """Return a name as Spark's SQL has it."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class OddTable:
    """A described table: the names (as SQL) and types of its columns, and the fields of the step that reads it."""

    columns: dict[str, str]
    fields: dict[str, object]
    flavours: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    def of(self, *types: str) -> list[str]:
        """Return the columns of some types; ``decimal`` is each decimal."""
        return [name for name, there in self.columns.items() if there in types or there.partition("(")[0] in types]


def odd_table(rng: random.Random, *, small: bool = False) -> OddTable:
    """Draw a table, with each trap now and then."""
    names = rng.sample(NAMES, len(NAMES)) if rng.random() < 0.12 else [f"k{n}" for n in range(40)]
    settings: dict[str, str] = {}
    if rng.random() < 0.03:
        names.insert(0, rng.choice(RESERVED))
    cases = rng.choice(CASES) if rng.random() < 0.06 else []
    unique = list(cases)
    for name in names:
        if name.lower() not in {one.lower() for one in unique}:
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
    odd = _unlike(rng, files)
    folders, places = _folders(rng) if rng.random() < 0.08 else ([], [])
    if folders:
        files = [f"{file} in={place}" for file in files for place in places][: max(len(places), 3)]
    schema = [f"{quoted(name)} {KINDS[kind][1]}" for kind, name in zip(kinds, unique, strict=False)]
    types = {quoted(name): KINDS[kind][1] for kind, name in zip(kinds, unique, strict=False)}
    if cases:
        if rng.random() < 0.35:
            settings["spark.sql.caseSensitive"] = "true"
        else:  # of names that are equal but for their case, none is read
            twice = {name for name in unique if [one.lower() for one in unique[: len(kinds)]].count(name.lower()) > 1}
            schema = [text for text, name in zip(schema, unique, strict=False) if name not in twice]
            types = {name: there for name, there in types.items() if name not in map(quoted, twice)}
    is_told = bool(cases or odd or (folders and any(" " in folder for folder in folders)) or rng.random() < 0.5)
    types |= {f"p{n}": folder.partition(" ")[2] or "int" for n, folder in enumerate(folders)}
    if is_told and folders:
        schema += [folder for folder in folders if " " in folder]
    options = ["ignoreCorruptFiles"] if odd and rng.random() < 0.5 else []
    fields: dict[str, object] = {
        "columns": described,
        "files": files,
        "schema": schema if is_told else [],
        "options": options,
        "folder": rng.choice(["t", "t", "t", "t", "a b", "it's", "x=1", "%41", "é"]),
        "seed": rng.randrange(1000),
    }
    told = {quoted(name): flavour for flavour, name in zip(flavours, unique, strict=False)}
    return OddTable(types, fields, told, settings)


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

    def perhaps(share: float, *more: str) -> None:
        if rng.random() < share:
            words.append(rng.choice(more))

    codecs = CODECS if rng.random() < 0.97 else OTHER_CODECS
    codecs = [codec for codec in codecs if writer == "arrow" or codec not in {"none", "lz4"}]
    perhaps(0.5, *(f"codec={codec}" for codec in codecs or ["snappy"]))
    if writer == "arrow":
        perhaps(0.35, "groups=3", "groups=2", "groups=7")
        perhaps(0.05, *(f"encoding={one}" for one in ("delta", "lengths", "split", "plain")))
        perhaps(0.2, "version=1.0", "version=2.4")
        for share, word in ((0.3, "page=2.0"), (0.1, "nostats"), (0.1, "index"), (0.1, "intdec"), (0.1, "noschema")):
            perhaps(share, word)
        for share, word in ((0.05, "int96"), (0.03, "legacy"), (0.03, "spark2"), (0.05, "checksum")):
            perhaps(share, word)
    elif writer == "duckdb":
        perhaps(0.3, "page")
    return " ".join(words)


def _unlike(rng: random.Random, files: list[str]) -> bool:
    """Let a file be unlike the others, or broken, now and then; return whether the table needs a schema of the user's."""
    if rng.random() > 0.07:
        return "codec=brotli" in " ".join(files)
    number = rng.randrange(len(files))
    words = [f"drop={rng.randrange(20)}", f"other={rng.randrange(20)}", "swap", "upper", "cut", "garbage", "nothing"]
    word = rng.choice([*words, "flip codec=none"])
    base = [one for one in files[number].split(" ") if not (word.startswith("flip") and one.startswith("codec"))]
    files[number] = " ".join([*base, word])
    return True


def _folders(rng: random.Random) -> tuple[list[str], list[str]]:
    """Draw columns that are in the names of folders, and folders."""
    wanted = rng.choice(list(FOLDER_TYPES))
    columns = [f"p0 {wanted}".strip()]
    places = [f"p0={value}" for value in rng.sample(FOLDER_TYPES[wanted], min(3, len(FOLDER_TYPES[wanted])))]
    if rng.random() < 0.25:
        columns.append("p1 string")
        places = [f"{place}/p1={rng.choice(FOLDER_TYPES['string'])}" for place in places]
    return columns, places
