"""``rn50 rank``, which rn50 itself calls, by hand."""

import pytest
from click.testing import CliRunner

from rn50.cli import main
from rn50.errors import UserError
from rn50.speed import cell


@pytest.mark.parametrize(
    "module, arguments",
    [("speed.cell", "{"), ("speed.cell", "[1]"), ("speed.cell", "null"), ("speed.cell", "{}"),
     ("speed.cell", '{"model": "ours", "kinds": ["real"], "seconds": 1, "rounds": 1, "more": 1}'),
     ("speed.networks", "{}"), ("speed.absent", "{}"), ("", "{}"), ("..json", "{}"),
     pytest.param("x" * 10_000, "{}", id="long")])
@pytest.mark.parametrize("options", [[], ["--start-ranks"]])
def test_a_rank_by_hand_is_refused_in_a_line(tiny_environment, module, arguments, options):
    done = CliRunner(mix_stderr=False).invoke(
        main, ["rank", *options, module, arguments], env=tiny_environment)
    assert done.exit_code == 2 and done.stdout == ""
    assert "cannot be called so (" in done.stderr and len(done.stderr) < 500
    assert len(done.stderr.splitlines()) == 1


def test_an_unknown_kind_of_data_is_not_measured(tiny_config):
    with pytest.raises(UserError, match="no kinds of data; give synthetic or real"):
        cell.as_rank(tiny_config, "ours", ["x"], 1, 1)
