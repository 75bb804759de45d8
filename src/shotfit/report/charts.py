"""Small charts as SVG in a page, in its colours: lines, bars, a reliability diagram."""

from collections.abc import Sequence

WIDTH, HEIGHT, EDGE = 420, 180, 36


def curve_chart(points: Sequence[tuple[float, float]]) -> str:
    """The loss (iteration, loss) of a stage."""
    if not points:
        return ""
    last, top = max(x for x, _ in points) or 1, max(y for _, y in points) or 1
    places = " ".join(
        f"{EDGE + (WIDTH - 2 * EDGE) * x / last:.1f},{_down(y / top, HEIGHT):.1f}"
        for x, y in points
    )
    words = f"The loss goes from {points[0][1]:.2f} to {points[-1][1]:.2f} in {last:.0f} updates."
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{words}">{_frame(HEIGHT)}'
        f'<polyline fill="none" stroke="var(--ours)" stroke-width="1.5" points="{places}"/>'
        f"{_words(4, EDGE - 10, _top(top))}{_words(4, HEIGHT - EDGE + 4, '0')}"
        f"{_words(WIDTH - EDGE, HEIGHT - 14, f'{last:.0f} updates', 'end')}"
        f"{_words(EDGE, HEIGHT - 14, 'loss')}</svg>"
    )


def reliability_chart(bins: Sequence[tuple[int, float, float]]) -> str:
    """Accuracy over confidence; `bins` are (count, confidence, accuracy), the last two shares."""
    size = 300
    inner = size - 2 * EDGE
    total = sum(count for count, _, _ in bins) or 1
    circles = "".join(
        f'<circle cx="{EDGE + inner * sure:.1f}" cy="{_down(right, size):.1f}" '
        f'r="{3 + 16 * (count / total) ** 0.5:.1f}" fill="var(--ours)" fill-opacity="0.65">'
        f"<title>{count} images at {sure:.0%}: {right:.0%} right</title></circle>"
        for count, sure, right in bins
    )
    return (
        f'<svg viewBox="0 0 {size} {size}" style="width: 20rem" role="img" '
        f'aria-label="Accuracy over confidence in {len(bins)} bins">'
        f'<line x1="{EDGE}" y1="{size - EDGE}" x2="{size - EDGE}" y2="{EDGE}" '
        'stroke="var(--soft)" stroke-dasharray="4 4"/>'
        f'<path d="M{EDGE} {EDGE} V{size - EDGE} H{size - EDGE}" fill="none" '
        f'stroke="var(--line)"/>{circles}'
        f"{_words(EDGE, size - 14, 'confidence')}{_words(size - EDGE, size - 14, '100 %', 'end')}"
        f"{_words(4, EDGE - 8, 'right, 100 %')}</svg>"
    )


def bar(percent: float, beside: float | None) -> str:
    """A bar of a percentage and, thinner below it, of another one."""
    second = ""
    if beside is not None:
        second = f'<rect y="9" width="{beside:.1f}" height="4" fill="var(--other)"/>'
    return (
        '<svg viewBox="0 0 100 14" style="width: 8rem" aria-hidden="true" '
        'preserveAspectRatio="none"><rect width="100" height="14" fill="var(--line)" '
        f'fill-opacity="0.5"/><rect width="{percent:.1f}" height="8" fill="var(--ours)"/>'
        f"{second}</svg>"
    )


def _down(share: float, height: float) -> float:
    return height - EDGE - (height - 2 * EDGE) * share


def _frame(height: float) -> str:
    return (
        f'<path d="M{EDGE} {EDGE - 6} V{height - EDGE} H{WIDTH - EDGE}" fill="none" '
        'stroke="var(--line)"/>'
    )


def _top(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _words(x: float, y: float, text: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="12" fill="var(--soft)" text-anchor="{anchor}">'
        f"{text}</text>"
    )
