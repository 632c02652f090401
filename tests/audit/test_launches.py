"""``rn50 audit`` of launches that were made up: holes, the script's count, seeds, and what is not tested."""

import itertools
import re

import pytest

from rn50.audit import audit
from rn50.benchmark import rules
from tests.audit import made
from tests.audit.made import found


@pytest.mark.parametrize(
    "left_out, where",
    [([1], "27.9 minutes between result_0.txt and result_1.txt have room for 1 run"),
     ([2, 3], "55.4 minutes between result_1.txt and result_2.txt have room for 2 runs"),
     ([1, 3], "between result_1.txt and result_2.txt have room for 1 run")])
def test_runs_left_out_leave_a_hole(tmp_path, left_out, where):
    placed = [run for number, run in enumerate(made.campaign(5 + len(left_out))) if number not in left_out]
    _, seen = found(made.write(tmp_path / "r", placed))
    assert [*seen] == ["launch gaps"] and where in seen["launch gaps"]


def test_a_hole_that_no_number_of_runs_fills_is_a_pause(tmp_path):
    placed = made.campaign(5)
    later = [(at + 0.45 * made.RUN_S * (number > 2), run) for number, (at, run) in enumerate(placed)]
    assert found(made.write(tmp_path / "r", later))[1] == {}


def test_a_file_that_is_missing(tmp_path):
    placed = made.campaign(6)
    folder = made.write(tmp_path / "r", [placed[0], *placed[2:]], [0, 2, 3, 4, 5])
    _, seen = found(folder)
    assert seen["file numbers"] == "no 1 among the numbers 0 to 5"
    assert "between result_0.txt and result_2.txt have room for 1 run" in seen["launch gaps"]


def test_the_scripts_own_count(tmp_path):
    placed = made.campaign(8)
    for number, (_, one) in enumerate(placed):
        one["trial"] = f"{number + 1} of 8"
    chosen = [placed[index] for index in (1, 3, 5, 6, 7)]
    _, seen = found(made.write(tmp_path / "r", chosen))
    assert "trial 3 of 8 between result_0.txt and result_1.txt" in seen["trials"]
    assert "launch gaps" in seen
    _, seen = found(made.write(tmp_path / "t", placed[3:]))
    assert seen["trials"].startswith("missing: trial 1 to 3 of 8 before result_0.txt")
    # Where the count goes on, a pause of any length is none of a run left out.
    whole = made.campaign(5)
    for number, (_, one) in enumerate(whole):
        one["trial"] = f"{number + 1} of 5"
    late = [
        (at + (made.RUN_S + made.INIT_S + made.GAP_S) * (i > 1), one) for i, (at, one) in enumerate(whole)]
    assert found(made.write(tmp_path / "s", late))[1] == {}


def counted(placed, *trials):
    """The runs, each with what its script prints before it."""
    for (_, one), trial in zip(placed, itertools.cycle(trials), strict=False):
        one["trial"] = trial
    return placed


def unfinished(folder, placed, at, lines, number=20):
    """The runs, and beside them the first lines of another that begins at ``at``."""
    made.write(folder, placed)
    log = made.write(folder, [(at, made.run(77))], [number]) / f"result_{number}.txt"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:lines]))
    return folder


def begun_early(folder, placed):
    """The run after the hole says that it began when the one before had ended."""
    ended = placed[1][0] + made.INIT_S + placed[1][1]["seconds"]
    placed[2][1]["begun"] = ended + made.GAP_S - placed[2][0]
    return made.write(folder, placed)


def trailing(folder, placed):
    """The run before the hole says something ten minutes after its end."""
    placed[1][1]["trailing"] = 590.0
    return made.write(folder, placed)


def overlapping(folder, placed):
    """The last run begins before the one before it has ended."""
    return made.write(folder, [*placed[:-1], (placed[-1][0] - 0.1 * made.RUN_S, placed[-1][1])])


HOLE = "minutes between result_1.txt and result_2.txt have room for 1 run"


@pytest.mark.parametrize(
    "disguise, says",
    [(lambda f, placed: made.write(f, counted(placed, "1 of 5")),
      {"launch gaps": HOLE, "trials": "1 of 5"}),
     (lambda f, placed: made.write(f, counted(placed, "1 of 1")), {"launch gaps": HOLE}),
     (lambda f, placed: unfinished(f, placed, placed[1][0] + 1700, 12),
      {"launch gaps": f"{HOLE}; result_20.txt is unfinished: it lasted 76 of 1,670 s"}),
     (overlapping, {"launch gaps": f"{HOLE}; result_3.txt and result_4.txt overlap"}),
     (begun_early, {"launch gaps": "result_2.txt has 28.0 minutes before run_start, another run 0.5"}),
     (trailing, {"launch gaps": HOLE})])
def test_a_hole_is_explained_by_what_lasted_as_long(tmp_path, disguise, says):
    placed = [run for number, run in enumerate(made.campaign(6)) if number != 2]
    _, seen = found(disguise(tmp_path / "r", placed))
    assert {*seen} == {*says}, seen
    assert all(text in seen[test] for test, text in says.items()), seen


@pytest.mark.parametrize(
    "trials, pause",
    [
        (("1 of 5", "2 of 5", "3 of 5", "1 of 5", "2 of 5"), 3),  # two calls
        (("1 of 1", "1 of 4", "2 of 4", "3 of 4", "4 of 4"), 1),
        (("1 of 4", "2 of 4", "3 of 4", "4 of 4", "1 of 5"), 4),
    ],
)
def test_a_count_that_goes_on_in_other_logs_explains_a_pause(tmp_path, trials, pause):
    day = [(at + 1650 * (number >= pause), one) for number, (at, one) in enumerate(made.campaign(5))]
    assert found(made.write(tmp_path / "r", counted(day, *trials)))[1] == {}


def test_an_unfinished_run_explains_as_much_as_it_lasted(tmp_path):
    placed = made.campaign(6)
    folder = unfinished(tmp_path / "r", [*placed[:2], *placed[3:]], placed[2][0], 75)
    one, seen = found(folder)
    gaps = next(evidence.found for evidence in one.evidence if evidence.test == "launch gaps")
    assert seen == {} and re.search(r"; result_20.txt is unfinished: it lasted 1,\d{3} of 1,\d{3} s$", gaps)


@pytest.mark.parametrize(
    "trials, missing",
    [(("1 of 5", "1 of 5", "2 of 5", "2 of 5", "2 of 5"), "trial 1 of 5"),
     (("2 of 5", "2 of 5", "1 of 5", "4 of 5", "5 of 5"), "trial 1 of 5; trial 3 of 5"),
     (("1 of 1", "1 of 10", "2 of 8", "1 of 1", "1 of 1"), "trial 1 of 8"),
     (("1 of 5", "1 of 5", "2 of 5", "2 of 5", "3 of 5"), None)])
def test_the_count_of_runs_side_by_side(tmp_path, trials, missing):
    placed = [(0.3 * at, one) for at, one in made.campaign(5)]
    one, seen = found(made.write(tmp_path / "r", counted(placed, *trials)))
    gaps = next(evidence.found for evidence in one.evidence if evidence.test == "launch gaps")
    assert gaps.startswith("most runs were made side by side: gaps say nothing; result_0.txt and result_1")
    assert [*seen] == (["trials"] if missing else [])
    if missing:
        assert seen["trials"].startswith(f"missing: {missing}"), seen


def test_trials_that_were_announced_and_are_not_here(tmp_path):
    made.write(tmp_path / "r", counted(made.campaign(5), *(f"{number} of 8" for number in range(2, 7))))
    later = [(at + 1e6, made.run(number + 50)) for number, (at, _) in enumerate(made.campaign(5))]
    made.write(tmp_path / "s", counted(later, *(f"{number} of 15" for number in range(1, 6))))
    missing, whole = audit.audit([tmp_path / "r", tmp_path / "s"]).audits
    assert missing.stands_out[0].found.endswith(", 6 of 8; 7 to 8 of 8 are not here)")
    assert (
        made.notes(whole) == ("the script's own count: 6 to 15 of 15 are not here",) and not whole.stands_out)


@pytest.mark.parametrize(
    "seeds, says, stands_out",
    [((1, 2, 3, 5, 6), "they count up by 1, and 4 is not there", True),
     ((100, 102, 103, 104, 101), "count up by 1", False), ((1, 2, 3, 5, 8), "all differ", False),
     ((10, 20, 30, 50, 70), "all differ", False), ((7, 8, 9, 11, 13), "all differ", False),
     ((0, 1, 2, 4, 8), "all differ", False), ((1, 3, 5, 9, 11), "all differ", False),
     ((42, 42, None, 42, 42),
      "seed 42 in result_0.txt and result_1.txt and result_3.txt and result_4.txt", True),
     ((42, 2**32 + 42, 1, 2, 7), "seed 42 in result_0.txt and result_1.txt", True),
     ((1, 2, 9, 5, None), "result_4.txt has no number as its seed", False),
     ((1, 2, 9, 5, "42"), "result_4.txt has no number as its seed", False)])
def test_seeds_that_somebody_typed(tmp_path, seeds, says, stands_out):
    placed = made.campaign(5)
    for (_, one), seed in zip(placed, seeds, strict=True):
        one["seed"] = seed
    one, seen = found(made.write(tmp_path / "r", placed))
    (told,) = (evidence for evidence in one.evidence if evidence.test == "seeds")
    assert (told.found, told.stands_out, [*seen]) == (says, stands_out, ["seeds"] * stands_out)


@pytest.mark.parametrize(
    "changes, test, why",
    [({"batch": 0}, "epochs", "no log has a batch size above 0"),
     ({"batch": None}, "epochs", "no log has a batch size above 0"),
     ({"division": "open"}, "epochs", "not of the closed division"),
     ({"platform": f"8xBox ({rules.NOT_A_RESULT})"}, "epochs", "not runs of the benchmark"),
     ({"curve": [0.1] * 9}, "epochs", "fewer than 3 runs reached the target"),
     ({"optimizer": None}, "epochs", "too little is known of an optimizer that is not logged"),
     ({"epochs": (11, 23, 35), "curve": [0.5, 0.6, 0.76]}, "curves alike",
      "no two runs share 5 evaluations"),
     ({"epochs": (11, 23, 35), "curve": [0.5, 0.6, 0.76]}, "curves shifted", "fewer than 4 runs share 5")])
def test_a_test_that_is_left_out_says_so(tmp_path, changes, test, why):
    placed = made.campaign(5, **changes)
    for number, (_, one) in enumerate(placed):
        one["curve"] = [round(top_1 + number / 5000, 5) for top_1 in one["curve"]]
    one, _ = found(made.write(tmp_path / "r", placed))
    (told,) = (evidence for evidence in one.evidence if evidence.test == test)
    assert told.found.startswith(why) and not told.stands_out and not told.possible
