"""Prices that are none, places nobody priced: one sentence that says what to write."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.cost import price_book
from railwright.errors import RailwrightError
from railwright.spec import template


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a price file has a list `prices`"),
        ("prices: [", "not YAML"),
        ("prices:\n  - {item: x, middel: 3}\n", "did you mean 'middle'"),
        (
            "prices:\n  - {item: x, middle: 3}\n  - {item: y, middle: $5}\n",
            ":3: prices.y: middle: '$5' is no amount",
        ),
        ("prices:\n  - {item: server/x, low: 5, middle: 3, high: 8}\n", "middle lies outside low and high"),
        ("prices:\n  - {item: server/x, middle: 3, status: sure}\n", "'sure' is none of"),
        ("prices:\n  - x\n", "'x' is no price"),
        ("prices:\n  - {item: x, middle: -1}\n", "no amount of 0 or more"),
        ("prices:\n  - {item: sever/dgx-h100, middle: 3}\n", "no such item; did you mean 'server/dgx-h100'"),
        ("prices:\n  - {item: colocatoin, middle: 3}\n", "no such item; did you mean 'colocation'"),
        ("prices:\n  - {item: cloud/mine, middle: 3}\n", "is written cloud/PROVIDER/GPU"),
        (
            "prices:\n  - {item: spot-loss, middle: 1}\n",
            "middle: 1 is not a share of the hours, from 0 to 0.9",
        ),
        ("prices:\n  - {item: facility-life, middle: 0}\n", "middle: 0 is not years, from 1 to 100"),
        ("prices:\n  - {item: server-share, middle: 0}\n", "from 0.05 to 1"),
        (
            "prices:\n  - {item: residual, middle: 3}\n",
            "middle: 3 is not a share of the hardware, from 0 to 1",
        ),
        (
            "prices:\n  - {item: power-at-work, middle: 78}\n",
            "middle: 78 is not a share of the maximum power",
        ),
        ("prices:\n  - {item: pue, low: 0.9, middle: 1.2, high: 1.5}\n", "low: 0.9 is not site power over"),
        ("prices:\n  - {item: server/dgx-h100, middle: 3, unit: EUR}\n", "unit: 'EUR' is not USD"),
    ],
)
def test_a_price_file_with_a_mistake(tmp_path, text, said):
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(RailwrightError) as error:
        price_book(file)
    assert str(file) in str(error.value)
    assert said in str(error.value)


def test_a_price_of_nothing_in_the_catalogue_is_told(tmp_path):
    """'dgx-h10' would be the price of nothing, while the book's own price of a DGX H100 goes on."""
    (tmp_path / "mine.yaml").write_text(
        "prices:\n  - {item: server/dgx-h10, middle: 250000}\n  - {item: server/dgx-h100, middle: 260000}\n"
    )
    study = tmp_path / "study.yaml"
    study.write_text(template("rail-240") + "\nmoney: {prices: mine.yaml}\n")
    done = CliRunner().invoke(app, ["cost", str(study)])
    assert done.exit_code == 0
    assert "are these of your own prices: server/dgx-h10, did you mean 'dgx-h100'" in done.output
    assert "server/dgx-h100;" not in done.output


@pytest.mark.parametrize(
    ("money", "options", "said"),
    [
        ("{region: atlantis}", [], "no price of electricity in 'atlantis'"),
        ("{region: texass}", [], "did you mean 'texas'"),
        ("{use: {share: 0}}", [], "no GPU is ever wanted"),
        ("{use: {profile: levels}}", [], "money.use.levels: the profile is levels, and none are listed"),
        ("{use: {base: 0.3}}", [], "money.use.base: the profile is steady, which reads share alone"),
        ("{hours: [1, 2]}", [], "2 factors, 24 expected"),
        ("{prices: none.yaml}", [], "cannot read this price file"),
        ("{}", ["--region", "mars"], "Error: --region: no price of electricity in 'mars'"),
        (
            "{}",
            ["--region", "germny"],
            "Error: --region: no price of electricity in 'germny'; did you mean 'germany'",
        ),
    ],
)
def test_a_study_that_cannot_be_priced(tmp_path, money, options, said):
    study = tmp_path / "study.yaml"
    study.write_text(template("rail-240") + f"\nmoney: {money}\n")
    done = CliRunner().invoke(app, ["cost", str(study), *options])
    assert done.exit_code == 2
    assert said in done.output


def test_a_server_nobody_priced(tmp_path):
    study = tmp_path / "study.yaml"
    text = template("rail-240").replace("dgx-h100", "mi355x-8")
    study.write_text(text.replace("switch: qm9700", "switch: th4-400g"))
    done = CliRunner().invoke(app, ["cost", str(study)])
    assert done.exit_code == 2
    assert "item: server/mi355x-8" in done.output


def test_check_asks_for_the_prices_of_all_variants(tmp_path):
    """`run` prices the design that it recommends, whichever that is; a row of the sensitivity table never."""
    study = tmp_path / "study.yaml"
    text = template("rail-240").replace("cluster.compute.family: fat-tree", "cluster.server: mi355x-8", 1)
    ecmp = "  - name: ECMP routing\n"
    text = text.replace(ecmp, "  - {name: x, set: {cluster.server: mi300x-8}}\n" + ecmp, 1)
    study.write_text(text + "\nmoney: {}\n")
    for command in (["check"], ["run", "--out", str(tmp_path / "out")]):
        done = CliRunner().invoke(app, [command[0], str(study), *command[1:]])
        assert done.exit_code == 2
        assert "money.prices (variant 'Fat tree')" in done.output
        assert "item: server/mi355x-8" in done.output
        assert "mi300x" not in done.output


def test_a_gpu_that_no_cloud_rents_is_said_to_be_compared_with_none(tmp_path):
    (tmp_path / "prices.yaml").write_text("prices:\n  - {item: gpu/l40, middle: 5000}\n")
    text = template("workstation").replace("workstation-4x-l40s", "server-8x-l40")
    text = text[: text.index("variants:")] + "money: {prices: prices.yaml}\n"
    study = tmp_path / "study.yaml"
    study.write_text(text)
    done = CliRunner().invoke(app, ["cost", str(study)])
    assert done.exit_code == 0
    assert "no cloud with l40; add cloud/NAME/l40" in done.output
    with (tmp_path / "prices.yaml").open("a") as prices:
        prices.write("  - {item: cloud/ours/l40, middle: 1}\n")
    done = CliRunner().invoke(app, ["cost", str(study)])
    assert "no cloud" not in done.output
    assert "ours on-demand" in done.output


def test_nothing_is_overwritten_and_no_study_is_a_sentence(tmp_path):
    assert "give a study" in CliRunner().invoke(app, ["cost"]).output
    for code in (0, 2):
        done = CliRunner().invoke(app, ["cost", "rail-240", "--out", str(tmp_path / "csv")])
        assert done.exit_code == code
    assert "is not overwritten" in done.output
