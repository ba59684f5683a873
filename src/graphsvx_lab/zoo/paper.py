"""Accuracies and settings that the paper reports for its models, and trained models beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any

from graphsvx.utils.printable import markdown_table
from graphsvx_lab.datasets.catalogue import clean_name, table_rows
from graphsvx_lab.zoo.settings import CITATION_SETS, DEFAULTS, Card, Settings

# (data set, model) -> accuracy on train, validation and test; the paper's two accuracy tables.
ACCURACY: dict[tuple[str, str], tuple[float, float, float]] = {
    (row["dataset"], row["model"]): (float(row["train"]), float(row["val"]), float(row["test"]))
    for row in table_rows("zoo/accuracy")
}


def differences(settings: Settings, dataset: str) -> dict[str, tuple[Any, Any]]:
    """Settings that differ from the paper's appendix: name -> (the paper's, ours).

    It names neither the blocks' convolution nor batch sizes.
    """
    name, paper = clean_name(dataset), Settings(model=settings.model)
    if name in CITATION_SETS:
        paper = DEFAULTS[name][settings.model]
    theirs, ours = paper.to_json(), replace(settings, batch_size=paper.batch_size).to_json()
    return {key: (theirs[key], ours[key]) for key in theirs if theirs[key] != ours[key]}


PARTS = ("train", "val", "test")
COLUMNS = ("data set", "model", *PARTS, "paper's test", "test over seeds", "seconds")


@dataclass(frozen=True)
class AccuracyRow:
    """A row of the table: the cards of a model by seed, or why there are none."""

    dataset: str
    model: str
    cards: tuple[Card, ...] = ()
    seconds: float = 0.0
    missing: str = ""

    @property
    def paper(self) -> tuple[float, float, float] | None:
        """The paper's accuracies on train, validation and test, where it has them."""
        return ACCURACY.get((self.dataset, self.model))

    def cells(self) -> tuple[str, ...]:
        """The row as text, in the order of `COLUMNS`; accuracies as "ours (paper's)"."""
        name = self.dataset, self.model
        in_paper = [f" ({value:.2f})" for value in self.paper] if self.paper else [""] * 3
        if not self.cards:
            return (*name, *(f"-{text}" for text in in_paper), self.missing, "-", "-")
        first = self.cards[0].accuracy
        ours = [f"{first[part]:.3f}{text}" for part, text in zip(PARTS, in_paper, strict=True)]
        return (*name, *ours, self.verdict(), self.spread(), f"{self.seconds:.0f}")

    def verdict(self) -> str:
        """Whether the paper's test accuracy is reached, rounded to its two digits."""
        if self.paper is None:
            return ""
        paper_test = self.paper[2]
        tests = [card.accuracy["test"] for card in self.cards]
        if round(tests[0], 2) >= paper_test:
            return "reached"
        if len(tests) > 1 and round(mean(tests), 2) >= paper_test:
            return "reached on average"
        return "missed"

    def spread(self) -> str:
        """Mean and standard deviation of the test accuracy over the seeds."""
        tests = [card.accuracy["test"] for card in self.cards]
        return f"{mean(tests):.3f} ± {stdev(tests):.3f}" if len(tests) > 1 else "-"

    def changes(self) -> str:
        """Settings that are not the paper's, as text."""
        changes = differences(self.cards[0].settings, self.dataset).items()
        return ", ".join(f"{key} {theirs} → {ours}" for key, (theirs, ours) in changes) or "none"


def markdown(rows: list[AccuracyRow], command: str) -> str:
    """The page `docs/results/models.md`."""
    trained = [row for row in rows if row.cards]
    lines = [
        "# Trained models beside the paper's",
        "",
        f"Made by `{command} --table docs/results/models.md`. Accuracies are those of the first",
        "seed, the paper's in brackets; then whether the paper's test accuracy is reached (rounded",
        "to its two digits), and mean ± standard deviation of the test accuracy over the seeds,",
        "each with its own graph (or noise), split and initial weights. Seconds are for one seed,",
        "loading included, on one CPU thread.",
        "",
        markdown_table(COLUMNS, [row.cells() for row in rows]),
        "",
        "## Settings that are not the paper's",
        "",
        "The paper's: three blocks of 20 units with ReLU and one linear layer, Adam with rate",
        "0.001, 1,000 epochs; citation models as in its appendix. It does not name the blocks'",
        "convolution: with constant features it has to be a sum over neighbours (GraphConv).",
        "Everywhere, the weights with the lowest validation loss are kept (looked at every 5",
        "epochs), gradients are clipped to norm 2, and the last layer has no ReLU, so that logits",
        "may be negative. Settings were chosen by validation on other seeds (100 and up).",
        "",
        markdown_table(
            ("data set", "model", "setting (paper's → ours)"),
            [(row.dataset, row.model, row.changes()) for row in trained],
        ),
    ]
    if trained:
        versions = ", ".join(f"{k} {v}" for k, v in trained[0].cards[0].versions.items())
        lines += ["", f"Versions: {versions}."]
    return "\n".join(lines) + "\n"
