"""Equations as Unicode text for a terminal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.recipes.method_summary import read_all_summaries
from nearfar.reports.math_layout import get_width
from nearfar.reports.unicode_math import latex_to_line, latex_to_text

SUMMARIES = {summary.name: summary for summary in read_all_summaries()}


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        (r"z_i^\top z_j", "zᵢᵀ zⱼ"),
        (r"C_{ij}^2", "Cᵢⱼ²"),
        (r"E^+_{0,0}", "E₀,₀⁺"),
        (r"e^{-1/\tau}", "e^(−1/τ)"),
        (r"h_w", "h_w"),
        (r"\sum_{k=1}^{2N} \mathbb{1}_{[k \neq i]} x", "∑ₖ₌₁²ᴺ 𝟙_[k≠i] x"),
        (r"\sum_{j \neq i} -\log x", "∑_(j≠i) −log x"),
        (r"\frac{1}{2n} x", "1/(2n) x"),
        (r"\tfrac12 D_W^2", "½ D_W²"),
        (r"\frac1N", "1/N"),
        (r"\frac{a + b}{\exp(c + d)}", "(a + b) / exp(c + d)"),
        (r"\lVert \bar q_\theta - z' \rVert_2^2", "‖q̄_θ − z′‖₂²"),
        (r"\max(0, m - D)^2", "max(0, m − D)²"),
        (r"\max\Big\{ a, \; b \Big\}", "max(a, b)"),
        (r"\operatorname{sim}(z_i, z_j)/\tau", "sim(zᵢ, zⱼ)/τ"),
        (r"\operatorname*{arg\,max}_{Q} x", "arg max_Q x"),
        (r"P_{\text{start}}(s)", "P_start(s)"),
        (r"\mathcal{L} = 1", "ℒ = 1"),
        (r"\tilde x \cdot \hat y", "x̃ · ŷ"),
        (r"\sqrt{t/f} + t", "√(t/f) + t"),
        (r"|u - v|", "|u − v|"),
        (r"P(i \mid x)", "P(i | x)"),
        (r"2 - 2", "2 − 2"),
        (r"(-2)", "(−2)"),
        (r"a, \quad b", "a; b"),
        (r"\begin{cases} 1 & x \\ 2 & y \end{cases}", "(1: x; 2: y)"),
        (r"\unheardof{x} + 1", "unheardofx + 1"),
    ],
)
def test_known_equations(latex, expected):
    assert latex_to_line(latex) == expected


def test_fractions_stand_in_three_lines():
    text = latex_to_text(r"\ell = -\log \frac{\exp(s)}{\sum_k \exp(s_k)} + 1, \qquad z = W h")
    assert text.split("\n") == [
        "            exp(s)",
        "ℓ = −log ──────────── + 1",
        "          ∑ₖ exp(sₖ)",
        "",
        "z = W h",
    ]


def test_fractions_in_fractions_are_aligned():
    lines = latex_to_text(r"x = \frac{a + \frac{bbbbb}{c}}{ddddddddd}").split("\n")
    assert lines == ["          bbbbb", "     a + ───────", "            c", "x = ─────────────", "      ddddddddd"]


def test_a_wide_equation_is_written_on_one_line_and_wrapped():
    latex = " + ".join(rf"\frac{{\exp(s_{i})}}{{\sum_k \exp(s_k)}}" for i in range(9))
    text = latex_to_text(latex, width=60)
    assert "─" not in text
    assert max(map(get_width, text.split("\n"))) <= 60
    assert " ".join(text.split()) == latex_to_line(latex)


@pytest.mark.parametrize("name", SUMMARIES)
def test_no_card_leaves_latex_behind(name):
    summary = SUMMARIES[name]
    displayed = re.findall(r"\$\$(.*?)\$\$", summary.text, re.DOTALL)
    assert displayed, "the docstring shows the equation"
    for latex in (summary.card.equation, *displayed):
        for text in (latex_to_line(latex), latex_to_text(latex, 76)):
            assert not set(text) & set("\\{}$"), text
            assert not re.search(r"frac|mathcal|operatorname|lVert|qquad", text), text
            assert all(get_width(line) <= 76 for line in text.split("\n") if text == latex_to_text(latex, 76))


TOKENS = [
    "{", "}", "_", "^", "'", "x", "12", " ", "-", "+", "(", ")", "|", ",", r"\frac", r"\sum", r"\tilde", r"\mathbb", r"\left", r"\right",
    r"\text", r"\operatorname", r"\big", r"\quad", r"\,", r"\\", r"\{", r"\}", r"\begin", r"\end", r"\sqrt", r"\underset", r"\foo",
    "\\", "&",
]  # fmt: skip


@given(st.lists(st.sampled_from(TOKENS), max_size=30).map("".join))
def test_broken_latex_still_becomes_text(latex):
    line, text = latex_to_line(latex), latex_to_text(latex, 40)
    assert not set(line + text) & set("\\{}")
    assert "\n" not in line
