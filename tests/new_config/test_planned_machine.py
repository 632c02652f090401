"""``rn50 config new --for``: a configuration for GPUs that are not here."""

import pytest
from click.testing import CliRunner

from rn50.cli import main
from rn50.new_config import new_config
from rn50.settings import named
from tests.support import new_configs
from tests.support.new_configs import BARE


def plain(text, folder):
    """What people are shown."""
    command = ["config", "new", "MINE", "--for", text, "-o", str(folder / "config_OTHER.sh")]
    return CliRunner().invoke(main, command).output


@pytest.mark.parametrize("text", ["4 x 24GB 8.9", "4x24gb 8.9", "4 x 24 G, 8.9"])
def test_a_machine_that_is_not_here_gets_what_it_would_get_there(tmp_path, text):
    file = tmp_path / "config_MINE.sh"
    done = CliRunner().invoke(main, ["config", "new", "MINE", "--for", text, "-o", str(file), "--json"])
    assert done.exit_code == 0, done.output
    there = new_configs.machine("8xA100", 4, "NVIDIA GeForce RTX 4090", (8, 9), 24 * 1024, 0)
    expected = new_config.make("MINE", there, BARE).config
    ours = named.read(str(file), environ={})
    assert ours == expected and ours.run.step_mode == "fused" and ours.run.ranks_per_node == 4
    assert "caution     the model is not known, so no published result is compared" in plain(text, tmp_path)
    assert "minutes are not known without the model; rn50 plan" in file.read_text()
    assumed = "24 GiB each; assumed: all GPU memory free, driver 580.65.06 or newer, 36 CPUs"
    assert f"#   machine     4 x GPU of compute capability 8.9, {assumed}" in file.read_text()


@pytest.mark.parametrize(
    "text", ["8 cores", "CPU", "", "4 x 24GB", "0 x 24GB 8.9", "4 x 24GB 8.9 9.0", "4 x 24TB 9.0"])
def test_gpus_in_another_form_are_refused_with_an_example(tmp_path, text):
    done = CliRunner().invoke(
        main, ["config", "new", "MINE", "--for", text, "-o", str(tmp_path / "config_MINE.sh")])
    assert done.exit_code == 2 and done.output.count("\n") == 1 and not list(tmp_path.iterdir())
    says = 'write --for "4 x RTX-4090" or --for "4 x 24GB 8.9"; without a GPU the configuration is DEMO_CPU'
    assert says in done.output


@pytest.mark.parametrize(
    "text, machine, batch_size, says",
    [("4 x RTX-4090", "4 x RTX-4090, 24 GiB each", 256, "this code, by estimate: "),
     ("2x4090", "2 x RTX-4090, 24 GiB each", 204, "this code, by estimate: "),
     ("8 H100", "8 x H100-SXM-80GB, 80 GiB each", 408, "at the rate of others' code on H100-SXM-80GB"),
     ("1 H200", "H200-SXM-141GB, 141 GiB", 408, "this code, measured: "),
     ("8 A100", "rn50: --for 8 A100: several are called so: A100-SXM-80GB, ", None, "; say which")])
def test_gpus_are_known_by_the_names_that_plan_has_for_them(tmp_path, text, machine, batch_size, says):
    shown, file = plain(text, tmp_path), tmp_path / "config_OTHER.sh"
    assert machine in shown and says in " ".join(shown.split()) and file.exists() is bool(batch_size)
    assert not batch_size or f"export BATCHSIZE={batch_size} " in file.read_text()


@pytest.mark.parametrize(
    "text, files",
    [("8 H100", ["DGXH100.sh is there already, for NVIDIA DGX H100: 8 H100-SXM5-80GB"]), ("4 H100", []),
     ("1 H200", ["H200.sh is there already, for one H200 with 141 GB"]), ("4 x 80GB 9.0", []),
     ("8 A100-SXM-40GB", [])])
def test_files_of_configs_for_as_many_are_named(tmp_path, text, files):
    shown = plain(text, tmp_path)
    assert shown.count("is there already") == len(files)
    assert all(f"configs/config_{each}" in shown for each in files)


@pytest.mark.parametrize("text", ["64 H100", "17 x 80GB 9.0", "8 x 8 H100", "2 x 8 x H100"])
def test_gpus_of_several_machines_are_refused_with_what_configures_them(tmp_path, text):
    says = f"rn50: --for {text}: not one machine of up to 16 GPUs; for several write a file like configs/"
    shown = plain(text, tmp_path)
    assert shown.startswith(f"{says}config_8xDGXH100.sh, which sets DGXNNODES") and shown.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["8 x 1GB 9.0", "8 x 4GB 6.1"])
def test_gpus_that_no_image_fits_are_refused(tmp_path, text):
    says = f"rn50: --for {text}: no image fits beside the 4 GiB that a run needs without images; "
    assert plain(text, tmp_path) == says + "give GPUs with more memory\n" and not list(tmp_path.iterdir())
