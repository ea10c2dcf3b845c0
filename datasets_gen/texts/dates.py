"""Reads dates and times of day, in the forms that people write.

A day stands before its month where both are numbers, but for a month that there is none of. The
names of months are those of eight languages."""

import regex

from datasets_gen.texts.folding import LETTER, ascii_digits, fold

_NAMES = (
    "january jan januar janvier enero gennaio janeiro januari январь января",
    "february feb februar février febrero febbraio fevereiro februari февраль февраля",
    "march mar märz mars marzo março maart март марта",
    "april apr avril abril aprile апрель апреля",
    "may mai mayo maggio maio mei май мая",
    "june jun juni juin junio giugno junho июнь июня",
    "july jul juli juillet julio luglio julho июль июля",
    "august aug août agosto augustus август августа",
    "september sep sept septembre septiembre settembre setembro сентябрь сентября",
    "october oct oktober octobre octubre ottobre outubro октябрь октября",
    "november nov novembre noviembre novembro ноябрь ноября",
    "december dec dezember décembre diciembre dicembre dezembro декабрь декабря",
)
# Where two months share a name, as "mar", the earlier one has it.
_NUMBERS: dict[str, int] = {}
for _number, _of_month in enumerate(_NAMES, 1):
    for _name in _of_month.split():
        _NUMBERS.setdefault(fold(_name), _number)
_LONGEST_FIRST = sorted({*" ".join(_NAMES).split()}, key=len, reverse=True)
_MONTH = f"(?i:{'|'.join(_LONGEST_FIRST)})"
_AFTER = rf"(?!{LETTER})"
DATE = rf"""
    (?<![{LETTER}--\p{{Hangul}}])(?<![\p{{Nd}}][.,/-])(?:
      (?P<day1>\p{{Nd}}{{1,2}})(?:st|nd|rd|th|er|\.|º)?\ (?:of\ |de\ |di\ )?(?P<month1>{_MONTH})\.?{_AFTER}
        (?:(?:,\ ?|\ of\ |\ in\ |\ de\ |\ del\ |\ )(?P<year1>\p{{Nd}}{{4}}){_AFTER})?
    | (?P<month2>{_MONTH})\.?\ (?:the\ )?(?P<day2>\p{{Nd}}{{1,2}})(?:st|nd|rd|th)?{_AFTER}
        (?:(?:,\ ?|\ of\ |\ in\ |\ )(?P<year2>\p{{Nd}}{{4}}){_AFTER})?
    | (?P<year3>\p{{Nd}}{{4}})(?P<mark3>[-/.‐‑−])(?P<month3>\p{{Nd}}{{1,2}})(?P=mark3)(?P<day3>\p{{Nd}}{{1,2}})(?!-?{LETTER})
    | (?P<day4>\p{{Nd}}{{1,2}})(?P<mark4>[./-])(?P<month4>\p{{Nd}}{{1,2}})(?P=mark4)(?P<year4>\p{{Nd}}{{4}})(?!-?{LETTER})
    | (?P<year5>\p{{Nd}}{{4}})\s?[年년]\s?(?P<month5>\p{{Nd}}{{1,2}})\s?[月월]\s?(?P<day5>\p{{Nd}}{{1,2}})\s?[日号號일]
    )
"""
TIME = rf"""
    (?<![{LETTER}--\p{{Hangul}}])(?<![\p{{Nd}}][.,:])
    (?P<hour>\p{{Nd}}{{1,2}})(?:
      [:：](?P<minute>\p{{Nd}}{{2}})(?:[:：](?P<second>\p{{Nd}}{{2}}))?(?![:：]?\p{{Nd}})(?:\s?(?P<half1>(?i:[ap])\.?(?i:m)\b\.?))?
      | \s?(?P<half2>(?i:[ap])\.?(?i:m)\b\.?)
    ){_AFTER}
"""
# English words that are months where a capital begins them.
_ALSO_WORDS = ("may", "mar", "march")


def read_date(match: "regex.Match[str]") -> tuple[tuple[str, ...], str]:
    """Returns the forms of what :data:`DATE` matched, the most precise first, and its year; no
    forms if it is no date. A date with a year also is its day of any year."""
    day, month = _find_part(match, "day"), _find_part(match, "month")
    year = _find_part(match, "year")
    if not year and (month in _ALSO_WORDS or (match["day1"] and len(month) < 3)):
        return (), ""
    by_name = _NUMBERS.get(fold(month))
    numbers = [int(ascii_digits(day)), by_name or int(ascii_digits(month))]
    # A month above 12 is a day: that is the American order.
    if numbers[1] > 12:
        numbers.reverse()
    if not 1 <= numbers[1] <= 12 or not 1 <= numbers[0] <= 99:
        return (), ""
    of_year = f"{numbers[1]}m{numbers[0]}d"
    year = ascii_digits(year)
    # The day without its year comes second: what is looked for goes by the first form alone.
    forms = (f"{year}y{of_year}", of_year) if year else (of_year,)
    return forms, year


def _find_part(match: "regex.Match[str]", part: str) -> str:
    """Returns a part of a date in whichever of the forms it is written; empty where the form has
    none."""
    for way in range(1, 6):
        if written := match[f"{part}{way}"]:
            return str(written)
    return ""


def read_time(match: "regex.Match[str]") -> tuple[str, ...]:
    """Returns the times of day that what :data:`TIME` matched may mean: "2:30" may be said of the
    afternoon."""
    hour = int(ascii_digits(match["hour"]))
    minute = ascii_digits(match["minute"] or "00")
    second = ascii_digits(match["second"] or "")
    half = match["half1"] or match["half2"] or ""
    seconds = f"m{second}" if second not in ("", "00") else ""
    hours = possible_hours(hour, half, len(match["hour"]) == 1)
    return tuple(f"{each}h{minute}{seconds}" for each in hours)


def possible_hours(hour: int, half: str, is_vague: bool) -> tuple[int, ...]:
    """Returns the hours from 0 to 24 that an hour of a half of the day may be.

    >>> possible_hours(2, "pm", True), possible_hours(2, "", True), possible_hours(12, "am", True), possible_hours(2, "", False)
    ((14,), (2, 14), (0,), (2,))
    """
    if half:
        return (hour % 12 + 12 * (half[0] in "pP"),)
    if is_vague and 1 <= hour < 12:
        return (hour, hour + 12)
    return (hour,)
