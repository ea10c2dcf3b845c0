"""The kinds of directives of IFEval (arXiv 2311.07911): the family stands before the colon. They are judged by the
official checkers, which are not here."""

from collections.abc import Mapping

# What the checker of each kind takes; it would draw at random what is not given.
ARGUMENTS: Mapping[str, Mapping[str, type]] = {
    "change_case:capital_word_frequency": {"capital_frequency": int, "capital_relation": str},
    "change_case:english_capital": {},
    "change_case:english_lowercase": {},
    "combination:repeat_prompt": {"prompt_to_repeat": str},
    "combination:two_responses": {},
    "detectable_content:number_placeholders": {"num_placeholders": int},
    "detectable_content:postscript": {"postscript_marker": str},
    "detectable_format:constrained_response": {},
    "detectable_format:json_format": {},
    "detectable_format:multiple_sections": {"num_sections": int, "section_spliter": str},
    "detectable_format:number_bullet_lists": {"num_bullets": int},
    "detectable_format:number_highlighted_sections": {"num_highlights": int},
    "detectable_format:title": {},
    "keywords:existence": {"keywords": list},
    "keywords:forbidden_words": {"forbidden_words": list},
    "keywords:frequency": {"frequency": int, "keyword": str, "relation": str},
    "keywords:letter_frequency": {"let_frequency": int, "let_relation": str, "letter": str},
    "language:response_language": {"language": str},
    "length_constraints:nth_paragraph_first_word": {"first_word": str, "nth_paragraph": int, "num_paragraphs": int},
    "length_constraints:number_paragraphs": {"num_paragraphs": int},
    "length_constraints:number_sentences": {"num_sentences": int, "relation": str},
    "length_constraints:number_words": {"num_words": int, "relation": str},
    "punctuation:no_comma": {},
    "startend:end_checker": {"end_phrase": str},
    "startend:quotation": {},
}
