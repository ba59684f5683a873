"""Results as Markdown with a log-log plot each, and the JSON that both are made from."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from graphsvx.utils.files import atomic_write
from graphsvx.utils.printable import markdown_table

HEAD = "Made by `./scripts/bench --docs`; the figures are in `{name}.json` beside this file.\n"


def table(lines: list[dict[str, Any]]) -> str:
    """The speed table, for the terminal and for the page."""
    head = ["contender", "where", "theirs", "ours", "ratio", "wanted", "met", "nodes", "check"]
    rows = [
        [
            line["contender"], line["where"], _time(line["theirs"]), _time(line["ours"]),
            f"**{_ratio(line)}**", str(line["wanted"]), "yes" if line["met"] else "NO",
            str(line["nodes"]), line["check"],
        ]
        for line in lines
    ]  # fmt: skip
    return markdown_table(head, rows) + "\n"


def _ratio(line: dict[str, Any]) -> str:
    return f"{line['ratio']:.0f}x" if line["ratio"] >= 10 else f"{line['ratio']:.2g}x"


def _short(line: dict[str, Any]) -> str:
    return f"- {line['contender']}, {line['where']}: {_ratio(line)}, wanted {line['wanted']}.\n"


def _parts(worlds: list[dict[str, Any]]) -> str:
    """Milliseconds by part and world."""
    parts = list(worlds[0]["parts"])
    rows = [
        "Milliseconds of an explanation by default, each part without the parts within it "
        "(medians over nodes of medians over repeats, so that they need not add up): the field; "
        "run-time checks; coalitions chosen; coalitions turned into distinct perturbed graphs; "
        "batches of these built; the model on them, as the engine runs it; the regression; the "
        "record; the rest. Last: the model alone on the same batches in plain PyG.\n\n",
        f"| | {' | '.join(parts)} | all | plain PyG model |\n", "|---" * (len(parts) + 3) + "|\n",
    ]  # fmt: skip
    for world in worlds:
        cells = [f"{1e3 * world['parts'][part]:.2f}" for part in parts]
        cells += [f"{1e3 * world['total']:.1f}", f"{1e3 * world['plain']:.1f}"]
        rows.append(f"| {world['where']} | {' | '.join(cells)} |\n")
    rows.append(_LIMITS)
    return "".join(rows)


_LIMITS = """
What is left and why:

- The engine runs the model several times faster than PyG does on the same batches, so that an
  explanation cannot be within 1.3x of that: the faster the model, the worse this ratio. Within
  1.3x of the model as it is means no slower than calling it on the bare batches, had somebody
  thought of them already. Larger games are below that; where a game has few states, the rest
  weighs more than the model.
- On the synthetic sets this rest is some two thousand calls of Python, numpy and torch on small
  arrays, whatever they compute: the next limit there is the number of such calls, not the work
  in them.
- On Cora the largest part is the regression. It buys a fraction of the error of least squares on
  the same rows (compare WLS and default in the lines with `shap.KernelExplainer`).
- Run-time checks make no model call of their own once a model and graph are known: what they cost
  is a look at the model (every attribute of every layer that a forward pass reads), which weighs
  on explanations of a few milliseconds only.
- Where `shap.KernelExplainer` plays on our engine, it shares what the engine saves; what remains
  is its own sampling and regression against ours.
"""


def error_table(errors: dict[str, dict[str, dict[str, float]]]) -> str:
    """Median relative squared errors; the lowest of each budget in bold."""
    budgets = list(next(iter(errors.values())))
    best = {b: min(row[b]["median"] for row in errors.values()) for b in budgets}
    rows = []
    for name, row in errors.items():
        cells = []
        for budget in budgets:
            value = row[budget]["median"]
            text = f"{value:.2g}" if value >= 1e-4 or value == 0 else f"{value:.0e}"
            cells.append(f"**{text}**" if value == best[budget] else text)
        rows.append([name, *cells])
    return markdown_table(["estimator", *budgets], rows) + "\n"


def write_speed(result: dict[str, Any], machine: dict[str, str], folder: Path) -> None:
    hub = result["hub"]
    missed = [line for line in result["lines"] if not line["met"]]
    text = [
        "# Speed\n\n", HEAD.format(name="speed"), "\n", _machine(machine),
        "\nOne thread, processor time. Contenders take turns; times are medians over repeats and "
        "nodes, ratios medians over nodes. In the lines with a number of rows all contenders "
        "play the same given coalitions and share the regression, and their credit is compared "
        "(nodes with fewer coalitions than that are passed over, the others taken in a random "
        "order that was fixed beforehand); rows are of both games, features and nodes, unless "
        "the line says that only nodes play; "
        "`default` is `explain()` as it comes (1,000 calls, exact where that is enough).\n\n",
        table(result["lines"]),
        "\n![Seconds of the contenders against ours](speed.png)\n\n## Memory\n\n",
        f"A hub with {hub['leaves']:,} neighbours: the peak resident set grows by "
        f"{hub['MiB']:.0f} MiB (the setting allows {hub['allowed MiB']}), "
        f"in {hub['seconds']:.1f} s.\n",
        "\n## Where the time goes\n\n", _parts(result["parts"]),
        "\n## Where it falls short\n\n",
        *(map(_short, missed) if missed else ["Nowhere in this run.\n"]),
        *(
            f"- run-time checks, {world['where']}, default: {100 * world['checks']:.0f} % of the "
            f"time, wanted under 5 %.\n"
            for world in result["parts"]
            if world["checks"] >= 0.05
        ),
    ]  # fmt: skip
    _write(folder / "speed.md", "".join(text))
    _write(folder / "speed.json", json.dumps({"machine": machine, **result}, indent=1) + "\n")
    _plot_speed(result["lines"], folder / "speed.png")


ABLATION = "\n## What each part of the estimator is worth\n"
"""Heading of the last section of `error.md`, whose tables `bench ablate` prints."""


def write_error(result: dict[str, Any], machine: dict[str, str], folder: Path) -> None:
    """Parts that were not measured now stay as they are, and so does the ablation in the page."""
    record, page = folder / "error.json", folder / "error.md"
    _, heading, ablation = page.read_text().partition(ABLATION) if page.exists() else ("", "", "")
    before = json.loads(record.read_text()) if record.exists() else {}
    every = {**before, **result, "machine": machine}
    text = [
        "# Error against model calls\n\n", HEAD.format(name="error"), _goals(every), "\n",
        _machine(machine),
    ]  # fmt: skip
    if "errors" in every:
        text.append(_small_games_section(every))
        _plot_error(every["errors"], folder / "error.png")
    if "large" in every:
        text.append(_large_games_section(every["large"]))
        _plot_large_games(every["large"], folder / "error-large.png")
    if "coverage" in every:
        text.append(_coverage_section(every["coverage"]))
    _write(page, "".join([*text, heading, ablation]))
    _write(record, json.dumps(every, indent=1) + "\n")


def _small_games_section(result: dict[str, Any]) -> str:
    games = ", ".join(f"{count} from {name}" for name, count in result["games"].items())
    low, high = result["players"]
    return "".join([
        f"\n## 12 to 16 players\n\n"
        f"Median over games and {result['seeds']} seed(s) of the squared error relative to the "
        f"squared norm of the Shapley values, which are known by brute force. "
        f"{sum(result['games'].values())} games with {low} to {high} players: {games}. A call is a "
        f"distinct coalition that goes through the model; who asks for one twice is not charged "
        f"again. The first line may also merge coalitions that give the same perturbed graph and "
        f"is exact where that is enough; the second knows nothing of the graph, like the others. "
        f"The estimator was developed on other games: the first {result['tuned on']} of each "
        f"source, separately trained models and games made up for it.\n\n",
        error_table(result["errors"]),
        "\n![Error against calls](error.png)\n",
    ])  # fmt: skip


# By the largest number of players: the error at 1,000 calls and by default that was aimed at.
_AIMS = {200: (0.008, 0.003), 600: (0.03, 0.003), 2500: (0.05, 0.01)}
_TIME_FROM = 200  # players, for the aim of 3 times the forward passes
_TOP_UP_TO = 600  # players, for the aim of 9.5 of the true top ten


def _goals(every: dict[str, Any]) -> str:
    """What was aimed at, what was measured, and whether it holds, as a table."""
    rows: list[tuple[str, str, str, bool]] = []
    for part in every.get("large", {}).get("classes", []):
        low, high = part["players"]
        at, default = part["each"]["graphsvx (default)"].get("1000"), part["default"]
        if at is None or high not in _AIMS:
            continue
        players, (error, by_default) = f"{low:,}-{high:,} players", _AIMS[high]
        others = [row for name, row in part["each"].items() if name != "graphsvx (default)"]
        rivals = [*(cell["error"] / max(cell["ours"], 1e-12) for cell in part["peers"].values()),
                  *(row["1000"]["error"] / max(at["error"], 1e-12) for row in others)]  # fmt: skip
        rows += [
            (f"{players}: error at 1,000 calls", f"at most {error:g}", f"{at['error']:.2g}",
             at["error"] <= error),
            (f"{players}: error by default", f"at most {by_default:g} in 1 s",
             f"{_default_error(part)} in {default['seconds']:.2f} s",
             default["error"] <= by_default and default["seconds"] <= 1),
            (f"{players}: the best rival's error over ours", "above 1", f"{min(rivals):.2g}",
             min(rivals) > 1),
            (f"{players}: coverage at 1,000 calls", "0.90-0.99", f"{at['coverage']:.2f}",
             0.9 <= round(at["coverage"], 2) <= 0.99),
        ]  # fmt: skip
        if high <= _TOP_UP_TO:
            rows.append((f"{players}: true top ten at 1,000 calls", "9.5 of 10",
                         f"{at['top']:.1f}", at["top"] >= 9.5))  # fmt: skip
        if low > _TIME_FROM:
            passes = default["multiple of forward passes"]
            rows.append((f"{players}: time by default over its forward passes", "at most 3",
                         f"{passes:.1f}", passes <= 3))  # fmt: skip
    cells = every.get("coverage", {}).get("cells", [])
    if cells:
        outside = sum(not _holds(cell["default"]) for cell in cells)
        worse = sum(_above_wls(cell) for cell in cells)
        rows += [
            ("cells of family, players and calls with coverage outside 0.90-0.99", "none",
             f"{outside} of {len(cells)}", not outside),
            ("cells with more than 1.1 times the error of `WLS`", "none",
             f"{worse} of {len(cells)}", not worse),
        ]  # fmt: skip
    if not rows:
        return ""
    table = [[name, aim, measured, "yes" if met else "**no**"] for name, aim, measured, met in rows]
    return "\n" + markdown_table(["", "aim", "measured", "met"], table) + "\n"


def _holds(cell: dict[str, float]) -> bool:
    """Whether the coverage is within 0.90 and 0.99."""
    return 0.9 <= cell["coverage"] <= 0.99


def _above_wls(cell: dict[str, Any]) -> bool:
    """Whether the error is more than 1.1 times that of least squares on the same rows."""
    return bool(cell["default"]["median error"] > 1.1 * cell["WLS"]["median error"])


def large_games_table(classes: list[dict[str, Any]]) -> str:
    """Errors by class of size, calls and estimator."""
    budgets = list(next(iter(classes[0]["each"].values())))
    rows = []
    for part in classes:
        low, high = part["players"]
        for name, row in part["each"].items():
            at = row["1000"] if "1000" in row else row[budgets[-1]]
            rows.append([
                f"{low}-{high}", name, *(f"{row[b]['error']:.2g}" for b in budgets),
                f"{at['top']:.1f}", f"{at['coverage']:.2f}" if "coverage" in at else "-",
            ])  # fmt: skip
        for name, cell in part["peers"].items():
            cells = [f"{cell['error']:.2g} ({cell['ours']:.2g})" if b == "1000" else ""
                     for b in budgets]  # fmt: skip
            rows.append([f"{low}-{high}", name, *cells, f"{cell['top']:.1f}", "-"])
    head = ["players", "estimator", *(f"{int(b):,}" for b in budgets), "top ten", "coverage"]
    return markdown_table(head, rows) + "\n"


def _default_error(part: dict[str, Any]) -> str:
    """Median error by default; where it cannot be told from the truth's own, that one."""
    error = part["default"]["error"]
    own = median(game["truth error"] for game in part["games"])
    return f"{error:.2g}" if error > 0 else f"below the truth's own ({own:.1g})"


def _truth_errors(classes: list[dict[str, Any]]) -> str:
    """Median error of the truth itself in each class."""
    return ", ".join(f"{median(g['truth error'] for g in c['games']):.1g}" for c in classes)


def _large_games_section(result: dict[str, Any]) -> str:
    classes = result["classes"]
    text = [
        f"\n## 65 to 2,500 players\n\n"
        f"Games of nodes of models that were trained for this, with 2 layers (BA-Community: 3): "
        f"{', '.join(dict.fromkeys(g['source'] for c in classes for g in c['games']))}; on nodes "
        f"that the estimator was not developed on. Truth: least squares on {result['calls']:,} "
        f"calls, or means of the differences that players make, by as many, whichever is more "
        f"precise; from 601 players on these differences by {5 * result['calls']:,} calls; its own "
        f"error (median by class: {_truth_errors(classes)}) is taken off. "
        f"Median relative squared error by calls; top ten (a player counts if the truth cannot "
        f"tell it from the tenth) and coverage of the 95 % bars are "
        f"means at 1,000 calls. Estimators of shap and shapiq 1.8 on some of the games (in "
        f"brackets the default on the same ones); those that failed or took over two "
        f"minutes are left out. SmarterSeparate has no bars. The default takes derivatives at some "
        f"coalitions, each of which counts as 3 calls. Times: other work on the machine.\n\n",
        large_games_table(classes),
        "\n![Error against calls, by players](error-large.png)\n\n",
        "The default of `explain`, which chooses its number of calls:\n\n",
        markdown_table(
            ["players", "games", "calls", "error", "top ten", "coverage", "seconds",
             "times the forward passes"],
            [[f"{c['players'][0]}-{c['players'][1]}", str(len(c["games"])),
              f"{c['default']['calls']:,.0f}", _default_error(c),
              f"{c['default']['top']:.1f}", f"{c['default']['coverage']:.2f}",
              f"{c['default']['seconds']:.2f}",
              f"{c['default']['multiple of forward passes']:.1f}"] for c in classes],
        ), "\n\nForward passes take little of the time where layers are known: "
        + ", ".join(f"{c['default']['seconds'] / c['default']['multiple of forward passes']:.2f} s"
                    for c in classes) + "; the rest is mostly the fit.\n\n",
    ]  # fmt: skip
    edges = [part for part in classes if part.get("edges")]
    if edges:
        text += [
            "\nGames whose players are edges, against the sampler of GNNShap (pairs of coalitions, "
            "least squares):\n\n",
            large_games_table([{**part["edges"], "players": part["players"], "peers": {}}
                               for part in edges]),
        ]  # fmt: skip
    return "".join(text)


_HIGHEST = 10  # errors above are drawn there


def _plot_large_games(result: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import)

    classes = result["classes"]
    names = list(dict.fromkeys(name for part in classes for name in part["peers"]))
    figure = Figure(figsize=(max(8, 4 * len(classes)), 4.5), layout="constrained")
    for axes, part in zip(figure.subplots(1, len(classes), squeeze=False)[0], classes, strict=True):
        for name, row in part["each"].items():
            calls = [int(budget) for budget in row]
            errors = [max(cell["error"], 1e-6) for cell in row.values()]
            ours = name == "graphsvx (default)"
            axes.loglog(calls, errors, "o-" if ours else "s--", lw=2 if ours else 1, label=name)
        for name, cell in part["peers"].items():
            marker, color = "X^v<>dpP"[names.index(name)], f"C{names.index(name) + 3}"
            axes.loglog([1000], [min(cell["error"], _HIGHEST)], marker, color=color, label=name)
        axes.set_ylim(top=2 * _HIGHEST)
        axes.set_xticks(calls, calls, minor=False)
        axes.minorticks_off()
        axes.set(xlabel="model calls", ylabel="median relative squared error",
                 title="{:,}-{:,} players".format(*part["players"]))  # fmt: skip
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        handles.values(), handles, fontsize="x-small", loc="outside lower center", ncols=4
    )
    _save(figure, path)


def coverage_table(cells: list[dict[str, Any]], estimator: str) -> str:
    """Coverage by family, players and calls a player; with the error as a multiple of WLS's."""
    budgets = list(dict.fromkeys(cell["calls a player"] for cell in cells))
    rows = []
    of = {(c["family"], *c["players"], c["calls a player"]): c for c in cells}
    for family, low, high in dict.fromkeys(key[:3] for key in of):
        texts = []
        for budget in budgets:
            cell = of.get((family, low, high, budget))
            texts.append("exact" if cell is None else _coverage(cell, estimator))
        rows.append([family, f"{low}-{high}", *texts])
    return markdown_table(["family", "players", *(f"{b:g}" for b in budgets)], rows) + "\n"


def _coverage(cell: dict[str, Any], estimator: str) -> str:
    coverage = cell[estimator]["coverage"]
    text = f"{coverage:.2f}"
    if not 0.9 <= coverage <= 0.99:
        text = f"**{text}**"
    if estimator == "WLS":
        return text
    return f"{text} ({cell[estimator]['median error'] / cell['WLS']['median error']:.2g})"


def _coverage_section(result: dict[str, Any]) -> str:
    cells = result["cells"]
    held = sum(_holds(cell["default"]) for cell in cells)
    plain = sum(_holds(cell["WLS"]) for cell in cells)
    worse = [cell for cell in cells if _above_wls(cell)]
    large = [cell for cell in cells if cell["players"][0] > 60]
    large_outside = sum(not _holds(cell["default"]) for cell in large)
    listed = ", ".join(
        f"{cell['family']} {cell['players'][0]}-{cell['players'][1]} at {cell['calls a player']:g}"
        for cell in worse
    )
    sampled = [game["truth error"] for game in result["games"] if game["truth error"] > 0]
    own = (
        f" (their own relative squared error: {median(sampled):.0e} in the median)"
        if sampled
        else ""
    )
    earlier = "".join(
        f" Measured before the last change of the estimator: {line}."
        for line in result.get("earlier lines", [])
    )
    return "".join([
        "\n## Do the 95 % bars hold?\n\n",
        f"Share of the Shapley values that are within 1.96 standard errors of the estimate, by "
        f"family of graphs, number of players and model calls a player (columns), over up to "
        f"{result['each']} games a line ({3 * result['each']} up to 60 players) and "
        f"{result['seeds']} seeds; in brackets the median error of the default as a multiple of "
        f"that of `WLS` on the same rows. Trees: Tree-Grid and Tree-Cycles (from "
        f"61 players on random trees of depth 3); BA: BA-Shapes and BA-Community; "
        f"citation: Cora and CiteSeer (GCN, GAT); molecules: Mutagenicity; stars: a centre "
        f"and its leaves; hubs: a centre with many neighbours, others behind these and "
        f"links between them. Random trees, stars and hubs have random features and untrained "
        f"GCN, GraphSAGE, GAT and GIN by turns. Shapley values are exact where connected sets or "
        f"coalitions can be enumerated, else by least squares on 2,000 calls a player, at least "
        f"200,000{own}. The estimator was developed on "
        f"games of other seeds; of small data sets a few nodes are in both. Outside "
        f"0.90-0.99 in bold: {len(cells) - held} of {len(cells)} cells, of `WLS` "
        f"{len(cells) - plain}; from 61 players on {large_outside} of {len(large)}. "
        f"{_small_budgets(cells)}The error is more than 1.1 times that of `WLS` in {len(worse)} "
        f"cells{': ' + listed if listed else ''}.{earlier}\n\n",
        coverage_table(cells, "default"),
        "\nThe same for `WLS`:\n\n",
        coverage_table(cells, "WLS"),
    ])  # fmt: skip


def _small_budgets(cells: list[dict[str, Any]]) -> str:
    """How many of the cells outside have very few calls in all."""
    few = [c for c in cells if c["calls a player"] * c["players"][1] <= 40]
    outside = sum(not _holds(cell["default"]) for cell in few)
    return f"With at most 40 calls in all: {outside} of {len(few)}. " if few else ""


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.1f} ms"


def _machine(machine: dict[str, str]) -> str:
    return "".join(f"- {name}: {value}\n" for name, value in machine.items())


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as part:
        part.write_text(text)


def _figure() -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import)

    figure = Figure(figsize=(8, 5), layout="constrained")
    return figure, figure.subplots()


def _save(figure: Any, path: Path) -> None:
    with atomic_write(path) as part:
        figure.savefig(part, dpi=120, format="png")


def _plot_speed(lines: list[dict[str, Any]], path: Path) -> None:
    figure, axes = _figure()
    peers = [line for line in lines if not line["wanted"].startswith("at most")]
    for kind in dict.fromkeys(line["contender"] for line in peers):
        some = [line for line in peers if line["contender"] == kind]
        axes.loglog([x["ours"] for x in some], [x["theirs"] for x in some], "o", label=kind)
    ends = [min(x["ours"] for x in peers) / 2, max(x["ours"] for x in peers) * 2]
    for factor in (1, 10, 100, 1000):
        axes.loglog(ends, [factor * e for e in ends], "--", color="grey", lw=0.8, zorder=0)
        at = ends[1], factor * ends[1]
        axes.annotate(f"{factor}x", at, color="grey", fontsize="small", ha="right", va="bottom")
    axes.set(xlabel="graphsvx, seconds", ylabel="contender, seconds")
    figure.legend(fontsize="x-small", loc="outside lower center", ncols=2)
    _save(figure, path)


def _plot_error(errors: dict[str, dict[str, dict[str, float]]], path: Path) -> None:
    figure, axes = _figure()
    for name, row in errors.items():
        calls = [int(budget) for budget in row]
        ours = name.startswith("graphsvx")
        medians = [max(cell["median"], 1e-12) for cell in row.values()]
        axes.loglog(calls, medians, "o-" if ours else "s--", lw=2 if ours else 1, label=name)
    axes.set(xlabel="model calls", ylabel="median relative squared error")
    axes.legend(fontsize="x-small")
    _save(figure, path)
