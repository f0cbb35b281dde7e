"""Compare two records of `tools/record.py` and list every difference.

    python tools/compare_records.py before.json.xz after.json.xz [--renames tools/record_renames_0_2.json] [--tolerance 1e-5]

`--renames`: a JSON object from old to new names. It is applied to the first record: to field names and to strings that are equal to an
old name. `--tolerance`: for records of two machines; hashes are not compared, and numbers may differ by this much, relative to the
larger one. Exits with code 1 if the records differ.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HASHES = {"state", "sha256"}
ABSENT = "absent"


def read(path: Path) -> Any:
    """Read a compressed record."""
    return json.loads(lzma.decompress(path.read_bytes()))


def rename(value: Any, names: Mapping[str, str]) -> Any:
    """Apply a table of renamed names to field names and whole strings."""
    if isinstance(value, dict):
        return {names.get(key, key): rename(part, names) for key, part in value.items()}
    if isinstance(value, list):
        return [rename(part, names) for part in value]
    return names.get(value, value) if isinstance(value, str) else value


def differences(before: Any, after: Any, tolerance: float, place: str = "") -> Iterator[str]:
    """Yield one line for each value that differs, with the place where it stands."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            if tolerance and key in HASHES:
                continue
            yield from differences(before.get(key, ABSENT), after.get(key, ABSENT), tolerance, f"{place}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, tolerance, f"{place}/{number}")
    elif not equal(before, after, tolerance):
        yield f"{place}: {json.dumps(before)[:200]} -> {json.dumps(after)[:200]}"


def equal(before: Any, after: Any, tolerance: float) -> bool:
    """Return True if two values are the same, or two numbers are close enough. NaN equals NaN."""
    if before == after:
        return True
    if not (isinstance(before, float) and isinstance(after, float)):
        return False
    both_nan = before != before and after != after
    return both_nan or abs(before - after) <= tolerance * max(abs(before), abs(after), 1e-3)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--renames", type=Path, help="JSON object from old to new names")
    parser.add_argument("--tolerance", type=float, default=0.0, help="largest relative difference of two numbers; hashes are then ignored")
    args = parser.parse_args()
    names = json.loads(args.renames.read_text()) if args.renames else {}
    before, after = rename(read(args.before), names), read(args.after)
    found = list(differences(before, after, args.tolerance))
    print("\n".join(found) or f"no difference in {len(before['recipes'])} recipes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
