"""Write a result as plain text and as HTML.

Meaning is never carried by colour alone, and the HTML needs no script.
"""

from html import escape
from typing import Any

from course.exercises.result import Result, Table

_SIGNS = {"passed": ("✓", "Correct"), "not attempted": ("○", "Not done yet"),
          "raised": ("✗", "Error"), "timed out": ("✗", "Too slow"),
          "checker failed": ("!", "No verdict")}
_WRONG = ("✗", "Not yet")
_STAGE_SIGNS = {"found": "✓", "differs": "✗", "missing": "–"}
_COLOURS = {"passed": "#1a7f37", "not attempted": "#6e7781",
            "raised": "#cf222e", "timed out": "#cf222e"}
_ORANGE = "#bc4c00"
_SHOWN_LINES = 3


def number(value: Any) -> str:
    """Write one number of a table."""
    if isinstance(value, bool | str):
        return str(value)
    if value == 0:
        return "0"
    return f"{value:.3g}" if abs(value) < 1e5 else f"{value:.1e}"


def _paragraphs(result: Result) -> list[tuple[str, str]]:
    """The parts of a result, in order, each with its kind."""
    parts = [("effect", text) for text in result.effects if text]
    parts += [("why", result.why)] if result.why else []
    parts += [("fact", text) for text in result.facts]
    parts += [("note", text) for text in result.notes]
    parts += [("question", result.question)] if result.question else []
    return parts


def _is_open(result: Result) -> bool:
    """Whether there is anything to go on with."""
    return result.verdict in ("named", "either", "facts", "raised")


def as_text(result: Result) -> str:
    """Write a result for a terminal."""
    sign, word = _SIGNS.get(result.verdict, _WRONG)
    lines = [f"{sign} {result.exercise}: {word}. {result.title}"]
    lead = {"effect": "  ", "why": "  Why: ", "fact": "  • ",
            "note": "  Note: ", "question": "  Ask yourself: "}
    lines += [lead[kind] + text for kind, text in _paragraphs(result)]
    if result.stages:
        lines.append("  Step by step:")
        width = max(len(each.stage) for each in result.stages)
        lines += [f"    {_STAGE_SIGNS[each.mark]} {each.stage:<{width}}  "
                  f"{each.text}" for each in result.stages]
    if result.table is not None:
        lines += _text_table(result.table)
    if result.printed:
        lines.append(f"  Printed: {_printed(result)}")
    if _is_open(result):
        again = "" if result.seed is None else (
            f" The same inputs again: seed={result.seed}.")
        lines.append(f"  hint({result.exercise!r}) gives a hint.{again}")
    return "\n".join(lines)


def _printed(result: Result) -> str:
    lines = result.printed.strip().splitlines()
    more = " ..." if len(lines) > _SHOWN_LINES else ""
    return " / ".join(lines[:_SHOWN_LINES])[:300] + more


def _origin(table: Table) -> str:
    columns = f"{table.columns} from {table.first_column}"
    if not table.columns:
        return ""
    if not table.rows:
        return f"; across: {columns}"
    return (f"; down: {table.rows} from {table.first_row}, across: "
            f"{columns}")


def _text_table(table: Table) -> list[str]:
    yours = [[number(x) + ("*" if bad else "") for x, bad in zip(row, marks)]
             for row, marks in zip(table.yours, table.wrong)]
    expected = [[number(x) for x in row] for row in table.expected]
    width = max(len(cell) for row in yours + expected for cell in row)

    def line(row: list[str]) -> str:
        return " ".join(cell.rjust(width) for cell in row)

    head = max(len(line(yours[0])), len("yours"))
    return [f"  First difference ({table.where}{_origin(table)}; * is "
            "wrong):",
            f"    {'yours'.ljust(head)} | expected",
            *(f"    {line(a).ljust(head)} | {line(b)}"
              for a, b in zip(yours, expected))]


def as_html(result: Result) -> str:
    """Write a result for a notebook or a page."""
    sign, word = _SIGNS.get(result.verdict, _WRONG)
    colour = _COLOURS.get(result.verdict, _ORANGE)
    parts = [f'<div role="status" class="check-result" style="border:1px '
             f'solid currentColor;border-left:6px solid {colour};padding:'
             '.6em .9em;margin:.3em 0;border-radius:4px;max-width:52em;'
             'line-height:1.45">',
             f'<strong><span aria-hidden="true">{sign}</span> '
             f'{escape(word)}</strong> <code>{escape(result.exercise)}'
             f'</code> – {escape(result.title)}']
    frame = {"effect": "<p>{}</p>", "why": "<p><em>Why:</em> {}</p>",
             "note": "<p><small>{}</small></p>",
             "question": "<p><em>Ask yourself:</em> {}</p>"}
    paragraphs = _paragraphs(result)
    for kind, text in paragraphs:
        if kind != "fact":
            parts.append(frame[kind].format(_with_code(text)))
        elif text == result.facts[0]:
            items = "".join(f"<li>{_with_code(fact)}</li>"
                            for fact in result.facts)
            parts.append(f"<ul>{items}</ul>")
    if result.stages:
        items = "".join(
            f'<li><span aria-hidden="true">{_STAGE_SIGNS[each.mark]}</span> '
            f'<code>{escape(each.stage)}</code> {each.mark}: '
            f'{_with_code(each.text)}</li>' for each in result.stages)
        parts.append("<details open><summary>Step by step</summary><ul "
                     f'style="list-style:none">{items}</ul></details>')
    if result.table is not None:
        parts.append(_html_tables(result.table))
    if result.printed:
        parts.append(f"<p><small>Printed: {escape(_printed(result))}"
                     "</small></p>")
    if _is_open(result):
        again = "" if result.seed is None else (
            f" The same inputs again: <code>seed={result.seed}</code>.")
        parts.append(f"<p><small><code>hint({escape(repr(result.exercise))})"
                     f"</code> gives a hint.{again}</small></p>")
    return "".join(parts) + "</div>"


def _with_code(text: str) -> str:
    """Escape a text; what stands in backticks becomes code."""
    pieces = escape(text).split("`")
    if len(pieces) % 2 == 0:
        return escape(text)
    return "".join(f"<code>{piece}</code>" if n % 2 else piece
                   for n, piece in enumerate(pieces))


def _html_tables(table: Table) -> str:
    return ("<details open><summary>First difference: "
            f"{escape(table.where)}</summary>"
            + _html_table(table, table.yours, "Yours (✗ is wrong)", True)
            + _html_table(table, table.expected, "Expected", False)
            + "</details>")


def _html_table(table: Table, values: list[list[Any]], caption: str,
                marked: bool) -> str:
    head = "".join(
        f'<th scope="col">{escape(f"{table.columns} {column}".strip())}</th>'
        for column in range(table.first_column,
                            table.first_column + len(values[0])))
    body = ""
    for place, (row, marks) in enumerate(zip(values, table.wrong)):
        name = f"{table.rows} {table.first_row + place}".strip()
        cells = "".join(
            f'<td style="text-align:right">{number(value)}'
            f'{" ✗" if marked and bad else ""}</td>'
            for value, bad in zip(row, marks))
        body += f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'
    return ('<table style="display:inline-table;margin-right:1.2em">'
            f'<caption style="caption-side:top">{caption}</caption>'
            f'<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody>'
            '</table>')
