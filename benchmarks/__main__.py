"""python -m benchmarks: see the package."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks import (
    ablate,
    coverage,
    error,
    interactions,
    large_games,
    machine,
    recorded,
    report,
    speed,
    typed,
)
from benchmarks.soundness import run as soundness
from graphsvx.utils.files import atomic_write

PARTS = ("speed", "error", "large", "coverage")
RESULTS = Path(__file__).parent.parent / "docs" / "results"


_LITTLE: dict[str, dict[str, Any]] = {
    "error": {"each": 1, "sizes": range(12, 14), "seeds": 1, "skip": 0, "budgets": (50, 100)},
    "large": {"each": 1, "calls": 800, "budgets": (100, 300), "classes": ((5, 60),),
              "worlds": (("cora", "gcn"),)},
    "coverage": {"each": 1, "seeds": 1, "calls": 20, "families": ("stars",),
                 "players": ((10, 12),), "per_player": (2, 5)},
}  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look that it works, no figures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--only", choices=PARTS, help="one of the parts")
    parser.add_argument("--docs", action="store_true", help="write docs/results/{speed,error}.md")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    found: dict[str, Any] = {"machine": machine.describe()}
    parts = PARTS if chosen.only is None else (chosen.only,)
    if "speed" in parts:
        plan = speed.Plan.quick() if chosen.quick else speed.Plan()
        found["speed"] = speed.measure(plan)
        print(report.table(found["speed"]["lines"]))
    errors: dict[str, Any] = {}
    if "error" in parts:
        errors.update(error.measure(**(_LITTLE["error"] if chosen.quick else {})))
        print(report.error_table(errors["errors"]))
    if "large" in parts:
        errors["large"] = large_games.measure(**(_LITTLE["large"] if chosen.quick else {}))
        print(report.large_games_table(errors["large"]["classes"]))
    if "coverage" in parts:
        errors["coverage"] = coverage.measure(**(_LITTLE["coverage"] if chosen.quick else {}))
        print(report.coverage_table(errors["coverage"]["cells"], "default"))
    if errors:
        found["error"] = errors
    if chosen.json:
        with atomic_write(chosen.json) as part:
            part.write_text(json.dumps(found, indent=1) + "\n")
    if chosen.docs:
        RESULTS.mkdir(parents=True, exist_ok=True)
        for name, write in (("speed", report.write_speed), ("error", report.write_error)):
            if name in found:
                write(found[name], found["machine"], RESULTS)


if __name__ == "__main__":
    if sys.argv[1:2] == ["ablate"]:
        sys.exit(ablate.main(sys.argv[2:]))
    if sys.argv[1:2] == ["soundness"]:
        sys.exit(soundness.main(sys.argv[2:]))
    if sys.argv[1:2] == ["typed"]:
        sys.exit(typed.main(sys.argv[2:]))
    if sys.argv[1:2] == ["record"]:
        sys.exit(recorded.main(sys.argv[2:]))
    if sys.argv[1:2] == ["interactions"]:
        sys.exit(interactions.main(sys.argv[2:]))
    main()
