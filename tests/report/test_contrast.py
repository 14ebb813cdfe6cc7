"""Contrast of all texts with what is behind them, by the formula of WCAG 2.2, from the colors that Chromium computes."""

import pytest
from support.report_forms import LETTERS, PAIRS
from support.report_run import GENERATION, OPTIONS, SENTENCES

MINIMUM = 4.5

# Returns [contrast, selector, text] of the texts with the lowest contrast. Colors of any notation are drawn on a canvas,
# translucent ones over the backgrounds of the elements around them.
CONTRASTS = """
const context = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
function painted(colors) {
  context.clearRect(0, 0, 1, 1);
  for (const color of colors) { context.fillStyle = color; context.fillRect(0, 0, 1, 1); }
  return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
}
function luminance(rgb) {
  const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
const found = new Map();
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, element = node.parentElement;
  if (!node.data.trim() || !element.checkVisibility({visibilityProperty: true, opacityProperty: true})) continue;
  if (element.closest('.visually-hidden, .skip:not(:focus), .dt-paging .disabled, script, noscript, option')) continue;
  const style = getComputedStyle(element), behind = [];
  let opacity = 1;
  for (let at = element; at; at = at.parentElement) {
    behind.unshift(getComputedStyle(at).backgroundColor);
    opacity *= Number(getComputedStyle(at).opacity);
  }
  const text = element.closest('svg') ? style.fill : style.color;
  if (text === 'none') continue;
  const back = painted(['white', ...behind]), front = painted(['white', ...behind, text]);
  const shown = front.map((v, i) => opacity * v + (1 - opacity) * back[i]);
  const [high, low] = [luminance(shown), luminance(back)].sort((a, b) => b - a);
  const key = `${element.tagName}.${element.className.baseVal ?? element.className}`;
  const contrast = (high + 0.05) / (low + 0.05);
  if (!found.has(key) || found.get(key)[0] > contrast) found.set(key, [contrast, key, node.data.trim().slice(0, 40)]);
}
return [...found.values()].sort((a, b) => a[0] - b[0]).slice(0, 5);
"""

VIEWS = ["#/overview", "#/leaderboard?down=models", "#/leaderboard?down=evaluations",
         "#/leaderboard?scale=baseline&down=models", f"#/task/{OPTIONS}/plain", f"#/items/{OPTIONS}/plain",
         f"#/item/{OPTIONS}/plain/i6", f"#/item/{SENTENCES}/plain/s3", f"#/item/{GENERATION}/plain/w1", "#/comparison",
         f"#/comparison/plain/%3Dcmd()/{OPTIONS}", "#/provenance"]  # fmt: skip
VIEWS_OF_TWO_MODELS = ["#/overview?show=model:0", "#/overview?show=pair:0", "#/leaderboard?down=evaluations",
                       "#/leaderboard?scale=chance", f"#/task/{PAIRS[0]}/tuned", f"#/item/{LETTERS}/base/q1",
                       "#/comparison"]  # fmt: skip


def slow_except(quick: set, views: list) -> list:
    return [pytest.param(view, marks=[pytest.mark.slow] * (view not in quick)) for view in views]


@pytest.mark.parametrize("view", slow_except({"#/overview", f"#/item/{SENTENCES}/plain/s3"}, VIEWS))
def test_texts_are_readable_in_both_themes(browser, view):
    assert_readable(browser, view)


@pytest.mark.parametrize("view", slow_except({f"#/task/{PAIRS[0]}/tuned", "#/comparison"}, VIEWS_OF_TWO_MODELS))
def test_texts_about_two_models_are_readable_in_both_themes(page, view):
    assert_readable(page, view)


def assert_readable(browser, view):
    browser.open(view)
    lowest = {}
    for _ in range(2):
        theme = browser.js("return theme.current()")
        lowest[theme] = browser.js(CONTRASTS)
        browser.find("#theme").click()
        browser.until("document.body.dataset.ready === 'yes'")
    assert set(lowest) == {"light", "dark"}
    assert [(theme, row) for theme, rows in lowest.items() for row in rows if row[0] < MINIMUM] == []


def test_contrast_is_measured_against_translucent_backgrounds(browser):
    """Black on white has the contrast 21; half-transparent black on white, on half-transparent black, has less."""
    browser.open("#/provenance")
    browser.js(
        """document.body.replaceChildren(Object.assign(document.createElement('p'), {textContent: 'x'}));
        document.body.style.background = 'white';
        document.querySelector('p').style.color = 'black';"""
    )
    assert browser.js(CONTRASTS)[0][0] == pytest.approx(21)
    browser.js("document.querySelector('p').style.background = 'rgb(0 0 0 / .5)'")
    assert browser.js(CONTRASTS)[0][0] == pytest.approx(5.28, abs=0.1)  # black on #7f7f7f or #808080
    browser.js("document.querySelector('p').style.opacity = .5")
    assert browser.js(CONTRASTS)[0][0] < 3
