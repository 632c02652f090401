"""How often `rn50 reproduce` is right: python benchmarks/equivalence.py

Draws five claimed runs and some new ones, minutes whose spread is known, a thousand times each: equal ones,
and ones that differ by the margin. It prints how often each verdict is given: "equivalent" of equal ones is
the power, of ones at the margin's edge the error, which is to be 5 % at most.
"""

import argparse

import numpy as np

from rn50.results import equivalence

CLAIMED = 5
RUNS = (3, 5, 10, 20)
SPREADS = (0.005, 0.01, 0.02, 0.03)


def share(random: np.random.Generator, ratio: float, spread: float, runs: int, draws: int) -> float:
    """Return how often runs that take ``ratio`` times the minutes are called equivalent."""
    count = 0
    for _ in range(draws):
        claimed = np.exp(random.normal(0, spread, CLAIMED))
        new = ratio * np.exp(random.normal(0, spread, runs))
        count += equivalence.judge(list(claimed), list(new), MARGIN).verdict == equivalence.EQUIVALENT
    return count / draws


MARGIN = 0.03

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=1000)
    arguments = parser.parse_args()
    random = np.random.default_rng(31)
    print(f"margin {MARGIN:.0%}, {CLAIMED} claimed runs, {arguments.draws} draws; called equivalent:")
    print("| spread of the runs | new runs | equal | 3 % more | 3 % fewer |\n|---|---|---|---|---|")
    for spread in SPREADS:
        for runs in RUNS:
            ratios = (1.0, 1 + MARGIN, 1 / (1 + MARGIN))
            rates = [share(random, ratio, spread, runs, arguments.draws) for ratio in ratios]
            print(
                f"| {spread:.1%} | {runs} | " + " | ".join(f"{rate:.1%}" for rate in rates) + " |", flush=True
            )
