"""The bench says what is missing: torch, a launcher, an address, a split that means something."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.errors import RailwrightError
from railwright.measure.bench import Place, split
from railwright.measure.bench.environment import world_of
from railwright.measure.bench.rails import grid
from railwright.measure.bench.sizes import counts

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "h0", "MASTER_PORT": "1234"}


def test_without_torch_the_message_says_how_to_get_it():
    """In a process in which torch cannot be found, whether it is installed or not."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from railwright.cli.main import main\n"
        "sys.argv = ['railwright', 'bench', 'run', 'all_reduce']\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install torch" in done.stderr
    assert "Traceback" not in done.stderr


def test_sizes_and_names_are_checked_before_torch():
    for arguments, sentence in (
        (["run", "all_sing"], "'all_sing' is not a collective"),
        (["run", "all_reduce", "-b", "8", "-e", "4"], "-e 4 is smaller than -b 8"),
        (["pairs", "-s", "much"], "'much' is not a message size"),
    ):
        done = CliRunner().invoke(app, ["bench", *arguments])
        assert done.exit_code == 2
        assert sentence in done.output


@pytest.mark.parametrize(
    ("environ", "launcher", "rank", "address"),
    [
        (TORCHRUN, "torchrun", 3, "h0"),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "2",
          "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, "mpirun", 2, "127.0.0.1"),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "16", "SLURM_LOCALID": "5", "MASTER_ADDR": "n1"},
         "srun", 5, "n1"),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "5", "SLURM_NNODES": "1"}, "srun", 5,
         "127.0.0.1"),
    ],
)  # fmt: skip
def test_launchers(environ, launcher, rank, address):
    world = world_of(environ)
    assert (world.launcher, world.rank, world.address) == (launcher, rank, address)


def test_no_launcher_no_address_no_number():
    with pytest.raises(RailwrightError, match="torchrun --nproc-per-node"):
        world_of({})
    with pytest.raises(RailwrightError, match="export MASTER_ADDR"):
        world_of({"SLURM_PROCID": "5", "SLURM_NTASKS": "16", "SLURM_LOCALID": "5"})
    with pytest.raises(RailwrightError, match="which are no rank and size"):
        world_of({**TORCHRUN, "RANK": "x"})


@pytest.mark.parametrize("text", ["hosts", "MOD", "MOD 0", "DIV 0x0", "XOR 3", "AND x"])
def test_splits_that_mean_nothing(text):
    with pytest.raises(RailwrightError, match="--split"):
        split(text, [Place(0, "a", 0)])


def test_binary_and_hexadecimal_splits():
    places = [Place(r, "a", r) for r in range(8)]
    assert split("AND 0x1", places) == split("&0b1", places) == split("MOD 2", places)
    assert split("OR 0x7", places) == split("|7", places) == [list(range(8))]


def test_uneven_hosts_have_no_rails():
    with pytest.raises(RailwrightError, match="the same number of ranks on every host"):
        grid([Place(0, "a", 0), Place(1, "a", 1), Place(2, "b", 0)])


def test_types():
    with pytest.raises(RailwrightError, match="known types are float, int32, double"):
        counts("all_reduce", [8], 2, "half")
