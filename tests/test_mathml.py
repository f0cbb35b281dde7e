"""LaTeX to MathML: known answers, well-formedness, and the equations that are not supported."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.reports.mathml import UnknownLatex, render_equation, to_mathml

ARITY = {"mfrac": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2, "msubsup": 3, "munderover": 3}

SIMCLR = (
    r"-\log \frac{\exp(\operatorname{sim}(z_i, z_j)/\tau)}{\sum_{k=1}^{2N} \mathbb{1}_{[k \neq i]} \exp(\operatorname{sim}(z_i, z_k)/\tau)}"
)


def tree(latex: str) -> ET.Element:
    found = ET.fromstring(f"<math>{to_mathml(latex)}</math>")
    for element in found.iter():
        assert element.tag not in ARITY or len(element) == ARITY[element.tag], ET.tostring(element)
    return found


def said(latex: str) -> str:
    return "".join(tree(latex).itertext())


@pytest.mark.parametrize(
    ("latex", "mathml"),
    [
        ("x", "<mi>x</mi>"),
        ("12.5", "<mn>12.5</mn>"),
        (r"\frac{a}{b}", "<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac>"),
        (r"\frac1n", "<mfrac><mn>1</mn><mi>n</mi></mfrac>"),
        (r"\tfrac12 D", "<mfrac><mn>1</mn><mn>2</mn></mfrac><mi>D</mi>"),
        ("z_i", "<msub><mi>z</mi><mi>i</mi></msub>"),
        ("z^2_i", "<msubsup><mi>z</mi><mi>i</mi><mn>2</mn></msubsup>"),
        ("z'", "<msup><mi>z</mi><mrow><mo>′</mo></mrow></msup>"),
        (r"\tau", "<mi>τ</mi>"),
        (r"\Omega", '<mi mathvariant="normal">Ω</mi>'),
        (r"\mathbb{E}", "<mrow><mi>𝔼</mi></mrow>"),
        (r"\mathbb R", "<mi>ℝ</mi>"),
        (r"\mathcal{L}", "<mrow><mi>ℒ</mi></mrow>"),
        (r"\sqrt{d}", "<msqrt><mrow><mi>d</mi></mrow></msqrt>"),
        ("a-b", "<mi>a</mi><mo>−</mo><mi>b</mi>"),
        ("=-b", '<mo>=</mo><mo form="prefix">−</mo><mi>b</mi>'),
        ("a<b", "<mi>a</mi><mo>&lt;</mo><mi>b</mi>"),
        (r"\text{if } x", "<mtext>if\u00a0</mtext><mi>x</mi>"),
        (r"\hat y", '<mover accent="true"><mi>y</mi><mo stretchy="false">^</mo></mover>'),
        (r"\left( x \right.", '<mrow><mo fence="true" stretchy="true">(</mo><mi>x</mi></mrow>'),
    ],
)
def test_known_answers(latex, mathml):
    assert to_mathml(latex) == f"<mrow>{mathml}</mrow>"
    tree(latex)


def test_limits_go_below_and_above_sums_and_beside_other_symbols():
    assert tree(r"\sum_{i=1}^N x_i").find(".//munderover") is not None
    assert tree(r"\max_i x").find(".//munder") is not None
    assert tree(r"\operatorname*{arg\,max}_c x").find(".//munder") is not None
    assert tree(r"\log_2 x").find(".//msub") is not None


def test_a_whole_loss():
    assert said(SIMCLR) == "−logexp(sim(zi,zj)/τ)∑k=12N𝟙[k≠i]exp(sim(zi,zk)/τ)"


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"\lVert u \rVert_2 \cdot \|v\|", "‖u‖2⋅‖v‖"),
        (r"\left\lVert \bar a_i - \bar b_i \right\rVert^\alpha", "‖a¯i−b¯i‖α"),
        (r"\mathbb{E}_{x \sim p_{\mathrm{data}}}\bigl[ f(x)^\top f(x^+) \bigr]", "𝔼x∼pdata[f(x)⊤f(x+)]"),
        (r"\theta' \leftarrow m\,\theta' + (1 - m)\,\theta", "θ′←mθ′+(1−m)θ"),
        (r"\sum_i (1 - \mathcal{C}_{ii})^2 + \lambda \sum_i \sum_{j \ne i} \mathcal{C}_{ij}^2", "∑i(1−𝒞ii)2+λ∑i∑j≠i𝒞ij2"),
    ],
)
def test_text_of_formulas(latex, text):
    assert said(latex) == text


@pytest.mark.parametrize(
    "latex",
    [
        r"\unknown{x}",
        r"\begin{matrix} a \end{matrix}",
        r"\begin{cases} a & b",
        "{",
        "}",
        "x_",
        "x_1_2",
        r"\frac{a}",
        r"\left( x",
        "a & b",
        r"\text{x",
        r"\mathbb{\frac12}",
    ],
)
def test_latex_outside_the_vocabulary_is_not_rendered(latex):
    with pytest.raises(UnknownLatex):
        to_mathml(latex)
    assert render_equation(latex) is None


def test_cases_are_a_table_behind_a_brace():
    drawn = ET.fromstring(to_mathml(r"\begin{cases} 1 & x = \text{log\_det} \\ 0 & \text{else} \end{cases}"))
    assert [["".join(cell.itertext()) for cell in row] for row in drawn.iter("mtr")] == [["1", "x=log_det"], ["0", "else"]]


def test_text_in_equations_is_escaped():
    found = ET.fromstring(render_equation(r"\text{<script>} \operatorname{<b>}"))
    assert "".join(found.itertext()) == "<script><b>"
    assert {element.tag for element in found.iter()} == {"math", "mrow", "mtext", "mo"}


@given(st.text(alphabet="\\{}_^'ab12+-=()[]|/<&, fracsumtext\n", max_size=40))
def test_rendered_equations_are_well_formed(latex):
    rendered = render_equation(latex)
    assert rendered is None or ET.fromstring(rendered).tag == "math"
